"""Reconciles counters with the ledger, which is authoritative, and notifies tenants whose budget runs out.

A counter lags if Redis lost its data, or if a host was lost and its journal was collected later.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from django.db.models import Q

from control_plane.billing.limits.models import LimitSet
from control_plane.billing.quotas.budget_alerts import tell
from control_plane.billing.quotas.budgets import OF_USABLE_KEYS, counter_of, currency, money_spent, scope_of
from control_plane.billing.quotas.limiter_factory import current_period, with_limiter
from control_plane.billing.quotas.limiter_interface import (
    BudgetPeriod,
    Limiter,
    LimiterUnavailableError,
    Spent,
    period_of,
)
from control_plane.billing.quotas.models import Budget, BudgetSpan
from control_plane.billing.quotas.queries import OF_TENANT, spending
from control_plane.console.webhooks.events import publish_quota
from control_plane.core.jobs import clocks
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)


# Time after the end of a day for which its notices are still sent: usage of its last minute is read on the next day.
NOTICES_AFTER = timedelta(minutes=10)
_SPANS = tuple(BudgetSpan)


def reconcile() -> int:
    """Reconcile the counters of every tenant with a budget. Returns the number of scopes read."""
    period = current_period()
    read = 0
    for tenant, sets, of_sets in _tokens_spent(period):
        read += len(of_sets)
        _lift(tenant, str(tenant.pk), period, of_sets)
        _tell_limits(tenant, sets, of_sets, period, _SPANS)
    for tenant, budgets, by_scope in _money_spent(period):
        read += len(by_scope)
        _lift(tenant, counter_of(tenant.pk), period, list(by_scope.values()))
        _tell_budgets(budgets, by_scope, period, _SPANS)
    _tell_ended(period)
    return read


def _tell_ended(period: BudgetPeriod) -> None:
    """Send the notices of the day, and the month, that ended a moment ago."""
    ended = period_of(int((clocks.database_time() - NOTICES_AFTER).timestamp() * 1000))
    if ended.day >= period.day:
        return
    spans = _SPANS if ended.month < period.month else (BudgetSpan.DAY,)
    for tenant, sets, of_sets in _tokens_spent(ended):
        _tell_limits(tenant, sets, of_sets, ended, spans)
    for _, budgets, by_scope in _money_spent(ended):
        _tell_budgets(budgets, by_scope, ended, spans)


def _tokens_spent(period: BudgetPeriod) -> Iterator[tuple[Tenant, list[LimitSet], list[Spent]]]:
    for tenant, sets in _budgeted().items():
        yield tenant, sets, spending(tenant.pk, [_scope(row) for row in sets], period)


def _money_spent(period: BudgetPeriod) -> Iterator[tuple[Tenant, list[Budget], dict[str, Spent]]]:
    by_tenant: defaultdict[Tenant, list[Budget]] = defaultdict(list)
    for row in Budget.objects.filter(OF_USABLE_KEYS).select_related("tenant", "api_key").order_by("id"):
        by_tenant[row.tenant].append(row)
    for tenant, budgets in by_tenant.items():
        spent = money_spent(counter_of(tenant.pk), sorted({scope_of(row) for row in budgets}), period)
        yield tenant, budgets, {each.scope: each for each in spent}


def _budgeted() -> dict[Tenant, list[LimitSet]]:
    budgets = Q(tokens_per_day__isnull=False) | Q(tokens_per_month__isnull=False)
    by_tenant: defaultdict[Tenant, list[LimitSet]] = defaultdict(list)
    for row in LimitSet.objects.filter(budgets).select_related("tenant"):
        by_tenant[row.tenant].append(row)
    return by_tenant


def _scope(row: LimitSet) -> str:
    return OF_TENANT if row.api_key_id is None else row.api_key_id.hex


def _lift(tenant: Tenant, counter: str, period: BudgetPeriod, spent: list[Spent]) -> None:
    async def lift(limiter: Limiter) -> None:
        await limiter.raise_to(counter, period, spent)

    try:
        with_limiter(lift)
    except LimiterUnavailableError as error:
        logger.warning("The budgets of %s were not compared with the ledger; the next run does it: %s", tenant, error)


def _tell_limits(
    tenant: Tenant,
    sets: Sequence[LimitSet],
    spent: Sequence[Spent],
    period: BudgetPeriod,
    spans: Collection[BudgetSpan],
) -> None:
    """Send the notices of a tenant's own limits."""
    day = period.date
    for row, each in zip(sets, spent, strict=True):
        budgets = {
            BudgetSpan.DAY: ("tokens_per_day", row.tokens_per_day, day.isoformat(), each.day),
            BudgetSpan.MONTH: ("tokens_per_month", row.tokens_per_month, f"{day:%Y-%m}", each.month),
        }
        for limit, allowed, name, used in (budgets[span] for span in spans):
            if allowed is not None and row.api_key_id is None:
                publish_quota(tenant, limit=limit, period=name, used=used, allowed=allowed)


def _tell_budgets(
    budgets: Sequence[Budget], spent: Mapping[str, Spent], period: BudgetPeriod, spans: Collection[BudgetSpan]
) -> None:
    money = currency()
    for row in budgets:
        if BudgetSpan(row.span) in spans:
            tell(row, spent[scope_of(row)], period, money)
