"""How much of a step prompts may take, so that running sequences keep their tenants' time between tokens.

Every sequence that decodes gets its token when the step ends, so the time between tokens is the time of a step. While a
sequence with an objective runs, prompts get what the calibrated step cost leaves of the objective, and no sequence
enters that would make the steps after its prompt too long. Prompts always get a floor, so that nobody starves; an
objective that its own sequences and that floor would break is not kept, so that it costs nobody anything.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from .sequence import Sequence
from .step_cost import StepCost, Work

HEADROOM = 0.85  # of an objective: the rest is for what the prediction is off by
CHUNK = 64  # a part of a prompt is a multiple of so many tokens: a tile of the attention kernels


@dataclass(frozen=True, slots=True)
class PaceReport:
    """The objective that is kept now, in seconds (0: none), and how many steps held prompts back for one so far."""

    objective_s: float = 0.0
    held_steps: int = 0


class Pace:
    """Asked once in each step for its allowance, then for each prompt and each sequence that would enter."""

    def __init__(self, cost: StepCost, step_tokens: int, floor: float) -> None:
        """``floor``: share of a step's tokens that prompts always get; 1 turns this off."""
        self.held_steps = 0
        self._cost = cost
        self._off = floor >= 1
        self._floor_tokens = max(CHUNK, int(step_tokens * floor))
        self._objective_of: dict[Sequence, float] = {}
        self._running_with: Counter[float] = Counter()
        self._objective = math.inf  # seconds; that of this step
        self._left = math.inf  # seconds of this step that prompts may still take
        self._floor_left = 0
        self._places = math.inf
        self._held = False

    @property
    def report(self) -> PaceReport:
        return PaceReport(self._objective if self._objective < math.inf else 0.0, self.held_steps)

    # Which sequences count.

    def decodes(self, sequence: Sequence) -> None:
        """From the next step on the sequence gets a token in each: its objective counts."""
        milliseconds = sequence.request.slo.inter_token_ms
        if milliseconds and not self._off and sequence not in self._objective_of:
            self._objective_of[sequence] = milliseconds / 1000
            self._running_with[milliseconds / 1000] += 1

    def left(self, sequence: Sequence) -> None:
        objective = self._objective_of.pop(sequence, None)
        if objective is not None:
            self._running_with[objective] -= 1
            if not self._running_with[objective]:
                del self._running_with[objective]

    # A step.

    def begin_step(self, decoding: Work) -> None:
        """``decoding``: what the step does for sequences that decode."""
        self.held_steps += self._held
        self._held = False
        self._objective = self._attainable(decoding)
        limit = HEADROOM * self._objective
        self._left, self._places = math.inf, math.inf
        if limit < math.inf:
            self._left = limit - self._cost.seconds(decoding)
            self._floor_left = self._floor_tokens
            self._places = self._cost.sequences_within(limit, _context_each(decoding))

    def chunk(self, tokens: int) -> int:
        """How many of a prompt's next ``tokens`` may be in this step."""
        if self._left == math.inf:
            return tokens
        allowed = self._allowed()
        if allowed < tokens:
            self._held = True
            tokens = allowed // CHUNK * CHUNK
        self._left -= tokens * self._cost.prompt_token
        self._floor_left -= tokens
        return tokens

    def may_enter(self, running: int) -> bool:
        """Whether another sequence may begin its prompt in this step, beside ``running`` ones."""
        if self._left == math.inf or (running < self._places and self._allowed() >= CHUNK):
            return True
        self._held = True
        return False

    # Forecasts.

    def prompt_tokens(self, decoding: Work, most: float) -> float:
        """Of at most ``most`` prompt tokens, those that a step beside ``decoding`` would be given."""
        objective = self._attainable(decoding)
        if objective == math.inf:
            return most
        seconds = HEADROOM * objective - self._cost.seconds(decoding)
        return min(most, max(seconds / max(self._cost.prompt_token, 1e-9), self._floor_tokens))

    def _allowed(self) -> int:
        return max(int(self._left / max(self._cost.prompt_token, 1e-9)), self._floor_left, 0)

    def _attainable(self, decoding: Work) -> float:
        """The shortest objective that its own sequences beside the floor would keep; infinite without one."""
        each = _context_each(decoding)
        for objective in sorted(self._running_with):
            count = self._running_with[objective]
            if self._cost.seconds(Work(count, self._floor_tokens, count * each)) <= HEADROOM * objective:
                return objective
        return math.inf


def _context_each(decoding: Work) -> float:
    return decoding.context_tokens / decoding.decoding if decoding.decoding else 0.0
