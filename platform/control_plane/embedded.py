"""The Celery worker and its clock inside the web process: the default without Redis.

The queue is in this process's memory, so there can be one such process per data folder, and what waits in the queue
at a stop is queued again at the next start from what the database says.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import threading
from pathlib import Path
from typing import IO

from celery.beat import EmbeddedService, Scheduler
from celery.worker import WorkController

from control_plane.adapters import validation
from control_plane.adapters.tasks import resume_uploads
from control_plane.celery import app
from control_plane.config import current
from control_plane.fleet.tasks import reconcile

logger = logging.getLogger(__name__)

CONCURRENCY = 4
STOP_WITHIN_S = 10.0


class SecondEmbeddedProcessError(RuntimeError):
    """Two processes with a queue in memory would each miss the other's tasks."""

    def __init__(self, lock: Path) -> None:
        super().__init__(
            f"Another web process already runs with the data folder {lock.parent}. Stop it, set LORIKEET_VAR_DIR to "
            "another folder, or set LORIKEET_REDIS_URL and run workers of their own to use several processes."
        )


class EmbeddedWorker:
    """Start and stop once."""

    def __init__(self) -> None:
        self._lock: IO[str] | None = None
        self._worker: WorkController | None = None
        self._thread: threading.Thread | None = None
        self._beat: threading.Thread | None = None

    def start(self) -> None:
        """Raises SecondEmbeddedProcessError."""
        self._lock = _take_lock(current().var_dir / "embedded.lock")
        self._worker = app.WorkController(
            pool_cls="threads",
            concurrency=CONCURRENCY,
            hostname="embedded@localhost",
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        self._thread = threading.Thread(target=self._worker.start, name="lorikeet-worker", daemon=True)
        self._thread.start()
        self._beat = EmbeddedService(app, thread=True, max_interval=5, scheduler_cls=Scheduler)
        self._beat.start()
        resume_uploads.delay(orphans=True)
        reconcile.delay(orphans=True)

    def stop(self) -> None:
        """Let running tasks end for a moment; what is cut short is resumed at the next start."""
        if self._beat is not None:
            self._beat.stop()  # type: ignore[attr-defined]
        validation.cancel_running()
        if self._worker is not None and self._thread is not None:
            self._worker.stop()
            self._thread.join(STOP_WITHIN_S)
            if self._thread.is_alive():
                logger.warning("A background task did not end within %.0f s.", STOP_WITHIN_S)
        if self._lock is not None:
            self._lock.close()


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
    """A start-up hook of the web process."""
    global _embedded
    if current().is_embedded:
        _embedded = EmbeddedWorker()
        await asyncio.to_thread(_embedded.start)


async def stop() -> None:
    """Its shut-down hook."""
    global _embedded
    if _embedded is not None:
        await asyncio.to_thread(_embedded.stop)
        _embedded = None
