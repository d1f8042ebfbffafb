"""The limits of a caller, and their usage by the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet, Sum

from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.values import UNLIMITED, Limits
from control_plane.billing.quotas.limiter_interface import EPOCH, BudgetPeriod, Scope, Spent
from control_plane.billing.usage.models import DailyTotals, DailyUsage, UsageEvent, Watermark
from control_plane.billing.usage.sums import midnight
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

OF_TENANT = "tenant"


@dataclass(frozen=True)
class PrincipalLimits:
    """The limits of a caller: the tenant's, and the key's if it uses one."""

    tenant: Limits = UNLIMITED
    key: Limits = UNLIMITED

    @property
    def max_output_tokens(self) -> int | None:
        both = [one for one in (self.tenant.max_output_tokens, self.key.max_output_tokens) if one is not None]
        return min(both, default=None)

    def scopes(self, key_id: UUID | None) -> tuple[Scope, ...]:
        """Return the scopes to count. The tenant is counted with its key, so that both pages show the same figures."""
        if not (self.tenant.counted or self.key.counted):
            return ()
        tenant_scope = Scope(OF_TENANT, self.tenant)
        return (tenant_scope,) if key_id is None else (tenant_scope, Scope(key_id.hex, self.key))


def limits_of(tenant: Tenant, key: ApiKey | None) -> PrincipalLimits:
    rows = LimitSet.objects.for_tenant(tenant).filter(Q(api_key=None) | Q(api_key=key))
    limits = {row.api_key_id: row.limits for row in rows}
    return PrincipalLimits(limits.get(None, UNLIMITED), limits.get(key.pk, UNLIMITED) if key else UNLIMITED)


def spending(tenant_id: UUID | str, scopes: Sequence[str], period: BudgetPeriod) -> list[Spent]:
    """Return the tokens of a day and its month by the whole ledger: rollups, and the rows that are not in them yet.

    The number of queries does not depend on the number of scopes.
    """
    first, day = EPOCH + timedelta(days=period.month), period.date
    while True:
        mark = ledger_mark()
        sums = _spent(tenant_id, scopes, first, day, mark)
        if ledger_mark() == mark:  # else the aggregator ran between two of the queries, and rows were read twice
            return sums


def ledger_mark() -> int:
    return Watermark.objects.values_list("event_id", flat=True).first() or 0


def _spent(tenant_id: UUID | str, scopes: Sequence[str], first: date, day: date, mark: int) -> list[Spent]:
    keys = [UUID(scope) for scope in scopes if scope != OF_TENANT]
    today, tomorrow = midnight(day), midnight(day + timedelta(days=1))
    fresh = UsageEvent.objects.filter(
        tenant_id=tenant_id, id__gt=mark, created_at__gte=midnight(first), created_at__lt=tomorrow
    )
    spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
    if keys:
        rolled = DailyUsage.objects.filter(
            tenant_id=tenant_id, start__gte=first, start__lte=day, series__api_key_id__in=keys
        )
        _add_tokens(spent, rolled, Q(start=day), "series__api_key_id")
        _add_tokens(spent, fresh.filter(api_key_id__in=keys), Q(created_at__gte=today), "api_key_id")
    if OF_TENANT in scopes:
        of_all = DailyTotals.objects.filter(tenant_id=tenant_id, start__gte=first, start__lte=day)
        _add_tokens(spent, of_all, Q(start=day), "tenant_id", OF_TENANT)
        _add_tokens(spent, fresh, Q(created_at__gte=today), "tenant_id", OF_TENANT)
    return [Spent(scope, spent[scope]["day"], spent[scope]["month"]) for scope in scopes]


def _add_tokens(
    spent: dict[str, Counter[str]], rows: QuerySet[Any], of_day: Q, by: str, scope: str | None = None
) -> None:
    """Add the sums of rows to `scope`, or else to the scope that the column `by` names."""
    tokens = F("prompt_tokens") + F("completion_tokens")
    sums = {"month": Sum(tokens, default=0), "day": Sum(tokens, filter=of_day, default=0)}
    for owner, month, today in rows.order_by().values_list(by).annotate(**sums):
        spent[scope or owner.hex].update(month=month, day=today)
