"""The step thread is the only thread that touches the engine."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import ParamSpec, TypeVar

from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, RequestFinished, RequestUsage, StepOutput

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

# Seconds between two steps while every request waits for its adapter. A finished load wakes the thread earlier.
_WAITING_POLL_S = 0.005
# Seconds before the next iteration after one that failed.
_RETRY_AFTER_ERROR_S = 0.1


class EngineLoop:
    """A thread that runs ``engine.step`` while there is work, and commands from other threads between steps.

    ``deliver`` is called in this thread, once per step with output; ``on_failure`` once, when the engine reports that
    the process should end.
    """

    def __init__(
        self,
        engine: Engine,
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
        self._is_asleep = False
        self._stopping = False
        self._requests: dict[str, GenerationRequest] = {}
        self._iterations, self._in_step = 0, False
        self._iterated_at = time.monotonic()
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

    @property
    def stalled_s(self) -> float:
        """Seconds for which a step has run, or something has waited for one. Any thread may read it."""
        is_waiting = self._in_step or (bool(self._inbox) and not self._is_asleep)
        return time.monotonic() - self._iterated_at if is_waiting else 0.0

    def submit(self, request: GenerationRequest) -> None:
        """Pass a request to the engine. A refusal comes back as its ``RequestFinished``."""

        def add(output: StepOutput) -> None:
            try:
                self._engine.add_request(request)
            except Exception as cause:
                error = cause if isinstance(cause, RequestError) else _engine_error(cause)
                if error is not cause:
                    log.exception("a request could not be added", extra={"request_id": request.request_id})
                output.finished.append(_unfinished(request, "refused", error))
            else:
                self._requests[request.request_id] = request

        self._inbox.append(add)
        self.wake()

    def abort(self, request_id: str) -> None:
        self._inbox.append(lambda _output: self._engine.abort(request_id))
        self.wake()

    def call(self, function: Callable[[Engine], T]) -> Future[T]:
        """Run ``function(engine)`` between two steps."""
        future: Future[T] = Future()
        self._inbox.append(lambda _output: _fulfil(future, function, self._engine))
        self.wake()
        return future

    def wake(self) -> None:
        """Wake the thread because something changed that a waiting request may need."""
        with self._wakeup:
            self._awake = True
            self._wakeup.notify()

    # The methods below run in the step thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._iterate()
            except Exception:  # if the thread ended, every client would wait for ever
                log.exception("an iteration of the step thread failed")
                self._sleep(_RETRY_AFTER_ERROR_S)

    def _iterate(self) -> None:
        """Run the commands in the inbox in order, then a step if there is work, and deliver the output of both."""
        self._iterated_at = time.monotonic()
        output = StepOutput(self._engine.steps)
        while self._inbox:
            command = self._inbox.popleft()
            try:
                command(output)
            except Exception:
                log.exception("a command to the engine failed")
        if self._engine.failure and not self._failed:
            self._failed = True
            self._on_failure(self._engine.failure)
        if busy := self._engine.has_work():
            self._iterations, self._in_step = self._iterations + 1, True
            try:
                produced = self._engine.step()
            except Exception as cause:
                log.exception("an engine step failed; its %d requests fail with it", len(self._requests))
                produced = self._fail_all(cause)
            finally:
                self._in_step = False
            output.step = produced.step
            output.deltas += produced.deltas
            output.finished += produced.finished
        if output.deltas or output.finished:
            for finished in output.finished:
                self._requests.pop(finished.request_id, None)
            self._deliver(output)
        elif not busy and self._engine.use_idle_time():
            return
        elif not busy or not self._engine.num_running:
            self._sleep(_WAITING_POLL_S if busy or self._engine.free_host_memory() else None)

    def _sleep(self, seconds: float | None) -> None:
        with self._wakeup:
            if not self._awake:
                self._is_asleep = True
                self._wakeup.wait(seconds)
                self._iterated_at, self._is_asleep = time.monotonic(), False  # in this order, for ``stalled_s``
            self._awake = False

    def _fail_all(self, cause: Exception) -> StepOutput:
        """End every request with its real usage: it is not known which one made the step fail."""
        for request_id in list(self._requests):
            self._try(lambda request_id=request_id: self._engine.abort(request_id))  # type: ignore[misc]
        aborted = self._try(self._engine.step)
        output = aborted or StepOutput(self._engine.steps)
        ended = {finished.request_id: finished for finished in output.finished}
        error = _engine_error(cause)
        for request_id, request in self._requests.items():
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


def on_event_loop(function: Callable[P, None]) -> Callable[P, None]:
    """Return a function for any thread that calls ``function`` on this event loop, unless the loop has ended."""
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(partial(function, *args, **kwargs))

    return call


def _fulfil(future: Future[T], function: Callable[[Engine], T], engine: Engine) -> None:
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
