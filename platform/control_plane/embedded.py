"""The Celery workers, one for each queue, and beat inside the web process: the default without Redis.

The queues are in this process's memory, so there can be one such process per data folder. Tasks that wait in them at a
stop are queued again at the next start, from the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import threading
import time
from os import EX_OK
from pathlib import Path
from typing import IO
from uuid import uuid4

from celery.beat import EmbeddedService
from celery.worker import WorkController, state
from kombu.exceptions import OperationalError

from control_plane.adapters.uploads import validation_job
from control_plane.celery import app, make_app
from control_plane.core.config import current
from control_plane.core.jobs import claims
from control_plane.core.jobs.beat import MonotonicScheduler
from control_plane.core.jobs.queues import QUEUES, WorkQueue
from control_plane.core.jobs.sending import send

logger = logging.getLogger(__name__)

STOP_WITHIN_S = 10.0  # for running tasks
RESTART_S = 1.0  # before a crashed worker is replaced


class SecondEmbeddedProcessError(RuntimeError):
    """A second web process with embedded workers: each would miss the tasks in the other's memory."""

    def __init__(self, lock: Path) -> None:
        super().__init__(
            f"Another web process already runs with the data folder {lock.parent}. Stop it, set LORIKEET_VAR_DIR to "
            "another folder, or set LORIKEET_REDIS_URL and run workers as separate processes."
        )


class EmbeddedWorker:
    """The embedded workers and beat. Start and stop them once."""

    def __init__(self) -> None:
        self._lock: IO[str] | None = None
        self._workers: list[_QueueWorker] = []
        self._beat: threading.Thread | None = None

    def start(self) -> None:
        """Start the workers and beat. Raises SecondEmbeddedProcessError."""
        self._lock = _take_lock(current().var_dir / "embedded.lock")
        if not current().redis_url:
            claims.end_all()  # those of the previous process
        self._workers = [_QueueWorker(queue) for queue in QUEUES]
        self._beat = EmbeddedService(app, thread=True, max_interval=5, scheduler_cls=MonotonicScheduler)
        self._beat.start()
        send("uploads.validate_next")
        send("placements.reconcile")

    def stop(self) -> None:
        """Give running tasks a moment to end; interrupted ones are resumed at the next start."""
        if self._beat is not None:
            self._beat.stop()  # type: ignore[attr-defined]
        # Each worker stops itself, because its connection belongs to its thread: it checks every two seconds, and
        # when the message wakes it. The message is sent from a thread, because Redis may be away.
        state.should_stop = EX_OK
        threading.Thread(target=self._wake, daemon=True).start()
        end = time.monotonic() + STOP_WITHIN_S
        while time.monotonic() < end and any(worker.runs() for worker in self._workers):
            validation_job.cancel_running()  # in each round, for tasks that have just begun
            time.sleep(0.05)
        for worker in self._workers:
            if worker.runs():
                logger.warning("A task of %s did not end within %.0f s.", worker.name, STOP_WITHIN_S)
        state.should_stop = None
        if self._lock is not None:
            self._lock.close()

    def _wake(self) -> None:
        with contextlib.suppress(OperationalError):
            app.control.shutdown(destination=[worker.name for worker in self._workers])


class _QueueWorker:
    """The worker of one queue, in a thread; it is replaced if it crashes."""

    def __init__(self, queue: WorkQueue) -> None:
        self.name = f"{queue.name}@embedded-{uuid4().hex[:8]}"
        self._queue = queue
        controller = self._make()
        self._thread = threading.Thread(
            target=self._run, args=(controller,), name=f"lorikeet-{queue.name}", daemon=True
        )
        self._thread.start()

    def runs(self) -> bool:
        return self._thread.is_alive()

    def _make(self) -> WorkController:
        return make_app().WorkController(
            pool_cls="threads",
            concurrency=self._queue.slots,
            hostname=self.name,
            queues=[self._queue.name],
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            # With Redis, workers of one process would share kombu's single event loop.
            use_eventloop=False,
        )

    def _run(self, controller: WorkController) -> None:
        controller.start()
        while state.should_stop is None:
            logger.error("The worker %s ended; it is replaced.", self.name)
            time.sleep(RESTART_S)
            controller = self._make()
            controller.start()


def _take_lock(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SecondEmbeddedProcessError(path) from None
        stack.pop_all()
        return file


_embedded: EmbeddedWorker | None = None


async def start() -> None:
    """Start-up hook of the web process: start the embedded workers where they are configured."""
    global _embedded
    if current().is_embedded:
        _embedded = EmbeddedWorker()
        await asyncio.to_thread(_embedded.start)


async def stop() -> None:
    """Shut-down hook of the web process: stop the embedded workers."""
    global _embedded
    if _embedded is not None:
        await asyncio.to_thread(_embedded.stop)
        _embedded = None
