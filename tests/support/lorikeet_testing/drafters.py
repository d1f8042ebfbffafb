"""Drafters with a known share of right guesses, and a policy that always drafts."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Sequences

from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.scheduling.sequence import Sequence
from lora_engine.scheduling.speculation import Speculation


class AlwaysDrafts(Speculation):
    """A policy that drafts however few guesses are right."""

    def _depth(self, rate: float, forced: int = 0) -> int:
        return self._most

    def _is_worth_waiting(self, running: int) -> bool:
        return True


def tokens_of(drafter: HeadDrafter, guess: list[int]) -> list[int]:
    """Return a head's guess with the tokens that it left on the device."""
    on_device = drafter._device_drafts()
    return guess if on_device is None else [int(on_device.on_host[-1 - one]) if one < 0 else one for one in guess]


def following(answer: Callable[[Sequence], list[int]], rnd: random.Random) -> Callable[[Sequence, list[int]], int]:
    """Return the function that knows a sequence's answer: the token after ``known`` ones, beyond the answer any."""

    def next_token(sequence: Sequence, known: list[int]) -> int:
        at, tokens = len(known) - sequence.num_prompt, answer(sequence)
        return tokens[at] if at < len(tokens) else rnd.randrange(2, 200)

    return next_token


class RandomDrafter:
    """A drafter that knows the token after some tokens of a sequence, and guesses right with a given chance.

    It guesses a random number of tokens. After a wrong one the others are wrong too, as a rule.
    """

    def __init__(self, rnd: random.Random, next_token: Callable[[Sequence, list[int]], int], right: float) -> None:
        self._rnd, self._next_token, self._right = rnd, next_token, right

    is_free = True

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        return [self._guess(sequence, number) for sequence, number in zip(sequences, most, strict=True)]

    def _guess(self, sequence: Sequence, most: int) -> list[int]:
        known = sequence.token_ids[: len(sequence.token_ids) - sequence.pending]
        count = len(known)
        for _ in range(self._rnd.randint(1, most)):
            token = self._next_token(sequence, known)
            known.append(token if self._rnd.random() < self._right else token ^ 1)
        return known[count:]

    def forget(self, sequence: Sequence) -> None:
        """Do nothing: nothing is kept."""
