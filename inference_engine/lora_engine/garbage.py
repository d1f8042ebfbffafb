"""Settings of Python's garbage collector for a process whose loaded model stays."""

from __future__ import annotations

import gc

# Objects that a collection of the youngest generation waits for. A step of 1,024 sequences makes about 4,000, which all
# end with the next step; with Python's 700 collections took 5 of 36 ms of such a step (docs/LOG.md).
_YOUNGEST, _MIDDLE, _OLDEST = 20_000, 20, 100


def freeze_loaded_objects() -> None:
    """Exclude all objects that exist now from later collections, and collect younger ones less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST, _MIDDLE, _OLDEST)
