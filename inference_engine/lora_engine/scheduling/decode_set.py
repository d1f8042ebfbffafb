"""Running sequences that do nothing but decode, planned all at once."""

from __future__ import annotations

from .sequence import Chunk, Sequence


class DecodeSet:
    """Sequences that are sure to yield a token in every step, on pages they have, until a step known beforehand.

    So a step over hundreds of them costs the host what changes in it, not something for each.
    """

    def __init__(self, page_tokens: int) -> None:
        self.chunks: dict[Sequence, Chunk] = {}
        self._page_tokens = page_tokens
        self._step = 0
        self._unsure_at: dict[Sequence, int] = {}
        self._unsure: dict[int, list[Sequence]] = {}  # by step; those that left earlier are skipped
        self._offsets: dict[Sequence, int] = {}  # cached tokens in step s: s + offset
        self._offset = 0  # of all together

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def context(self) -> int:
        """Cached tokens that they read in this step."""
        return self._step * len(self.chunks) + self._offset

    def begin_step(self) -> list[Sequence]:
        """The next step begins. Those that are not sure to decode in it: ``renew`` or ``remove`` each."""
        self._step += 1
        return [s for s in self._unsure.pop(self._step, ()) if self._unsure_at.get(s) == self._step]

    def add(self, chunk: Chunk) -> bool:
        """A sequence that decodes in this step, if it is sure to decode in the next. Whether it is."""
        sequence, computed = chunk.sequence, chunk.sequence.num_computed
        if not self._is_sure(sequence, self._step + 1, computed + 1):
            return False
        self._offsets[sequence] = computed - self._step
        self._offset += computed - self._step
        self.chunks[sequence] = chunk
        return True

    def renew(self, sequence: Sequence) -> None:
        """It has one page more, and tokens to go: it decodes in this step too."""
        self._is_sure(sequence, self._step, sequence.num_computed)

    def _is_sure(self, sequence: Sequence, step: int, computed: int) -> bool:
        # In its last step it has one token less than it may come to, and that token's place on a page.
        last = min(len(sequence.pages) * self._page_tokens - 1, sequence.longest - 2)
        if last < computed:
            return False
        until = self._unsure_at[sequence] = step + last - computed + 1
        self._unsure.setdefault(until, []).append(sequence)
        return True

    def remove(self, sequence: Sequence) -> bool:
        """It stops, or what it does next is not sure. Whether it was here."""
        if self.chunks.pop(sequence, None) is None:
            return False
        del self._unsure_at[sequence]
        self._offset -= self._offsets.pop(sequence)
        return True
