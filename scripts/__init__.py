"""Set up, run, check and test this checkout: `python -m scripts.NAME` in its root."""
