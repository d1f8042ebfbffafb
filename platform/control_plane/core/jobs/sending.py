"""Enqueues tasks by name, so that the sender does not import the task."""

from __future__ import annotations

import logging

from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from control_plane.core.deferred import deferred
from control_plane.core.jobs.queues import ROUTES
from control_plane.core.redis_client import breaker

logger = logging.getLogger(__name__)


class UnknownTaskError(LookupError):
    """A task name without a queue: the task would wait for ever."""

    def __init__(self, task: str) -> None:
        super().__init__(f'No queue has the task "{task}". Add it in control_plane/core/jobs/queues.py.')


def require_known(task: str) -> None:
    """Raise UnknownTaskError for a task without a queue."""
    if task not in ROUTES:
        raise UnknownTaskError(task)


def send(task: str, *args: object) -> None:
    """Queue `task` now, or as soon as Redis answers. Raises UnknownTaskError."""
    require_known(task)
    try:
        if breaker().is_open:
            raise OperationalError(f"Redis is away: {breaker().reason}")
        _send(task, args)
    except (OperationalError, RedisError, OSError) as error:
        logger.warning("Redis is unavailable; %s is queued when it answers: %s", task, error)
        deferred.add((task, args), lambda: _send(task, args))


def _send(task: str, args: tuple[object, ...]) -> None:
    current_app.send_task(task, args, ignore_result=True)
