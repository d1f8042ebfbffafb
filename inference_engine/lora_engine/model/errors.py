"""The error for a model folder that the engine cannot load."""

from __future__ import annotations


class UnsupportedModel(Exception):
    """The error for a folder without a model that this engine can run; the message has the fix."""
