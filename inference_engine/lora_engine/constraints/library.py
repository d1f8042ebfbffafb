"""llguidance is loaded when a constraint is first compiled: a host without it serves everything else."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .constraint import LibraryMissingError

if TYPE_CHECKING:
    from llguidance import LLTokenizer


def load_library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise LibraryMissingError("llguidance is not installed") from None
    return llguidance


@functools.cache
def door_tokenizer() -> LLTokenizer:
    """Return a tokenizer of single bytes: a constraint that compiles for it compiles for any model."""
    tokenizer: LLTokenizer = load_library().LLTokenizer("byte")
    return tokenizer


@functools.cache
def parser_limits() -> Any:
    """Return bounds on the cost of compiling and of each mask."""
    return load_library().LLParserLimits(
        initial_lexer_fuel=1_000_000,  # 20 ms
        step_lexer_fuel=200_000,  # 15 ms
        step_max_items=50_000,  # 3 ms
        max_lexer_states=20_000,  # 40 MB at most, of each answer
        max_grammar_size=200_000,
        verbose_errors=False,
    )
