"""Requests to an engine that come together, or late and among pre-emptions."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, RequestUsage, TokenDelta


def run_requests(
    engine: Engine, requests: Sequence[GenerationRequest], late: random.Random | None = None
) -> tuple[list[TokenDelta], dict[str, RequestUsage]]:
    """Run all requests, and return their output in order and their usage. The pool is checked after each step.

    ``late``: they come one by one, and some running ones are pre-empted.
    """
    deltas, usages, waiting = list[TokenDelta](), dict[str, RequestUsage](), list(requests)
    while waiting or engine.has_work():
        for request in waiting[: len(waiting) if late is None else late.randint(0, 2)]:
            engine.add_request(request)
            waiting.remove(request)
        running = [*engine.core.scheduler.running]
        if late is not None and running and late.random() < 0.1:
            engine.core.scheduler._preempt(late.choice(running))
        output = engine.step()
        deltas += output.deltas
        for end in output.finished:
            assert end.error is None, end.error
            usages[end.request_id] = end.usage
        engine.core.check()
    return deltas, usages
