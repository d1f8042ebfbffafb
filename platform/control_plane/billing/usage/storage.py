"""Measurement of the adapters' storage by the hour, for the storage line of a statement."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max

from control_plane.adapters.registry.models import OUT_OF_USE, AdapterVersion
from control_plane.billing.usage.models import StorageDay
from control_plane.core.jobs import clocks
from control_plane.identity.tenants.models import Tenant


def measure(now: datetime | None = None) -> int:
    """Count this hour once for every tenant that stores something. Returns the number of tenants counted.

    Raises DeletionPausedError while the clock is not trusted: an hour of another month would be billed. It may run at
    any time within the hour; an hour in which no worker ran is not charged.
    """
    hour = (now or clocks.deletion_time()).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return sum(_count(tenant, hour, size) for tenant, size in _stored().items())


def _stored() -> dict[UUID, int]:
    """Return the bytes by tenant; content that several versions share counts once."""
    versions = AdapterVersion.objects.exclude(state__in=OUT_OF_USE).order_by()
    contents = versions.values_list("tenant_id", "digest").annotate(Max("bytes"))
    totals: dict[UUID, int] = {}
    for tenant, _, size in contents:
        totals[tenant] = totals.get(tenant, 0) + size
    return totals


def _count(tenant_id: UUID, hour: datetime, size: int) -> bool:
    with transaction.atomic():
        # The tenant's row is the lock: two workers may be here in the same hour.
        tenant = Tenant.objects.select_for_update().get(pk=tenant_id)
        days = StorageDay.objects.for_tenant(tenant)
        day, created = days.get_or_create(
            tenant=tenant,
            start=hour.date(),
            defaults={"byte_hours": size, "measured_hours": 1, "last_hour": hour},
        )
        if created:
            return True
        later = days.filter(pk=day.pk, last_hour__lt=hour)
        return bool(
            later.update(byte_hours=F("byte_hours") + size, measured_hours=F("measured_hours") + 1, last_hour=hour)
        )
