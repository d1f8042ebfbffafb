"""A drafter without a model: it looks up a sequence's last tokens in the sequence itself (prompt lookup decoding).

Answers often repeat their prompt or themselves: code that is edited, documents that are quoted, records with the same
keys. The tokens that followed the last tokens' latest earlier occurrence are then a good guess.
"""

from __future__ import annotations

from collections.abc import Sequence as Sequences

from .sequence import Sequence

# Tokens of the longest and of the shortest suffix that is looked up.
_LONGEST, _SHORTEST = 4, 2
# Earlier occurrences of the shortest suffix among which the longest match is chosen.
_TRIED = 8
# Tokens that one call adds to an index at most: a long prompt must not delay a step. 512 take about 0.2 ms.
_AT_ONCE = 512
# Tokens that an index has at most, about 1 MB; it then begins anew with the last half of them.
_MOST_TOKENS = 16_384


class SuffixLookup:
    """A drafter that proposes what followed the last tokens where they occurred before."""

    is_free = True

    def __init__(self) -> None:
        self._indices: dict[Sequence, _Index] = {}

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        """Return up to ``most`` tokens for each; none if its last tokens are new, or its index is not complete yet."""
        return [self._lookup(sequence, number) for sequence, number in zip(sequences, most, strict=True)]

    def _lookup(self, sequence: Sequence, most: int) -> list[int]:
        index = self._indices.get(sequence)
        if index is None:
            index = self._indices[sequence] = _Index()
        tokens, known = sequence.token_ids, len(sequence.token_ids) - sequence.pending
        return index.continuation(tokens, known, most) if index.extend(tokens, known) else []

    def forget(self, sequence: Sequence) -> None:
        self._indices.pop(sequence, None)


class _Index:
    """The positions at which each pair of adjacent tokens occurs: the latest, and from each the one before."""

    def __init__(self) -> None:
        self._start = self._stop = 0  # range of the token positions in the index
        self._latest: dict[tuple[int, int], int] = {}  # position after the pair
        self._before: list[int] = []  # by position - start: the position after the pair's occurrence before, or 0

    def extend(self, tokens: list[int], known: int) -> bool:
        """Add tokens up to ``known``, a limited number of them; returns whether all are in the index."""
        if self._stop - self._start >= _MOST_TOKENS or not self._stop:
            self._start = self._stop = max(0, known - _MOST_TOKENS // 2)
            self._latest.clear()
            self._before = []
        until = min(known, self._stop + _AT_ONCE)
        for position in range(self._stop, until):  # the pair before the last position has no continuation yet
            pair = (tokens[position - 2], tokens[position - 1]) if position - self._start >= _SHORTEST else None
            self._before.append(0 if pair is None else self._latest.get(pair, 0))
            if pair is not None:
                self._latest[pair] = position
        self._stop = until
        return until == known

    def continuation(self, tokens: list[int], known: int, most: int) -> list[int]:
        """Return what followed the longest match, repeated if it reaches the end: then the tokens are periodic."""
        if known - self._start < _SHORTEST:
            return []
        position, longest, best = self._latest.get((tokens[known - 2], tokens[known - 1]), 0), 0, 0
        for _ in range(_TRIED):
            if not position:
                break
            length = _SHORTEST
            while (
                length < _LONGEST
                and position - length > self._start
                and tokens[position - length - 1] == tokens[known - length - 1]
            ):
                length += 1
            if length > longest:
                longest, best = length, position
            if length == _LONGEST:
                break
            position = self._before[position - self._start]
        if not best:
            return []
        period = known - best
        return [tokens[best + ahead % period] for ahead in range(most)]
