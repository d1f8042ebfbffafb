"""What is wrong with a model's folder."""

from __future__ import annotations


class UnsupportedModel(Exception):
    """The folder does not hold a model this engine can run; the message says what to do."""
