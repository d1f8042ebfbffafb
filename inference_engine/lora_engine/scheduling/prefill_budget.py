"""The prefill budget limits a step's prompt tokens, so that running sequences keep their time between tokens.

Every decoding sequence gets its token when the step ends, so the time between tokens is the time of a step. While a
sequence with an objective decodes, prefill gets what the calibrated step cost leaves of that objective, and no sequence
is started that would make the steps after its prefill too long. (Sarathi-Serve, OSDI 2024, derives its chunk size from
such an objective too, but only once.) Prefill always gets a floor, so that no prompt starves. An objective that cannot
be met even by its sequences and the floor alone is not enforced: it must not cost the others anything.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from .sequence import Sequence
from .step_cost import StepCost, Work

HEADROOM = 0.85  # share of an objective that is planned for; the rest is for errors of the prediction
# An objective is enforced when a step of its sequences and the floor is predicted to take TAKE_UP of it, until that is
# GIVE_UP. Predictions for a batch unlike the current one are rough, so an objective within TRY is enforced at first and
# periodically: the steps of the trial measure such a batch.
TAKE_UP, GIVE_UP, TRY = 0.9, 1.1, 1.3
TRIAL_STEPS, TRIAL_EVERY = 64, 1000
PREFILL_TILE = 64  # tokens of an attention kernel's tile; a shortened prefill chunk is a multiple of it


@dataclass(frozen=True, slots=True)
class PrefillBudgetReport:
    """The objective between tokens that is enforced, in milliseconds (0: none), and the steps whose prefill it cut."""

    objective_ms: float = 0.0
    limited_steps: int = 0


class PrefillBudget:
    """The prompt tokens that a step may have, taken by each prefill chunk and each new sequence."""

    def __init__(self, cost: StepCost, step_tokens: int, floor: float) -> None:
        """Create the budget. ``floor``: share of a step's tokens that prefill always gets; 1 enforces no objective."""
        self._cost = cost
        self._enforced = floor < 1
        self._floor_tokens = max(PREFILL_TILE, _whole_tiles(step_tokens * floor))
        self._objective_of: dict[Sequence, float] = {}
        self._decoding_with: Counter[float] = Counter()  # decoding sequences by their objective in seconds
        # State of the current step:
        self._objective = math.inf
        self._seconds_left = math.inf
        self._floor_left = 0
        self._max_sequences = math.inf
        self._limited = False
        self._limited_steps = 0
        self._steps = 0  # calibrated steps in which a decoding sequence had an objective

    @property
    def report(self) -> PrefillBudgetReport:
        enforced = self._objective_of and self._objective < math.inf
        return PrefillBudgetReport(self._objective * 1000 if enforced else 0.0, self._limited_steps)

    # The objectives in effect.

    def decodes(self, sequence: Sequence) -> None:
        """Count a sequence's objective from the next step on: it samples its first token in this one."""
        objective = sequence.request.slo.inter_token_ms / 1000
        if objective and self._enforced and sequence not in self._objective_of:
            self._objective_of[sequence] = objective
            self._decoding_with[objective] += 1

    def left(self, sequence: Sequence) -> None:
        objective = self._objective_of.pop(sequence, None)
        if objective is not None:
            self._decoding_with[objective] -= 1
            if not self._decoding_with[objective]:
                del self._decoding_with[objective]

    # A step.

    def begin_step(self, decoding: Work) -> None:
        """Begin a step. ``decoding`` is its work for decoding sequences."""
        self._limited = False
        self._steps += bool(self._decoding_with) and self._cost.calibrated
        self._objective = self._attainable_objective(decoding)
        limit = HEADROOM * self._objective
        self._seconds_left, self._max_sequences = math.inf, math.inf
        if limit < math.inf:
            self._seconds_left = limit - self._cost.seconds(decoding)
            self._floor_left = self._floor_tokens
            self._max_sequences = self._cost.sequences_within(limit, _context_each(decoding))

    def take(self, tokens: int) -> int:
        """Take up to ``tokens`` of a prompt from the budget and return how many the chunk gets."""
        if self._seconds_left == math.inf:
            return tokens
        allowed = self._tokens_left()
        if allowed < tokens:
            self._limit()
            tokens = _whole_tiles(allowed)
        self._seconds_left -= tokens * self._cost.prompt_token
        self._floor_left -= tokens
        return tokens

    def may_start(self, running: int) -> bool:
        """Return whether another sequence may begin its prefill in this step, beside ``running`` ones."""
        if running < self._max_sequences and self._tokens_left() >= PREFILL_TILE:
            return True
        self._limit()
        return False

    @property
    def enforces(self) -> bool:
        """True if an objective was enforced in the last step."""
        return self._objective < math.inf

    # Forecasts.

    def expected_tokens(self, decoding: Work, most: float) -> float:
        """Predict how many prompt tokens, at most ``most``, a step beside ``decoding`` gets."""
        objective = self._attainable_objective(decoding)
        if objective == math.inf:
            return most
        seconds = HEADROOM * objective - self._cost.seconds(decoding)
        return min(most, max(_whole_tiles(self._tokens_in(seconds)), self._floor_tokens))

    def _limit(self) -> None:
        self._limited_steps += not self._limited
        self._limited = True

    def _tokens_left(self) -> float:
        return max(self._tokens_in(self._seconds_left), self._floor_left, 0)

    def _tokens_in(self, seconds: float) -> float:
        return math.inf if seconds == math.inf else seconds // max(self._cost.prompt_token, 1e-9)

    def _attainable_objective(self, decoding: Work) -> float:
        """Return the shortest objective that its sequences and the floor would meet; infinity without one."""
        if not self._cost.calibrated:
            return math.inf
        each = _context_each(decoding)
        trial = self._steps % TRIAL_EVERY < TRIAL_STEPS
        for objective in sorted(self._decoding_with):
            # Sequences with a shorter, unattainable objective still decode beside it.
            count = sum(n for other, n in self._decoding_with.items() if other <= objective)
            share = TRY if trial else GIVE_UP if objective == self._objective else TAKE_UP
            if self._cost.seconds(Work(count, self._floor_tokens, count * each)) <= share * objective:
                return objective
        return math.inf


def _whole_tiles(tokens: float) -> int:
    return int(tokens) // PREFILL_TILE * PREFILL_TILE


def _context_each(decoding: Work) -> float:
    return decoding.context_tokens / decoding.decoding if decoding.decoding else 0.0
