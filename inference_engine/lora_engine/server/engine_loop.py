"""The step thread is the only thread that touches the engine."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.load_times import LoadTime
from lora_engine.errors import RequestError
from lora_engine.memory import PageMap, PoolStats
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, RequestFinished, RequestUsage, StepOutput
from lora_engine.scheduling.merge_policies import MergeReport
from lora_engine.scheduling.prefill_budget import PrefillBudgetReport
from lora_engine.scheduling.scheduler_stats import QueueReport, WaitingRequest

log = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds between two steps while every request waits for its adapter. A finished load wakes the thread earlier.
_WAITING_POLL_S = 0.005
# Seconds before the next iteration after one that failed.
_RETRY_AFTER_ERROR_S = 0.1


class EngineLike(Protocol):
    """The methods of ``lora_engine.engine.Engine`` that the server needs."""

    steps: int

    def add_request(self, request: GenerationRequest) -> None: ...
    def abort(self, request_id: str) -> None: ...
    def has_work(self) -> bool: ...
    def step(self) -> StepOutput: ...
    @property
    def failure(self) -> str: ...
    def use_idle_time(self) -> bool: ...
    def drop_adapter(self, digest: str) -> bool: ...
    def pin_adapters(self, digests: Iterable[str]) -> list[str]: ...
    def pinned_adapters(self) -> list[str]: ...
    def pin_prefixes(self, prefixes: Iterable[PinnedPrefix]) -> dict[str, PinState]: ...
    def pinned_prefixes(self) -> dict[str, PinState]: ...
    def pool_stats(self) -> PoolStats: ...
    def prefix_tokens(self) -> int | None: ...
    def page_map(self) -> PageMap: ...
    def device_adapters(self) -> list[DeviceAdapter]: ...
    def queue_report(self) -> QueueReport: ...
    def merge_report(self) -> MergeReport: ...
    def prefill_budget_report(self) -> PrefillBudgetReport: ...
    def waiting_requests(self, tenant: str, limit: int) -> list[WaitingRequest]: ...
    @property
    def device_load_time(self) -> LoadTime: ...
    def weight_norms(self, layer: int) -> list[float]: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...


class EngineLoop:
    """A thread that runs ``engine.step`` while there is work, and commands from other threads between steps.

    ``deliver`` is called in this thread, once per step with output; ``on_failure`` once, when the engine reports that
    the process should end.
    """

    def __init__(
        self,
        engine: EngineLike,
        deliver: Callable[[StepOutput], None],
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._engine = engine
        self._deliver = deliver
        self._on_failure = on_failure
        self._failed = False
        self._inbox: deque[Callable[[StepOutput], None]] = deque()
        self._wakeup = threading.Condition()
        self._awake = False
        self._stopping = False
        self._live: dict[str, GenerationRequest] = {}
        self._iterations, self._in_step = 0, False
        self._thread = threading.Thread(target=self._run, name="engine-steps")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current step, and wait for that."""
        self._stopping = True
        self.wake()
        self._thread.join()

    @property
    def progress(self) -> tuple[int, bool]:
        """Number that changes with each step, and whether a step runs now. Any thread may read it."""
        return self._iterations, self._in_step

    def submit(self, request: GenerationRequest) -> None:
        """Pass a request to the engine. A refusal comes back as its ``RequestFinished``."""
        self._post(lambda output: self._add(request, output))

    def abort(self, request_id: str) -> None:
        self._post(lambda _output: self._engine.abort(request_id))

    def call(self, function: Callable[[EngineLike], T]) -> Future[T]:
        """Run ``function(engine)`` between two steps."""
        future: Future[T] = Future()
        self._post(lambda _output: _fulfil(future, function, self._engine))
        return future

    def wake(self) -> None:
        """Wake the thread because something changed that a waiting request may need."""
        with self._wakeup:
            self._awake = True
            self._wakeup.notify()

    def _post(self, command: Callable[[StepOutput], None]) -> None:
        self._inbox.append(command)
        self.wake()

    # The methods below run in the step thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._iterate()
            except Exception:  # if the thread ended, every client would wait for ever
                log.exception("an iteration of the step thread failed")
                self._sleep(_RETRY_AFTER_ERROR_S)

    def _iterate(self) -> None:
        output = self._run_commands()
        if self._engine.failure and not self._failed:
            self._failed = True
            self._on_failure(self._engine.failure)
        busy = self._engine.has_work()
        if busy:
            self._iterations, self._in_step = self._iterations + 1, True
            try:
                self._step(output)
            finally:
                self._in_step = False
        if output.deltas or output.finished:
            self._deliver_output(output)
        elif not busy and self._engine.use_idle_time():
            return
        elif not busy or not self._engine.num_running:
            self._sleep(_WAITING_POLL_S if busy else None)

    def _sleep(self, seconds: float | None) -> None:
        with self._wakeup:
            if not self._awake:
                self._wakeup.wait(seconds)
            self._awake = False

    def _run_commands(self) -> StepOutput:
        """Run the commands in the inbox in order. Their output is sent with the next step's."""
        output = StepOutput(self._engine.steps)
        while self._inbox:
            command = self._inbox.popleft()
            try:
                command(output)
            except Exception:
                log.exception("a command to the engine failed")
        return output

    def _add(self, request: GenerationRequest, output: StepOutput) -> None:
        try:
            self._engine.add_request(request)
        except Exception as cause:
            error = cause if isinstance(cause, RequestError) else _engine_error(cause)
            if error is not cause:
                log.exception("a request could not be added", extra={"request_id": request.request_id})
            output.finished.append(_unfinished(request, "refused", error))
        else:
            self._live[request.request_id] = request

    def _step(self, output: StepOutput) -> None:
        try:
            produced = self._engine.step()
        except Exception as cause:
            log.exception("an engine step failed; its %d requests fail with it", len(self._live))
            produced = self._fail_all(cause)
        output.step = produced.step
        output.deltas += produced.deltas
        output.finished += produced.finished

    def _fail_all(self, cause: Exception) -> StepOutput:
        """End every request with its real usage: it is not known which one made the step fail."""
        for request_id in list(self._live):
            self._try(lambda request_id=request_id: self._engine.abort(request_id))  # type: ignore[misc]
        aborted = self._try(self._engine.step)
        output = aborted or StepOutput(self._engine.steps)
        ended = {finished.request_id: finished for finished in output.finished}
        error = _engine_error(cause)
        for request_id, request in self._live.items():
            finished = ended.get(request_id)
            if finished is None:
                output.finished.append(_unfinished(request, "failed", error))
            else:
                finished.error = error
                finished.usage.outcome = "failed"
        return output

    def _try(self, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except Exception:
            log.exception("cleaning up after a failed step failed too")
            return None

    def _deliver_output(self, output: StepOutput) -> None:
        for finished in output.finished:
            self._live.pop(finished.request_id, None)
        self._deliver(output)


def _fulfil(future: Future[T], function: Callable[[EngineLike], T], engine: EngineLike) -> None:
    if not future.set_running_or_notify_cancel():  # the caller cancelled it
        return
    try:
        future.set_result(function(engine))
    except BaseException as error:
        future.set_exception(error)


def _engine_error(cause: Exception) -> RequestError:
    return RequestError(
        "engine_error",
        f"The engine failed while it worked on this request ({type(cause).__name__}).",
        "Try again; if it fails again, send the request id to the operator.",
        retry_after_ms=1000,
    )


def _unfinished(request: GenerationRequest, outcome: str, error: RequestError) -> RequestFinished:
    usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest, outcome=outcome)
    return RequestFinished(request.request_id, usage, error)
