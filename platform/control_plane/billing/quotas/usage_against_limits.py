"""The current usage of a tenant and its keys against their limits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.adapters.registry.queries import count_active, stored_bytes
from control_plane.billing.limits.queries import key_limits, tenant_limits
from control_plane.billing.limits.values import UNLIMITED, Counted, Limits
from control_plane.billing.quotas.limiter_factory import current_period, with_limiter
from control_plane.billing.quotas.limiter_interface import Limiter, LimiterUnavailableError, Reading, Scope, Spent
from control_plane.billing.quotas.queries import OF_TENANT, spending
from control_plane.core.http.lists import part_of
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.keys.queries import find_keys
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Scope:
    """A scope with its usage by the limiter and by the ledger."""

    limits: Limits
    reading: Reading | None
    spent: Spent

    def used(self) -> dict[str, int | None]:
        """Return the usage. Of budgets the larger value counts: the ledger lacks running requests, the counter lags."""
        counted: dict[str, int | None] = {limit.value: None for limit in Counted}
        if self.reading is not None:
            counted = {limit.value: self.reading.used(limit) for limit in Counted}
        day, month = counted["tokens_per_day"] or 0, counted["tokens_per_month"] or 0
        return {**counted, "tokens_per_day": max(day, self.spent.day), "tokens_per_month": max(month, self.spent.month)}


def usage_against_limits(
    tenant: Tenant, search: str = "", offset: int = 0, limit: int | None = None
) -> tuple[dict[str, Any], int]:
    """Return the data of `UsageAgainstLimitsSerializer` with a part of the keys, and the number of keys."""
    usable = _usable_keys(tenant, search)
    keys = list(part_of(usable, offset, limit))
    of_keys, of_tenant = key_limits(tenant), tenant_limits(tenant)
    limits = {OF_TENANT: of_tenant, **{key.pk.hex: of_keys.get(key.pk, UNLIMITED) for key in keys}}
    scopes = [Scope(name, each) for name, each in limits.items()]
    readings = _read(tenant, scopes)
    spent = spending(tenant.pk, list(limits), current_period())
    by_name = {
        scope.name: _Scope(scope.limits, reading if scope.limits.counted or of_tenant.counted else None, each)
        for scope, reading, each in zip(scopes, readings or [None] * len(scopes), spent, strict=True)
    }
    stored = {"adapters": count_active(tenant), "storage_bytes": stored_bytes(tenant)}
    whole = by_name[OF_TENANT]
    return {
        "counters_reachable": readings is not None,
        "tenant": {"limits": asdict(whole.limits), "used": {**whole.used(), **stored}},
        "keys": [_key_json(key, by_name[key.pk.hex]) for key in keys],
    }, usable.count()


def _key_json(key: ApiKey, scope: _Scope) -> dict[str, Any]:
    return {
        "id": key.pk, "name": key.name, "prefix": key.prefix, "limits": asdict(scope.limits), "used": scope.used()
    }  # fmt: skip


def _usable_keys(tenant: Tenant, search: str) -> QuerySet[ApiKey]:
    alive = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return find_keys(tenant, search).filter(alive, revoked_at__isnull=True)


def _read(tenant: Tenant, scopes: Sequence[Scope]) -> tuple[Reading, ...] | None:
    async def read(limiter: Limiter) -> tuple[Reading, ...]:
        return await limiter.read(str(tenant.pk), scopes)

    try:
        return with_limiter(read)
    except LimiterUnavailableError as error:
        logger.warning("The counters of %s cannot be read: %s", tenant, error)
        return None
