"""The running sequences that only decode are planned together."""

from __future__ import annotations

from .sequence import Chunk, Sequence


class DecodeSet:
    """The sequences that certainly yield a token in every step, on pages they have, until a step known in advance.

    A step over hundreds of them costs the host time per change, not per sequence.
    """

    def __init__(self, page_tokens: int) -> None:
        self.chunks: dict[Sequence, Chunk] = {}
        self._page_tokens = page_tokens
        self._step = 0
        self._unsure_at: dict[Sequence, int] = {}
        self._unsure: dict[int, list[Sequence]] = {}  # by step; sequences that left earlier are skipped
        self._offsets: dict[Sequence, int] = {}  # sequence's cached tokens in step s, minus s
        self._offset = 0  # sum of the offsets

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def context(self) -> int:
        """Number of cached tokens that these sequences read in this step."""
        return self._step * len(self.chunks) + self._offset

    def begin_step(self) -> list[Sequence]:
        """Begin the next step and return the sequences that may not decode in it. ``renew`` or ``remove`` each."""
        self._step += 1
        return [s for s in self._unsure.pop(self._step, ()) if self._unsure_at.get(s) == self._step]

    def add(self, chunk: Chunk) -> bool:
        """Add a sequence that decodes in this step, if it certainly decodes in the next; returns whether it does."""
        sequence, computed = chunk.sequence, chunk.sequence.num_computed
        if not self._is_sure(sequence, self._step + 1, computed + 1):
            return False
        self._offsets[sequence] = computed - self._step
        self._offset += computed - self._step
        self.chunks[sequence] = chunk
        return True

    def renew(self, sequence: Sequence) -> None:
        """Keep a sequence that got another page and has tokens left: it decodes in this step too."""
        self._is_sure(sequence, self._step, sequence.num_computed)

    def _is_sure(self, sequence: Sequence, step: int, computed: int) -> bool:
        # The last step begins with one token less than the limit, and needs a place on a page for that token.
        last = min(len(sequence.pages) * self._page_tokens - 1, sequence.longest - 2)
        if last < computed:
            return False
        until = self._unsure_at[sequence] = step + last - computed + 1
        self._unsure.setdefault(until, []).append(sequence)
        return True

    def remove(self, sequence: Sequence) -> bool:
        """Remove a sequence that stops or may not decode next; returns whether it was in the set."""
        if self.chunks.pop(sequence, None) is None:
            return False
        del self._unsure_at[sequence]
        self._offset -= self._offsets.pop(sequence)
        return True
