"""The state of a sequence in its grammar, and the masks of its next tokens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lora_engine.constraints import Constraint, first_line
from lora_engine.request import RequestError

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

    from .grammars import Grammar

log = logging.getLogger(__name__)

# One bit for each token of the model's vocabulary, the first token in the lowest bit.
Mask = npt.NDArray[np.int32]


class TokenMasks:
    """The masks of a sequence's next tokens.

    Call ``take`` with each sampled token, then ``begin_mask`` if another one follows. Only the step thread calls these;
    another thread computes the mask. ``mask`` may be read once it is ``ready``.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._matcher: LLMatcher = grammar.matcher.deep_copy()
        self._mask: Mask = grammar.first_mask  # shared until there is a token
        self._buffer: Mask | None = None
        self._address, self._size = 0, 0  # of the buffer
        self._batch: MaskBatch | None = None  # batch in which its last mask was computed
        self.ready = True
        self._error: RequestError | None = None

    @property
    def are_slow(self) -> bool:
        """True if the masks take longer than a step, so that waiting for them is useless."""
        return self._grammar.is_slow

    @property
    def are_quick(self) -> bool:
        """True if the masks may be computed in a batch with those of other quick grammars."""
        return self._error is None and self._grammar.is_quick

    @property
    def mask(self) -> Mask:
        """Mask of the next token, once it is ready. Raises ``RequestError`` if it could not be computed."""
        if self._error is not None:
            raise self._error
        return self._mask

    def take(self, token_id: int) -> bool:
        """Advance by a token that the mask allowed; returns whether the answer is complete."""
        if not self._matcher.consume_token(token_id):
            self._error = too_complex(self._grammar.constraint, self._matcher.get_error())
            return False
        return bool(self._matcher.is_stopped())

    def begin_mask(self) -> None:
        """Start computing the next mask, not in a batch."""
        if self._error is not None:
            return
        if self._buffer is None:
            self._buffer = np.empty_like(self._grammar.first_mask)
            self._address, self._size = self._buffer.ctypes.data, self._buffer.nbytes
        self._mask, self._batch = self._buffer, None
        self.ready = False
        self._grammar.lane.submit(self._compute)

    def was_late(self) -> None:
        """Record that the step continued without the mask."""
        if self._batch is not None:
            self._batch.was_late()

    def _compute(self) -> None:
        started = time.thread_time()
        try:
            self._matcher.unsafe_compute_mask_ptr(self._address, self._size)
            self._check_error()
        except Exception as error:  # only this answer fails
            log.exception("a mask could not be computed")
            self._error = RequestError(
                "engine_error",
                f"The engine failed while it processed this request ({type(error).__name__}).",
                "Try again; if it fails again, send the request id to the operator.",
                retry_after_ms=1000,
            )
        self._grammar.mask_took(time.thread_time() - started)
        self.ready = True

    def _check_error(self) -> None:
        if self._matcher.is_error():
            self._error = too_complex(self._grammar.constraint, self._matcher.get_error())


class MaskBatch:
    """A batch of masks of quick grammars, which one call on a lane's thread computes."""

    def __init__(self, of: Sequence[TokenMasks], executor: LLExecutor) -> None:
        self._of = of
        self._grammars = {id(masks._grammar): masks._grammar for masks in of}.values()
        self._executor = executor
        self._computing = threading.Lock()
        self._computing.acquire()
        self._late = False
        self._rows = np.empty((len(of), len(of[0]._mask)), dtype=np.int32)
        for masks, row in zip(of, self._rows, strict=True):
            masks._mask, masks._batch, masks.ready = row, self, False

    def wait(self, seconds: float) -> None:
        """Wait until all masks are ready; after ``seconds`` the batch is late."""
        if not self._computing.acquire(timeout=seconds):
            self.was_late()

    def was_late(self) -> None:
        """Record that the batch is late; its grammars, any of which may be the cause, are timed alone if often late."""
        if not self._late:
            self._late = True
            for grammar in self._grammars:
                grammar.batch_came(late=True)

    def compute(self) -> None:
        rows, each = self._rows, self._rows[0].nbytes
        wanted = [(masks._matcher, index) for index, masks in enumerate(self._of)]
        try:
            self._executor.unsafe_compute_mask_ptr(wanted, rows.ctypes.data, each, len(wanted))
            for masks in self._of:
                masks._check_error()
                masks.ready = True
        except Exception:
            log.exception("masks could not be computed together")
            for masks in self._of:
                masks.begin_mask()
            return
        finally:
            self._computing.release()
        if not self._late:
            for grammar in self._grammars:
                grammar.batch_came(late=False)


def too_complex(constraint: Constraint, error: str) -> RequestError:
    return RequestError(
        "constraint_too_complex",
        f"The answer could not be constrained to its {constraint.kind.name.lower().replace('_', ' ')} any further: "
        f"{first_line(error)[:200]}.",
        "Simplify the schema or grammar; ambiguous rules and long counted repetitions cost most.",
    )
