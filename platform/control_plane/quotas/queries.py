"""The limits of a caller, and their usage by the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet, Sum

from control_plane.keys.models import ApiKey
from control_plane.limits.models import LimitSet
from control_plane.limits.values import UNLIMITED, Limits
from control_plane.quotas.limiter_interface import EPOCH, BudgetPeriod, Scope, Spent
from control_plane.tenants.models import Tenant
from control_plane.usage.models import DailyTotals, DailyUsage, UsageEvent, Watermark

OF_TENANT = "tenant"


@dataclass(frozen=True)
class PrincipalLimits:
    """What binds a caller: the tenant's limits, and the key's if it is one."""

    tenant: Limits = UNLIMITED
    key: Limits = UNLIMITED

    @property
    def max_output_tokens(self) -> int | None:
        both = [one for one in (self.tenant.max_output_tokens, self.key.max_output_tokens) if one is not None]
        return min(both, default=None)

    def scopes(self, key_id: UUID | None) -> tuple[Scope, ...]:
        """Those with something to count. The tenant counts with its key, so that both pages tell the same."""
        if not (self.tenant.counted or self.key.counted):
            return ()
        of_tenant = Scope(OF_TENANT, self.tenant)
        return (of_tenant,) if key_id is None else (of_tenant, Scope(key_id.hex, self.key))


def limits_of(tenant: Tenant, key: ApiKey | None) -> PrincipalLimits:
    rows = LimitSet.objects.for_tenant(tenant).filter(Q(api_key=None) | Q(api_key=key))
    found = {row.api_key_id: row.limits for row in rows}
    return PrincipalLimits(found.get(None, UNLIMITED), found.get(key.pk, UNLIMITED) if key else UNLIMITED)


def spending(tenant_id: UUID | str, scopes: Iterable[str], period: BudgetPeriod) -> list[Spent]:
    """Tokens of a day and its month by the ledger to its very end: rollups, and the rows that are not in them yet."""
    first, day = EPOCH + timedelta(days=period.month), period.date
    while True:
        mark = _mark()
        sums = [_spent(tenant_id, scope, first, day, mark) for scope in scopes]
        if _mark() == mark:  # else the aggregator passed between two of the queries, and rows were read twice
            return sums


def _mark() -> int:
    return Watermark.objects.values_list("event_id", flat=True).first() or 0


def _spent(tenant_id: UUID | str, scope: str, first: date, day: date, mark: int) -> Spent:
    rolled: QuerySet[Any]
    fresh = UsageEvent.objects.filter(tenant_id=tenant_id, id__gt=mark, created_at__gte=_midnight(first))
    if scope == OF_TENANT:
        rolled = DailyTotals.objects.filter(tenant_id=tenant_id, start__gte=first, start__lte=day)
    else:
        rolled = DailyUsage.objects.filter(
            tenant_id=tenant_id, start__gte=first, start__lte=day, series__api_key_id=UUID(scope)
        )
        fresh = fresh.filter(api_key_id=UUID(scope))
    today = _midnight(day)
    tomorrow = today + timedelta(days=1)
    of_day = _tokens(rolled.filter(start=day)) + _tokens(fresh.filter(created_at__gte=today, created_at__lt=tomorrow))
    return Spent(scope, of_day, _tokens(rolled) + _tokens(fresh.filter(created_at__lt=tomorrow)))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _tokens(rows: QuerySet[Any]) -> int:
    return rows.order_by().aggregate(sum=Sum(F("prompt_tokens") + F("completion_tokens")))["sum"] or 0
