"""Fair dispatch: the choice of the tenant whose job a worker runs next.

A task in a queue is a slot, not a job: it carries no id. A worker that runs it takes the next job from the database, of
the tenant with the fewest running jobs; among equals, of the one whose last job began longest ago. No tenant has more
than `most` running. So a tenant with a thousand jobs delays another's first job by one job per slot at most, and not at
all while a slot is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Count, Model, QuerySet
from django.utils import timezone

from control_plane.core.jobs.models import Queue, QueuePosition

M = TypeVar("M", bound=Model)
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class FairQueue(Generic[M]):
    """The jobs of a queue: `waiting`, each tenant's in the order of their start, and `running`."""

    queue: str
    waiting: QuerySet[M]
    running: QuerySet[Any]
    most: int
    tenant: str = "tenant_id"

    def is_open(self) -> bool:
        """Return True if a job may begin. Called before the transaction, so that a slot without work takes no lock."""
        return bool(self._free_tenants())

    def choose(self) -> M | None:
        """Return the next job, locked; None if none may begin.

        Call it inside the transaction that then claims the job: until that ends, no other worker chooses in this queue.
        """
        _lock(self.queue)
        chosen = self._next_tenant()
        if chosen is None:
            return None
        _note_begin(self.queue, chosen)
        return self.waiting.filter(**{self.tenant: chosen}).select_for_update(of=("self",), no_key=True).first()

    def _free_tenants(self) -> dict[UUID, int]:
        """Return the tenants that may begin another job, with the number of their running jobs."""
        tenants: list[UUID] = list(self.waiting.order_by().values_list(self.tenant, flat=True).distinct())
        if not tenants:
            return {}
        counted = self.running.order_by().values_list(self.tenant).annotate(count=Count("pk"))
        count: dict[UUID, int] = dict(counted)
        return {pk: count.get(pk, 0) for pk in tenants if count.get(pk, 0) < self.most}

    def _next_tenant(self) -> UUID | None:
        free = self._free_tenants()
        rows = QueuePosition.objects.filter(queue=self.queue, tenant__in=free).values_list("tenant_id", "began_at")
        began: dict[UUID, datetime] = dict(rows if len(free) > 1 else [])
        return min(free, key=lambda pk: (free[pk], began.get(pk, NEVER)), default=None)


def _lock(queue: str) -> None:
    """Create or touch the queue's row, in one statement that leaves it locked until the transaction ends."""
    Queue.objects.bulk_create(
        [Queue(name=queue, chosen_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["chosen_at"],
    )


def _note_begin(queue: str, tenant: UUID) -> None:
    QueuePosition.objects.bulk_create(
        [QueuePosition(queue=queue, tenant_id=tenant, began_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["queue", "tenant"],
        update_fields=["began_at"],
    )
