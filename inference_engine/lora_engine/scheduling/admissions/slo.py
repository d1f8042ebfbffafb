"""The SLO policy refuses at once requests whose first token is predicted too late."""

from __future__ import annotations

import math

from lora_engine.errors import RequestError
from lora_engine.scheduling.forecast import Forecast
from lora_engine.scheduling.queue_policies import PolicyContext
from lora_engine.scheduling.sequence import Sequence

from .base import Verdict, admissions

_SOONEST_S = 0.1  # seconds at least between two judgements of a request
# Seconds until the next judgement while step times are unknown.
_UNCALIBRATED_S = 1.0
_RECHECK_AFTER = 0.5  # share of the time left at which a request is judged again
_ENTRY = 0.82  # share of its target that a request may be predicted to need on arrival
_MIN_RETRY_MS = 100


@admissions.register("slo")
class SloAdmission:
    """A policy that refuses a request whose first token is predicted after its target. Without one it never refuses."""

    def __init__(self, context: PolicyContext, forecast: Forecast) -> None:
        self._forecast = forecast

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        target_ms = sequence.request.slo.first_token_ms
        if not target_ms or not self._forecast.cost.calibrated:
            return math.inf if not target_ms else now + _UNCALIBRATED_S
        # On arrival, keep a margin for errors of the prediction: a later refusal costs the request its wait.
        fraction = 1.0 if sequence in self._forecast else _ENTRY
        late_s = self._from_submission(sequence, now) - fraction * target_ms / 1000
        if late_s > 0:
            return self._refusal(target_ms, late_s)
        return now + max(_SOONEST_S, -_RECHECK_AFTER * late_s)

    def _from_submission(self, sequence: Sequence, now: float) -> float:
        request_state = sequence.request_state
        if request_state.predicted_first_token is not None and sequence not in self._forecast:
            return request_state.predicted_first_token  # the request arrives, and this was just predicted
        return now - request_state.submitted + self._forecast.seconds_to_first_token(sequence)

    @staticmethod
    def _refusal(target_ms: int, late_s: float) -> RequestError:
        return RequestError(
            "slo_unattainable",
            f"The first token would come about {late_s:.1f} s after the target of {target_ms / 1000:g} s.",
            "Try again when there is less traffic, or allow more time.",
            param="slo.first_token_ms",
            retry_after_ms=max(_MIN_RETRY_MS, round(late_s * 1000)),
        )
