"""Queueing tasks by their names, so that who asks for work need not import who does it."""

from __future__ import annotations

from celery import current_app

from control_plane.jobs.queues import ROUTES


class UnknownTaskError(LookupError):
    """A name that no queue takes: the task would wait for ever."""

    def __init__(self, task: str) -> None:
        super().__init__(f'No queue takes a task "{task}". Name it in control_plane/jobs/queues.py.')


def require_known(task: str) -> None:
    """Raises UnknownTaskError."""
    if task not in ROUTES:
        raise UnknownTaskError(task)


def send(task: str, *args: object) -> None:
    """Queue `task` now. Raises UnknownTaskError, and what the broker's client raises if the broker is away."""
    require_known(task)
    current_app.send_task(task, args, ignore_result=True)
