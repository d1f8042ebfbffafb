"""Compiled grammars, the masks of allowed tokens that they compute for sequences, and the threads that compute them.

An ordinary mask takes some microseconds, less than a thread needs to acquire the interpreter lock, and a step needs
hundreds of masks. So the masks of quick grammars are computed together by one call of the library, which acquires the
lock once and has its threads. The masks of a new grammar, or of one in a late batch, are computed alone and timed for a
while. Slow grammars have separate threads: a few hard grammars, by chance or by intent, cannot delay others.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from lora_engine.constraints import Constraint, first_line, load_library
from lora_engine.errors import RequestError

from .lookahead import Drafts, Lookahead, Mask, MasksAhead

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

log = logging.getLogger(__name__)

# Mean seconds for a mask above which a grammar is slow, and number of masks in the mean. Usual masks take 3 µs, one in
# a hundred 400 µs, one in 1,000 2 ms.
SLOW_S, MEAN_OF = 0.003, 16
# Masks that are computed alone before a grammar counts as quick.
TRIED = 32
# Share of late batches among the last ones from which on their grammars are timed alone again.
LATE = 0.15
# Seconds that a step waits for its batch before it continues with work that needs the interpreter lock. Most batches
# take a millisecond or two; a thread that competes with the step thread for the lock gets it late (docs/LOG.md).
WAITED_S = 0.01


class Grammar:
    """A compiled constraint, whose ``start`` returns the masks of a new sequence."""

    def __init__(self, constraint: Constraint, matcher: LLMatcher, first_mask: Mask, workers: MaskWorkers) -> None:
        self.constraint = constraint
        self.matcher = matcher
        self.first_mask = first_mask
        self.mean_mask_s = 0.0
        self._untried, self._late = TRIED, 0.0
        self._workers = workers

    @property
    def is_slow(self) -> bool:
        """True if its masks take longer than a step, so that waiting for them is useless."""
        return self.mean_mask_s > SLOW_S

    @property
    def is_quick(self) -> bool:
        """True if its masks have been quick enough to be computed in a batch with those of others."""
        return self._untried <= 0 and not self.is_slow

    @property
    def lane(self) -> Lane:
        return self._workers.slow if self.is_slow else self._workers.usual

    def mask_took(self, seconds: float) -> None:
        """Add a mask's duration to the mean of the last few; in any schema one mask in some thousands takes long."""
        self.mean_mask_s += (seconds - self.mean_mask_s) / MEAN_OF
        self._untried -= 1

    def batch_came(self, *, late: bool) -> None:
        """Record a batch with some of its masks as in time or too late for its step, also by a mean."""
        self._late += (late - self._late) / MEAN_OF
        if self._late > LATE:
            self._untried, self._late = TRIED, 0.0

    def start(self) -> TokenMasks:
        return TokenMasks(self)


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
        self._behind: list[int] = []  # tokens that the lookahead has not consumed yet
        self._lookahead: Lookahead | None = None

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
        self._behind.append(token_id)
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

    @property
    def lookahead(self) -> Lookahead | None:
        """The grammar beyond the last token; None if the masks of drafts would come too late, or not at all."""
        if self._error is not None or self.are_slow:
            return None
        if self._lookahead is None:
            grammar = self._grammar
            matcher, words = grammar.matcher.deep_copy(), len(grammar.first_mask)
            self._lookahead = Lookahead(matcher, self._behind, words, grammar.mask_took)
        return self._lookahead

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


class Lane:
    """A pool of threads with a queue of tasks; the threads are started at first use."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def submit(self, task: Callable[[], None]) -> None:
        if not self._threads:
            self._start()
        self._tasks.put(task)

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def _start(self) -> None:
        with self._starting:
            for number in range(len(self._threads), self._most):
                thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("a task of %s failed", self._name)


class MaskWorkers:
    """The lanes of mask threads: for batches, for masks computed alone, and for slow ones."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        self._threads = max(2, min(16, cores * 3 // 4))  # the library's threads, for all batches together
        self._executor: LLExecutor | None = None
        self.batches = Lane("mask-batches", 3)  # a step's batch does not wait for a late one of an earlier step
        # On few cores there are more threads than cores: a mask of some milliseconds must not delay those after it.
        self.usual = Lane("masks", max(4, min(8, cores - 1)))
        self.slow = Lane("slow-masks", 2)

    def compute_together(self, quick: list[TokenMasks]) -> None:
        """Compute the masks of quick grammars, at least one; the call may return before late ones are ready."""
        batch = MaskBatch(quick, self._of_batches())
        self.batches.submit(batch.compute)
        batch.wait(WAITED_S)

    def begin_ahead(self, of: Iterable[tuple[TokenMasks, Drafts]]) -> None:
        """Start computing the masks of rows of drafts: together for quick grammars, alone for the others."""
        quick = []
        for masks, drafts in of:
            ahead = masks.lookahead
            if ahead is None or ahead.is_busy:
                continue
            if masks.are_quick:
                quick.append((ahead, drafts))
            else:
                masks._grammar.lane.submit(MasksAhead([(ahead, drafts)], None).compute)
        if quick:
            self.batches.submit(MasksAhead(quick, self._of_batches()).compute)

    def _of_batches(self) -> LLExecutor:
        if self._executor is None:
            self._executor = load_library().LLExecutor(self._threads)
        return self._executor

    def close(self) -> None:
        self.batches.close()
        self.usual.close()
        self.slow.close()


def too_complex(constraint: Constraint, error: str) -> RequestError:
    return RequestError(
        "constraint_too_complex",
        f"The answer could not be constrained to its {constraint.kind.name.lower().replace('_', ' ')} any further: "
        f"{first_line(error)[:200]}.",
        "Simplify the schema or grammar; ambiguous rules and long counted repetitions cost most.",
    )
