"""Effects of a write after its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import transaction

from control_plane.core.events.publisher import publish
from control_plane.core.jobs.sending import require_known, send


def announce(tenant_id: UUID | str, event: str, build: Callable[[], dict[str, Any]]) -> None:
    """After commit, publish `event` with the data that `build` then returns. A failure is logged, the write stays."""
    transaction.on_commit(lambda: publish(tenant_id, event, build()), robust=True)


def enqueue(task: str, *args: Any) -> None:
    """After commit, queue the task of that name. While Redis is away it waits in memory; a reconciler finds tasks
    that are lost there.

    Raises UnknownTaskError at once.
    """
    require_known(task)
    transaction.on_commit(lambda: send(task, *args), robust=True)
