"""The base class of all tasks: a task that fails because the database is unavailable is retried.

Every task may run at any time and any number of times, so a retry is safe and no reconciler has to find the work.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery import Task
from celery.exceptions import Reject
from celery.worker import state
from django.db import close_old_connections

from control_plane.core.db import database_breaker
from control_plane.core.errors import DeletionPausedError
from control_plane.core.unavailable import is_database_away

logger = logging.getLogger(__name__)

# Seconds until the task goes back to its queue: a stopping worker must not be delayed, and others may run the task.
WAIT_S = 20.0
# Attempts at a task: in an outage the first finds that its connection is broken, the second that no server answers, and
# the third waits until one does.
ATTEMPTS = 3
# Seconds between two checks whether the worker is to stop.
POLL_S = 0.5


class PatientTask(Task):  # type: ignore[misc]
    """A task that waits until the database answers, and runs again if it went away meanwhile."""

    Request = "control_plane.core.jobs.expiry:ExpiringRequest"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for attempt in range(ATTEMPTS):
            self._wait()
            try:
                return self._run(*args, **kwargs)
            except Exception as error:
                if attempt == ATTEMPTS - 1 or not is_database_away(error):
                    raise
                logger.warning("%s failed in an outage of the database and is retried: %s", self.name, error)
            close_old_connections()  # this thread's is broken, and would be used again
        raise AssertionError("the last attempt returns or raises")

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.run(*args, **kwargs)
        except DeletionPausedError as paused:  # the reason is in the log already
            logger.info("%s deleted nothing: %s", self.name, paused)
            return None

    def _wait(self) -> None:
        """Wait for the database. Raises Reject, which puts the task back into its queue."""
        breaker = database_breaker()
        end = time.monotonic() + WAIT_S
        while breaker is not None and not breaker.wait_until_closed(POLL_S):
            if time.monotonic() > end or state.should_stop or state.should_terminate:
                raise Reject("PostgreSQL is away", requeue=True)
