"""Constrained decoding: the masks of allowed tokens, computed while the device runs a step."""

from .grammars import Grammars
from .masks import Grammar, TokenMasks

__all__ = ["Grammar", "Grammars", "TokenMasks"]
