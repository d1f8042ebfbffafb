"""What follows a write, once it is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import Task
from django.db import transaction

from control_plane.events.publisher import publish


def announce(tenant_id: UUID | str, event: str, build: Callable[[], dict[str, Any]]) -> None:
    """After commit, publish `event` with what `build` then reads. A failure is logged and never undoes the write."""
    transaction.on_commit(lambda: publish(tenant_id, event, build()), robust=True)


def enqueue(task: Task, *args: Any) -> None:
    """After commit, queue `task`. If the broker is away the reconciler queues it again later."""
    transaction.on_commit(lambda: task.delay(*args), robust=True)
