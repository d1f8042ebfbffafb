"""A step's time is paid by the requests in it, by tokens, and nothing is paid twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lora_engine.execution.device_time import DeviceTime
from lora_engine.request import GenerationRequest
from lora_engine.scheduling.sequence import RequestState


def request_state(name: str) -> RequestState:
    return RequestState(GenerationRequest(name, [1]), 0.0)


def chunks(*work: tuple[RequestState, int]) -> Any:
    return [
        SimpleNamespace(sequence=SimpleNamespace(request_state=request_state), known=tokens)
        for request_state, tokens in work
    ]


def test_by_tokens() -> None:
    time, prompt, decode = DeviceTime(), request_state("prompt"), request_state("decode")
    time.launched(chunks((prompt, 90), (decode, 10)), at=5.0)
    time.ended(at=5.2)
    assert prompt.device_s == pytest.approx(0.18)
    assert decode.device_s == pytest.approx(0.02)


def test_a_step_launched_while_another_ran_begins_when_that_one_ends() -> None:
    time, first, second = DeviceTime(), request_state("first"), request_state("second")
    time.launched(chunks((first, 1)), at=0.0)
    time.launched(chunks((second, 1)), at=0.1)
    time.ended(at=1.0)
    time.ended(at=1.5)
    assert (first.device_s, second.device_s) == (pytest.approx(1.0), pytest.approx(0.5))


def test_an_idle_device_costs_nobody() -> None:
    time, only = DeviceTime(), request_state("only")
    for start in (0.0, 100.0):
        time.launched(chunks((only, 1)), at=start)
        time.ended(at=start + 1.0)
    assert only.device_s == pytest.approx(2.0)


def test_a_closed_request_is_charged_no_more() -> None:
    time, gone, stays = DeviceTime(), request_state("gone"), request_state("stays")
    time.launched(chunks((gone, 1), (stays, 1)), at=0.0)
    gone.ended = True
    time.ended(at=1.0)
    assert gone.device_s == 0
    assert stays.device_s == pytest.approx(0.5)
