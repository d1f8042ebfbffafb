"""Admit what can have its first token in time, as far as can be told; refuse the rest at once."""

from __future__ import annotations

import math

from lora_engine.request import RequestError
from lora_engine.scheduling.forecast import Forecast
from lora_engine.scheduling.queue_policies import PolicyContext
from lora_engine.scheduling.sequence import Sequence

from .base import Verdict, admissions

_SOONEST_S = 0.1  # between two judgements of a request
_UNCALIBRATED_S = 1.0
_RECHECK_AFTER = 0.5  # of the time that is left, until the next judgement
_ENTRY = 0.82  # of its target is what a request must be predicted to need on arrival
_SHORTEST_RETRY_MS = 100


@admissions.register("slo")
class SloAdmission:
    """Refuses a request whose first token is predicted after its target. Without a target it is never refused."""

    def __init__(self, context: PolicyContext, forecast: Forecast) -> None:
        self._forecast = forecast

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        target_ms = sequence.request.slo.first_token_ms
        if not target_ms or not self._forecast.cost.calibrated:
            return math.inf if not target_ms else now + _UNCALIBRATED_S
        # On arrival some margin is kept for errors of the prediction: a refusal later has cost the request its wait.
        fraction = 1.0 if sequence in self._forecast else _ENTRY
        late_s = self._from_submission(sequence, now) - fraction * target_ms / 1000
        if late_s > 0:
            return self._refusal(target_ms, late_s)
        return now + max(_SOONEST_S, -_RECHECK_AFTER * late_s)

    def _from_submission(self, sequence: Sequence, now: float) -> float:
        state = sequence.parent
        if state.predicted_first_token is not None and sequence not in self._forecast:
            return state.predicted_first_token  # it arrives, and was just predicted
        return now - state.timeline.submitted + self._forecast.seconds_to_first_token(sequence)

    @staticmethod
    def _refusal(target_ms: int, late_s: float) -> RequestError:
        return RequestError(
            "slo_unattainable",
            f"The first token would come about {late_s:.1f} s after the target of {target_ms / 1000:g} s.",
            "Try again when there is less traffic, or allow more time.",
            param="slo.first_token_ms",
            retry_after_ms=max(_SHORTEST_RETRY_MS, round(late_s * 1000)),
        )
