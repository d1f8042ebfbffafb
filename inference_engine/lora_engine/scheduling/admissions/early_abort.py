"""S-LoRA's early abort (appendix B) refuses requests that have waited until their first token would be too late."""

from __future__ import annotations

from lora_engine.errors import RequestError
from lora_engine.scheduling.forecast import Forecast
from lora_engine.scheduling.queue_policies import PolicyContext
from lora_engine.scheduling.sequence import Sequence

from .base import Verdict, admissions

_PREFILL_S = 0.5  # seconds from admission to the first token, as in the paper's code


@admissions.register("early_abort")
class EarlyAbort:
    """A policy that refuses a request half a second before its first-token target, whatever the queue."""

    def __init__(self, context: PolicyContext, forecast: Forecast) -> None:
        self._default_s = context.config.early_abort_s

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        target = sequence.request.slo.first_token_ms / 1000 or self._default_s
        last_call = sequence.request_state.submitted + target - _PREFILL_S
        if now < last_call:
            return last_call
        return RequestError(
            "slo_unattainable",
            f"The request waited {now - sequence.request_state.submitted:.1f} s; "
            f"its first token was wanted after {target:g} s.",
            "Try again when there is less traffic, or allow more time.",
            retry_after_ms=1000,
        )
