"""The error for a model folder that the engine cannot load."""

from __future__ import annotations


class UnsupportedModel(Exception):
    """The folder does not hold a model that this engine can run; the message says what to do."""
