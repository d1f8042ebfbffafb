"""llguidance is loaded when a constraint is first compiled: a host without it serves everything else."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from .constraint import LibraryMissingError

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Result = TypeVar("Result")

# Bytes of address space. llguidance follows references by recursion, with some 8 KiB for each of at most 40,000 parts.
_DEEP_STACK = 512 << 20
_stack_size_lock = threading.Lock()


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


def on_deep_stack(build: Callable[[], Result]) -> Result:
    """Run ``build`` on a thread with a stack on which the longest chain of references does not overflow."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(build())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="deep grammar", daemon=True)
    with _stack_size_lock:
        before = threading.stack_size(_DEEP_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return done.result()
