"""An admission policy decides whether a request may wait, when it arrives and again while it waits."""

from __future__ import annotations

import math
from typing import Protocol

from lora_engine.errors import RequestError
from lora_engine.scheduling.forecast import Forecast
from lora_engine.scheduling.queue_policies import PolicyContext
from lora_engine.scheduling.registry import Registry
from lora_engine.scheduling.sequence import Sequence

Verdict = RequestError | float  # why the request is refused, or when to judge it again


class AdmissionPolicy(Protocol):
    """A policy that judges requests that have not run yet. It is made from a ``PolicyContext`` and a ``Forecast``."""

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        """Return the refusal, or the time at which to judge the request again (infinity: never)."""


admissions: Registry[AdmissionPolicy] = Registry("admission")


@admissions.register("all")
class AdmitAll:
    """A policy that admits every request. The engine's queue limit and the request's deadline still apply."""

    def __init__(self, context: PolicyContext, forecast: Forecast) -> None:
        """Create a policy that needs neither the context nor the forecast."""

    def judge(self, sequence: Sequence, now: float) -> Verdict:
        return math.inf
