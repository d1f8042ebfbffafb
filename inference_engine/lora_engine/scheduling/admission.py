"""Admission policies: whether a request may join the queue at all."""

from __future__ import annotations

from typing import Protocol

from lora_engine.request import RequestError

from .registry import Registry
from .sequence import RequestState


class Admission(Protocol):
    """Judges a request on arrival."""

    def refusal(self, request: RequestState, waiting: int) -> RequestError | None:
        """Why the request is refused now, or None to admit it. ``waiting`` sequences are queued."""


admissions: Registry[Admission] = Registry("admission")


@admissions.register("all")
class AdmitAll:
    """Every request may queue (the engine's queue limit still holds)."""

    def refusal(self, request: RequestState, waiting: int) -> RequestError | None:
        return None
