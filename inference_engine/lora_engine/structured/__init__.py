"""Constrained decoding: the masks of allowed tokens, computed while the device runs a step."""

from .grammars import Grammar, Grammars
from .token_masks import TokenMasks

__all__ = ["Grammar", "Grammars", "TokenMasks"]
