"""The states of the engine process: it serves, drains, restarts on request, or ends because it failed."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from lora_engine.errors import RequestError

log = logging.getLogger(__name__)


class Lifecycle:
    """The state of one process, from its start to its end. It lives on the event loop."""

    def __init__(self) -> None:
        self.boot_id = uuid.uuid4().hex
        self.draining = False
        self.failed = asyncio.Event()  # set when the process should end once its requests have ended
        self.failure = ""  # reason for it
        self.restarts = asyncio.Event()  # set when an operator requested a restart
        self._restart_by = 0.0  # monotonic time at which the restart no longer waits for requests

    def drain(self, *, undo: bool = False) -> None:
        self.draining = not undo or self.restarts.is_set()

    def restart(self, boot_id: str, wait_s: float) -> bool:
        """Restart this process once its requests have ended, after ``wait_s`` at the latest; a later call replaces the
        time.

        Returns False if ``boot_id`` is of an earlier process, which has been restarted already.
        """
        if boot_id != self.boot_id:
            return False
        self._restart_by = time.monotonic() + wait_s
        self.restarts.set()
        self.drain()
        return True

    @property
    def restart_is_due(self) -> bool:
        """True once a requested restart no longer waits for requests."""
        return time.monotonic() >= self._restart_by

    def fail(self, reason: str) -> None:
        """Let the process end once its requests have ended."""
        log.critical(
            "The engine failed: %s. It ends once its requests have ended, so that its supervisor restarts it.", reason
        )
        self.failure = reason
        self.failed.set()

    def refusal(self, work: str, fix: str) -> RequestError | None:
        """Return the error for new work while this host drains, or None."""
        if not self.draining:
            return None
        return RequestError("draining", f"This host is draining and {work}.", fix, retry_after_ms=1000)
