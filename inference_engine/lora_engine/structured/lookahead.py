"""The grammar of an answer beyond its last token: which guesses it allows, which tokens it forces, and the masks there.

Guessed tokens ("drafts", `scheduling/speculation.py`) have rows of a step, each with the mask that holds if the drafts
before it are the answer. A second matcher advances by the drafts, and is rolled back: what it does can neither delay
the answer's next mask nor fail the answer, only its drafts. It is used by the step thread or by the thread that
computes masks, never by both.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

log = logging.getLogger(__name__)

# One bit for each token of the model's vocabulary, the first token in the lowest bit.
Mask = npt.NDArray[np.int32]
Drafts = Sequence[int]


class Lookahead:
    """A matcher that follows an answer, and may be ahead of it while masks are computed."""

    def __init__(self, matcher: LLMatcher, behind: list[int], words: int, mask_took: Callable[[float], None]) -> None:
        """Take a matcher at the grammar's start; ``behind``: the answer's tokens, which the owner appends to.

        ``words`` is the size of a mask; ``mask_took`` gets the seconds of masks that are computed alone.
        """
        self.is_busy = False  # a thread uses the matcher
        self._matcher = matcher
        self._words = words
        self._mask_took = mask_took
        self._behind = behind
        self._ahead = 0  # drafts that the matcher has consumed
        self._drafts: Drafts = ()
        self._masks: list[Mask] = []  # those after one draft, two, …, as far as they are ready
        self._forced = deque[int]()  # tokens after the answer's last one
        self._failed = False

    def forced(self, most: int) -> list[int]:
        """Return up to ``most`` next tokens that the grammar leaves no choice about."""
        if not self._follow():
            return []
        if not self._forced:  # else the rest of a text that was found to be forced before
            self._forced.extend(self._matcher.compute_ff_tokens())
        return [*islice(self._forced, most)]

    def allowed(self, guess: Drafts) -> list[int]:
        """Return the tokens of a guess up to the first that the grammar refuses; none while masks are computed."""
        if not guess or not self._follow():
            return []
        return [*guess[: self._matcher.validate_tokens([*guess])]]

    def begin(self, drafts: Drafts) -> list[Mask]:
        """Leave the matcher to the thread that computes the masks after drafts, and return the list for them."""
        self.is_busy, self._drafts, self._masks = True, drafts, []
        return self._masks

    def masks_after(self, drafts: Drafts) -> list[Mask]:
        """Return the masks after one of these drafts, two, …, as far as they are ready."""
        return [*self._masks] if self._drafts is drafts else []

    def _follow(self) -> bool:
        """Consume the answer's tokens; returns False if that is not possible now, or was not before."""
        if self.is_busy or self._failed:
            return False
        for token in self._behind:
            if self._forced and self._forced[0] == token:
                self._forced.popleft()
            else:
                self._forced.clear()
        if self._behind:
            self._failed = not self._matcher.consume_tokens(self._behind)
            self._behind.clear()
        return not self._failed

    # In the thread that computes masks.

    def advance(self, draft: int) -> bool:
        """Consume a draft; returns whether a token may follow it."""
        self._ahead += 1
        self._failed = not self._matcher.consume_token(draft)
        return not (self._failed or self._matcher.is_stopped())

    def go_back(self) -> None:
        """Return to the answer's last token."""
        if self._ahead and not self._failed:
            self._failed = not self._matcher.rollback(self._ahead)
        self._ahead, self.is_busy = 0, False


class MasksAhead:
    """The masks of the rows of drafts, which a lane's thread computes: after one draft of each answer, after two, …."""

    def __init__(self, of: Sequence[tuple[Lookahead, Drafts]], executor: LLExecutor | None) -> None:
        """Take the answers' matchers, which must not be busy; ``executor`` None: only one, whose masks are timed."""
        self._of = [(ahead, drafts, ahead.begin(drafts)) for ahead, drafts in of]
        self._executor = executor

    def compute(self) -> None:
        """Compute the masks. An answer whose matcher fails has no more drafts."""
        try:
            for depth in range(max(len(drafts) for _, drafts, _ in self._of)):
                going = [
                    (ahead, masks)
                    for ahead, drafts, masks in self._of
                    if len(masks) == depth < len(drafts) and ahead.advance(drafts[depth])
                ]
                if not going:
                    break
                rows = np.empty((len(going), going[0][0]._words), dtype=np.int32)
                self._fill(rows, [ahead for ahead, _ in going])
                for (ahead, masks), row in zip(going, rows, strict=True):
                    if not ahead._matcher.is_error():
                        masks.append(row)
        except Exception:
            log.exception("masks of drafts could not be computed")
            for ahead, _, _ in self._of:
                ahead._failed = True
        finally:
            for ahead, _, _ in self._of:
                ahead.go_back()

    def _fill(self, rows: Mask, of: list[Lookahead]) -> None:
        each = rows[0].nbytes
        if self._executor is not None:
            wanted = [(ahead._matcher, index) for index, ahead in enumerate(of)]
            self._executor.unsafe_compute_mask_ptr(wanted, rows.ctypes.data, each, len(wanted))
            return
        started = time.thread_time()
        of[0]._matcher.unsafe_compute_mask_ptr(rows.ctypes.data, each)
        of[0]._mask_took(time.thread_time() - started)
