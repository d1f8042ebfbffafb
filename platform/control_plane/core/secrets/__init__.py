"""The installation's secrets: where each comes from, which values are accepted, and their rotation."""
