"""The admission controller applies the admission policy to a request when it arrives, and again while it waits."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from lora_engine.errors import RequestError

from .admissions import AdmissionPolicy
from .forecast import Forecast
from .sequence import Sequence, State

# Maximum number of rechecks in one step; the others follow in the next step.
_MAX_RECHECKS = 8


class AdmissionController:
    """A heap of the times at which waiting requests are judged again. A request that ran once, on any host, is not
    refused.
    """

    def __init__(self, policy: AdmissionPolicy, forecast: Forecast, clock: Callable[[], float]) -> None:
        self.refused = 0
        self._policy = policy
        self._forecast = forecast
        self._clock = clock
        self._next: list[tuple[float, int, Sequence]] = []

    def admit(self, sequence: Sequence) -> None:
        """Judge a request by its first sequence before it is queued. Raises ``RequestError``."""
        now, request_state = self._clock(), sequence.request_state
        if request_state.request.so_far:
            return
        if self._forecast.cost.calibrated:
            waited = now - request_state.submitted
            request_state.predicted_first_token = waited + self._forecast.seconds_to_first_token(sequence)
        if refusal := self._judge(sequence, now):
            raise refusal

    def recheck(self) -> list[tuple[Sequence, RequestError]]:
        """Return waiting requests that are refused now."""
        now, refused = self._clock(), []
        for _ in range(_MAX_RECHECKS):
            if not self._next or self._next[0][0] > now:
                break
            _, _, sequence = heapq.heappop(self._next)
            if sequence.state is not State.WAITING or sequence.request_state.first_scheduled is not None:
                continue
            if refusal := self._judge(sequence, now):
                refused.append((sequence, refusal))
        return refused

    def _judge(self, sequence: Sequence, now: float) -> RequestError | None:
        deadline = sequence.request_state.deadline
        verdict = self._policy.judge(sequence, now) if now < deadline else _too_late(sequence)
        if isinstance(verdict, RequestError):
            self.refused += 1
            return verdict
        again = min(verdict, deadline)
        if again < math.inf:
            heapq.heappush(self._next, (again, sequence.arrival, sequence))
        return None


def _too_late(sequence: Sequence) -> RequestError:
    return RequestError(
        "deadline_exceeded",
        f"The request still waited when its deadline of {sequence.request.slo.deadline_ms / 1000:g} s passed.",
        "Allow more time, or try again when there is less traffic.",
        param="slo.deadline_ms",
        retry_after_ms=1000,
    )
