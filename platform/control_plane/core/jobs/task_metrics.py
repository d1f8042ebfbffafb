"""Metrics of tasks, in the process that sends or runs them, by the signals of Celery."""

from __future__ import annotations

import time
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun
from prometheus_client import Counter, Histogram

from control_plane.core.jobs.expiry import broker_clock
from control_plane.core.jobs.queues import ROUTES

# The header with the time of sending, in seconds since 1970 by the broker's clock.
SENT_AT = "lorikeet_sent_at"
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
SENT = Counter("lorikeet_tasks_sent", "Tasks that this process queued.", ["task"])
DONE = Counter("lorikeet_tasks", "Tasks that this process ran, by their end.", ["task", "outcome"])
TASK_SECONDS = Histogram("lorikeet_task_seconds", "Duration of tasks.", ["task"], buckets=_SECONDS)
TASK_WAIT = Histogram(
    "lorikeet_task_wait_seconds", "From the sending of a task to its begin, by Redis's clock.", ["queue"],
    buckets=_SECONDS,
)  # fmt: skip
_OUTCOMES = {"SUCCESS": "succeeded", "FAILURE": "failed", "RETRY": "retried", "REJECTED": "returned"}


def _name(task: str | None) -> str:
    """Return the name of a task as a label; tasks of Celery itself share one."""
    return task if task in ROUTES else "other"


def _queue(task: str) -> str:
    return ROUTES[task]["queue"] if task in ROUTES else "other"


@before_task_publish.connect  # type: ignore[untyped-decorator]
def _sent(sender: str | None = None, headers: dict[str, Any] | None = None, **_: object) -> None:
    SENT.labels(_name(sender)).inc()
    if headers is not None:
        headers[SENT_AT] = broker_clock.now().timestamp()


@task_prerun.connect  # type: ignore[untyped-decorator]
def _begins(task: Any = None, **_: object) -> None:
    request = task.request
    request.lorikeet_began = time.perf_counter()
    sent_at = getattr(request, SENT_AT, None)
    if isinstance(sent_at, int | float):
        TASK_WAIT.labels(_queue(task.name)).observe(max(0.0, broker_clock.now().timestamp() - sent_at))


@task_postrun.connect  # type: ignore[untyped-decorator]
def _ended(task: Any = None, state: str | None = None, **_: object) -> None:
    DONE.labels(_name(task.name), _OUTCOMES.get(state or "", "other")).inc()
    began = getattr(task.request, "lorikeet_began", None)
    if began is not None:
        TASK_SECONDS.labels(_name(task.name)).observe(time.perf_counter() - began)


for _task in ROUTES:  # a failure must be visible as a step from 0, not as a new series
    for _outcome in ("succeeded", "failed"):
        DONE.labels(_task, _outcome)
