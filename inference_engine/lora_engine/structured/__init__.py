"""Answers held to a constraint: which tokens may come next, computed beside the device's step."""

from .grammars import Grammar, Grammars
from .token_masks import TokenMasks

__all__ = ["Grammar", "Grammars", "TokenMasks"]
