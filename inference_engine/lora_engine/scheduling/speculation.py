"""Speculation: a step also computes guessed next tokens of a sequence, and keeps those that it samples itself.

A drafter guesses ("drafts") the tokens that follow a decoding sequence. The step has a row for the last token and for
each draft, and samples at all of them as if the drafts were the output. Sampling is a pure function of seed, position
and logits (ADR 0004), so a row samples exactly what a later step would have sampled, if the drafts before it are right.
Drafts are accepted up to the first that differs from the sampled token; that token is kept, too. So the output is the
same with any drafter, for every adapter, and drafts only cost rows.

A step with drafts takes longer, also for the sequences that have none. So there are drafts only while the tokens that
they are expected to give outweigh what all running sequences lose.

How many tokens are drafted follows the share of accepted drafts. While nothing is drafted for a sequence, what would
have been drafted is compared with the tokens that come, if a guess costs no device time. A draft head's costs some: a
sequence whose drafts are not worth it has none until its end, and its adapter's next one begins with a few.

The guess for an answer with a grammar ends before the first token that the grammar refuses. Where the grammar leaves no
choice, its tokens are the guess, unless the drafter guesses the same and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field
from typing import Protocol

from lora_engine.config import EngineConfig

from .sequence import Sequence
from .suffix_lookup import SuffixLookup

# Share of accepted drafts that an adapter's first sequence begins with.
_FIRST_RATE = 0.5
# Weight of the newest draft in a sequence's share of accepted drafts, and in its adapter's.
_NEW, _NEW_OF_ADAPTER = 0.2, 0.02
# Chance of a draft to be accepted below which its row is not worth its time.
_LEAST_CHANCE = 0.3
# Least share that a sequence begins with where guesses cost device time: it is at once below the chance that is worth a
# row after two wrong drafts, so that an adapter whose drafts were bad is tried again with each sequence, and briefly.
_TRIAL_RATE = 0.45
# Share of its time that a step with drafts takes longer, as all running sequences notice: it has more rows, and the
# device waits while the host plans it from the tokens of the last step. Measured with 16 sequences, two drafts each
# (benchmarks/speculation.py): by drafts that cost nothing, and by those of a head.
_ROWS_COST, _HEAD_COST = 0.15, 0.3
# Maximum number of adapters whose share is kept, those that used it last.
_MOST_ADAPTERS = 4096


class Drafter(Protocol):
    """A source of guesses."""

    is_free: bool  # a guess costs no device time

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        """Return up to ``most`` tokens that may follow the known tokens of each of these running sequences.

        Negative numbers refer to tokens on the device (``DeviceDrafts``), for sequences without a grammar.
        """

    def forget(self, sequence: Sequence) -> None:
        """Release what is kept for a sequence that stopped running; unknown ones are ignored."""


@dataclass(slots=True)
class _State:
    """The state of a running sequence: its share of accepted drafts, and a guess after its first ``known`` tokens.

    A grammar forces the first ``forced`` tokens of the guess; they say nothing about the drafter.
    """

    rate: float
    guess: list[int] = field(default_factory=list)
    known: int = 0
    forced: int = 0


class Speculation:
    """The policy that decides how many tokens are drafted for each sequence.

    Nothing is drafted in a step with more than ``max_running`` running sequences: its rows are worth more than those
    of guesses.
    """

    def __init__(self, drafter: Drafter, most: int, max_running: int) -> None:
        """Create the policy; ``most``: drafts of a sequence in a step."""
        self._drafter = drafter
        self._most = most
        self._max_running = max_running
        self._states: dict[Sequence, _State] = {}
        self._promising: dict[Sequence, None] = {}  # those with a guess that is worth its rows
        self._rates: dict[str, float] = {}  # by adapter
        self._gain = 0.0  # tokens that the next step is expected to give by drafts
        self._follows = True  # a head's guesses are worth their time

    @property
    def is_free(self) -> bool:
        """True if a guess costs no device time."""
        return self._drafter.is_free

    def may_draft(self, running: int) -> bool:
        """Return whether sequences may have drafts beside so many running ones."""
        return running <= self._max_running

    def waits(self, running: int) -> bool:
        """Return whether the next step may have drafts, so that it needs the tokens of the last one."""
        return bool(self._promising) and self.may_draft(running) and self._is_worth_waiting(running)

    def is_promising(self, sequence: Sequence) -> bool:
        """Return whether a sequence has a guess that is worth its rows."""
        return sequence in self._promising

    def candidates(self, running: int) -> Iterator[tuple[Sequence, list[int]]]:
        """Yield the sequences that are worth drafts in the next step, with these; the last tokens must be known."""
        if not self.may_draft(running) or not self._is_worth_waiting(running):
            return
        for sequence in self._promising:
            state = self._states[sequence]
            if state.known == len(sequence.token_ids) and not sequence.pending:
                yield sequence, self._offer(state)

    def wants(self, sequence: Sequence) -> bool:
        """Return whether guesses may be made for a sequence after its next tokens: what a draft head reads is kept."""
        if sequence.request.prompt_only:
            return False
        state = self._states.get(sequence)
        return self._drafter.is_free or (self._follows and (state is None or self._depth(state.rate) > 0))

    def committed(self, sampled: Mapping[Sequence, int], drafted: Mapping[Sequence, int], running: int = 1) -> None:
        """Take in the tokens that sequences kept of a step, of ``running`` ones: how many, and of how many drafts."""
        guessed, depths = list[Sequence](), list[int]()
        for sequence, tokens in sampled.items():
            if sequence.request.prompt_only:
                continue
            state = self._update(sequence, tokens, drafted.get(sequence, 0))
            state.guess, state.known = _forced(sequence, self._most), len(sequence.token_ids) - sequence.pending
            state.forced = len(state.guess)
            self._promising.pop(sequence, None)
            if state.forced:
                self._promising[sequence] = None
            depth = self._most if self._drafter.is_free else self._depth(state.rate, state.forced)
            if depth > state.forced:
                guessed.append(sequence)
                depths.append(depth)
        if not self._drafter.is_free:
            self._gain = sum(
                self._gain_of(state, self._depth(state.rate, state.forced)) for state in self._states.values()
            )
            self._follows = self._is_worth_waiting(running)
        if guessed and self._follows:
            self._propose(guessed, depths)
        if self._drafter.is_free:
            promising = (self._states[sequence] for sequence in self._promising)
            self._gain = sum(self._gain_of(state, len(self._offer(state))) for state in promising)

    def _propose(self, guessed: list[Sequence], depths: list[int]) -> None:
        for sequence, guess in zip(guessed, self._drafter.propose(guessed, depths), strict=True):
            state = self._states[sequence]
            if guess[: state.forced] == state.guess:
                state.guess = _allowed(sequence, guess)
            if state.guess and self._depth(state.rate, state.forced):
                self._promising[sequence] = None

    def _offer(self, state: _State) -> list[int]:
        """Return the drafts of a guess that are worth their rows."""
        return state.guess[: self._depth(state.rate, state.forced)]

    @staticmethod
    def _gain_of(state: _State, drafts: int) -> float:
        """Return how many of a sequence's drafts are expected to be accepted."""
        forced = min(state.forced, drafts)
        return forced + sum(state.rate**number for number in range(1, drafts - forced + 1))

    def _is_worth_waiting(self, running: int) -> bool:
        """Return whether the expected tokens outweigh the time that drafts take from all running sequences."""
        return self._gain >= (_ROWS_COST if self._drafter.is_free else _HEAD_COST) * running

    def _update(self, sequence: Sequence, tokens: int, drafted: int) -> _State:
        """Compare a sequence's last ``tokens`` known tokens with its drafts, or with the guess that was not drafted."""
        state = self._states.get(sequence)
        if state is None:
            state = self._states[sequence] = _State(self._first_rate(sequence.request.adapter_digest))
        known = len(sequence.token_ids) - sequence.pending
        if drafted:
            outcomes = [1.0] * (tokens - 1) + [0.0] * (tokens <= drafted)
            self._judge(sequence, state, outcomes[state.forced :])
        elif state.guess and state.guess[0] >= 0 and not state.forced and state.known == known - tokens:
            self._judge(sequence, state, [float(state.guess[0] == sequence.token_ids[state.known])])
        return state

    def _first_rate(self, digest: str) -> float:
        rate = self._rates.get(digest, _FIRST_RATE)
        return rate if self._drafter.is_free else max(rate, _TRIAL_RATE)

    def left(self, sequence: Sequence) -> None:
        """Forget a sequence that stopped running."""
        self._states.pop(sequence, None)
        self._promising.pop(sequence, None)
        self._drafter.forget(sequence)  # a head has read its prompt before there is a state

    def _judge(self, sequence: Sequence, state: _State, outcomes: Sequences[float]) -> None:
        """Update the shares of accepted drafts; ``outcomes``: 1 for an accepted draft, 0 for the first rejected one.

        Drafts after a rejected one say nothing.
        """
        digest = sequence.request.adapter_digest
        of_adapter = self._rates.pop(digest, _FIRST_RATE)
        for outcome in outcomes:
            state.rate += _NEW * (outcome - state.rate)
            of_adapter += _NEW_OF_ADAPTER * (outcome - of_adapter)
        self._rates[digest] = of_adapter
        if len(self._rates) > _MOST_ADAPTERS:
            del self._rates[next(iter(self._rates))]

    def _depth(self, rate: float, forced: int = 0) -> int:
        """Return how many drafts are each accepted with a chance that is worth a row; ``forced`` ones are certain."""
        depth, chance = min(forced, self._most), rate
        while depth < self._most and chance >= _LEAST_CHANCE:
            depth, chance = depth + 1, chance * rate
        return depth


def _forced(sequence: Sequence, most: int) -> list[int]:
    """Return up to ``most`` next tokens that a grammar leaves no choice about."""
    ahead = None if sequence.masks is None else sequence.masks.lookahead
    return [] if ahead is None else ahead.forced(most)


def _allowed(sequence: Sequence, guess: list[int]) -> list[int]:
    """Return a guess up to the first token that the sequence's grammar refuses, if it has one."""
    if sequence.masks is None:
        return guess
    ahead = sequence.masks.lookahead
    return [] if ahead is None else ahead.allowed(guess)


def speculation_of(config: EngineConfig, head: Drafter | None = None) -> Speculation | None:
    """Return the policy that the settings choose; ``head`` is the drafter of a draft head, if one is loaded."""
    if config.speculation == "off":
        return None
    drafter = SuffixLookup() if head is None else head
    return Speculation(drafter, config.speculation_tokens, config.drafting_sequences)
