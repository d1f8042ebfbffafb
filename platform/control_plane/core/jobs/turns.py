"""Fair dispatch: the tenant whose job a worker takes next.

A task in a queue is a slot, not a job: it carries no id. When a worker runs it, it takes the next job from the
database, of the tenant that has the fewest running; among equals, of the one that waited longest since its last turn.
No tenant has more than `most` running. So a tenant with a thousand jobs delays another's first by one job per slot at
most, and not at all while a slot is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Count, Model, QuerySet
from django.utils import timezone

from control_plane.core.jobs.models import Queue, Turn

M = TypeVar("M", bound=Model)
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class FairQueue(Generic[M]):
    """The jobs of a queue: `waiting`, each tenant's in the order in which they are taken, and `running`."""

    queue: str
    waiting: QuerySet[M]
    running: QuerySet[Any]
    most: int
    tenant: str = "tenant_id"

    def is_open(self) -> bool:
        """Whether a job may begin. Asked before the transaction: a slot with nothing to do holds up nobody."""
        return bool(self._free_tenants())

    def choose(self) -> M | None:
        """The job that is next, locked. None if none may begin.

        Inside the transaction that then claims it: until that ends, nobody else chooses in this queue.
        """
        _lock(self.queue)
        chosen = self._next_tenant()
        if chosen is None:
            return None
        _take_turn(self.queue, chosen)
        return self.waiting.filter(**{self.tenant: chosen}).select_for_update(of=("self",)).first()

    def _free_tenants(self) -> dict[UUID, int]:
        """Those that may begin another job, with how many they have running."""
        tenants: list[UUID] = list(self.waiting.order_by().values_list(self.tenant, flat=True).distinct())
        if not tenants:
            return {}
        counted = self.running.order_by().values_list(self.tenant).annotate(count=Count("pk"))
        count: dict[UUID, int] = dict(counted)
        return {pk: count.get(pk, 0) for pk in tenants if count.get(pk, 0) < self.most}

    def _next_tenant(self) -> UUID | None:
        free = self._free_tenants()
        turns = Turn.objects.filter(queue=self.queue, tenant__in=free).values_list("tenant_id", "began_at")
        began: dict[UUID, datetime] = dict(turns if len(free) > 1 else [])
        return min(free, key=lambda pk: (free[pk], began.get(pk, NEVER)), default=None)


def _lock(queue: str) -> None:
    """Make or touch the row, in one statement that leaves it locked until the transaction ends."""
    Queue.objects.bulk_create(
        [Queue(name=queue, chosen_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["chosen_at"],
    )


def _take_turn(queue: str, tenant: UUID) -> None:
    Turn.objects.bulk_create(
        [Turn(queue=queue, tenant_id=tenant, began_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["queue", "tenant"],
        update_fields=["began_at"],
    )
