from __future__ import annotations

import threading
import time

from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, SamplingParams, StepOutput
from lora_engine.server.engine_loop import EngineLoop


class Outputs:
    """Collects what the loop delivers."""

    def __init__(self) -> None:
        self.all: list[StepOutput] = []
        self._changed = threading.Condition()

    def __call__(self, output: StepOutput) -> None:
        with self._changed:
            self.all.append(output)
            self._changed.notify_all()

    def finished(self, count: int):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._finished()) >= count, 10)
            return self._finished()

    def _finished(self):
        return [item for output in self.all for item in output.finished]


def request(number: int, **sampling) -> GenerationRequest:
    return GenerationRequest(f"r{number}", [1, 2], SamplingParams(max_tokens=3, **sampling))


def test_an_idle_loop_sleeps_and_a_command_wakes_it(engine):
    loop = EngineLoop(engine, Outputs())
    loop.start()
    time.sleep(0.2)
    assert engine.steps == 0
    assert loop.call(lambda e: e.steps).result(5) == 0
    loop.stop()


def test_idle_time_is_used_until_a_request_comes_and_then_again(engine):
    left, outputs = [3], Outputs()
    at_request: list[int] = []

    def use_idle_time() -> bool:
        if left[0] == 1 and not at_request:
            loop.submit(request(1))  # while something is left: it runs before that
        left[0] -= 1
        return left[0] >= 0

    add = engine.add_request
    engine.add_request = lambda r: (at_request.append(left[0]), add(r))
    engine.use_idle_time = use_idle_time
    loop = EngineLoop(engine, outputs)
    loop.start()
    assert outputs.finished(1)[0].usage.outcome == "finished"
    loop.stop()
    assert at_request == [0]


def test_an_engine_that_should_end_says_so_once_and_serves_until_then(engine):
    outputs, reasons = Outputs(), []
    loop = EngineLoop(engine, outputs, reasons.append)
    loop.start()
    engine.failure = "a capture failed"
    loop.submit(request(1))
    loop.submit(request(2))
    assert [item.usage.outcome for item in outputs.finished(2)] == ["finished"] * 2
    loop.stop()
    assert reasons == ["a capture failed"]


def test_waiting_for_an_adapter_does_not_spin(engine):
    loop = EngineLoop(engine, Outputs())
    engine.has_work = lambda: True  # requests, but none that can run
    started = time.monotonic()
    loop.start()
    time.sleep(0.5)
    assert engine.steps < 400 * (time.monotonic() - started)
    loop.stop()


def test_refusals_and_crashes_in_add_request_come_back(engine, caplog):
    outputs = Outputs()
    loop = EngineLoop(engine, outputs)
    loop.start()
    loop.submit(request(1, temperature=9))
    add = engine.add_request
    (first,) = outputs.finished(1)
    assert (first.error.code, first.usage.outcome) == ("invalid_value", "refused")
    engine.add_request = lambda _request: 1 / 0
    loop.submit(request(2))
    assert outputs.finished(2)[1].error.code == "engine_error"
    engine.add_request = add
    loop.submit(request(3))
    assert outputs.finished(3)[2].usage.outcome == "finished"
    loop.stop()


def test_a_failed_call_is_the_callers(engine):
    loop = EngineLoop(engine, Outputs())
    loop.start()
    error = RequestError("x", "y")

    def fail(_engine):
        raise error

    assert loop.call(fail).exception(5) is error
    loop.stop()


def test_a_call_whose_caller_is_gone_is_left_out(engine, caplog):
    loop = EngineLoop(engine, Outputs())
    called = []
    assert loop.call(called.append).cancel()
    loop.start()
    assert loop.call(lambda e: e.steps).result(5) == 0
    loop.stop()
    assert (called, caplog.records) == ([], [])


def test_the_thread_outlives_whatever_stumbles(engine, caplog):
    outputs = Outputs()
    loop = EngineLoop(engine, outputs)
    loop.start()
    has_work, engine.has_work = engine.has_work, lambda: 1 / 0
    loop.wake()
    deadline = time.monotonic() + 10
    while "an iteration of the step thread failed" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.has_work = has_work
    loop.submit(request(1))
    assert outputs.finished(1)[0].usage.outcome == "finished"
    loop.stop()
