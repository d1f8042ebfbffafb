"""What an admission policy is: whether a request may wait, asked when it comes and again while it waits."""

from __future__ import annotations

import math
from typing import Protocol

from lora_engine.request import RequestError
from lora_engine.scheduling.forecast import Forecast
from lora_engine.scheduling.queue_policies import PolicyContext
from lora_engine.scheduling.registry import Registry
from lora_engine.scheduling.sequence import Sequence

Verdict = RequestError | float  # why it is refused, or when to ask again


class AdmissionPolicy(Protocol):
    """Judges requests that have not run yet. Policies are made from a ``PolicyContext`` and a ``Forecast``."""

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        """Refuse the request, or say when to judge it again (infinity: never)."""


admissions: Registry[AdmissionPolicy] = Registry("admission")


@admissions.register("all")
class AdmitAll:
    """Every request may wait (the engine's queue limit and the request's own deadline still hold)."""

    def __init__(self, context: PolicyContext, forecast: Forecast) -> None:
        """Nothing to know."""

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        return math.inf
