"""Reconciles counters with the ledger, which is authoritative, and notifies tenants whose budget runs out.

A counter lags if Redis lost its data, or if a host was lost and its journal was collected later.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from django.db.models import Q

from control_plane.billing.limits.models import LimitSet
from control_plane.billing.quotas.budget_alerts import tell
from control_plane.billing.quotas.budgets import OF_USABLE_KEYS, counter_of, currency, money_spent, scope_of
from control_plane.billing.quotas.limiter_factory import current_period, with_limiter
from control_plane.billing.quotas.limiter_interface import BudgetPeriod, Limiter, LimiterUnavailableError, Spent
from control_plane.billing.quotas.models import Budget
from control_plane.billing.quotas.queries import OF_TENANT, spending
from control_plane.console.webhooks.events import publish_quota
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)


def reconcile() -> int:
    """Reconcile the counters of every tenant with a budget. Returns the number of scopes read."""
    period = current_period()
    return _reconcile_tokens(period) + _reconcile_money(period)


def _reconcile_tokens(period: BudgetPeriod) -> int:
    read = 0
    for tenant, sets in _budgeted().items():
        spent = spending(tenant.pk, [_scope(row) for row in sets], period)
        read += len(spent)
        _lift(tenant, str(tenant.pk), period, spent)
        for row, each in zip(sets, spent, strict=True):
            if row.api_key_id is None:
                _tell(tenant, row, each, period)
    return read


def _reconcile_money(period: BudgetPeriod) -> int:
    by_tenant: defaultdict[Tenant, list[Budget]] = defaultdict(list)
    for row in Budget.objects.filter(OF_USABLE_KEYS).select_related("tenant", "api_key").order_by("id"):
        by_tenant[row.tenant].append(row)
    of, read = currency() if by_tenant else None, 0
    for tenant, budgets in by_tenant.items():
        counter = counter_of(tenant.pk)
        spent = {each.scope: each for each in money_spent(counter, sorted({scope_of(row) for row in budgets}), period)}
        read += len(spent)
        _lift(tenant, counter, period, list(spent.values()))
        for row in budgets:
            tell(row, spent[scope_of(row)], period, of)
    return read


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


def _tell(tenant: Tenant, row: LimitSet, spent: Spent, period: BudgetPeriod) -> None:
    day = period.date
    budgets = (
        ("tokens_per_day", row.tokens_per_day, day.isoformat(), spent.day),
        ("tokens_per_month", row.tokens_per_month, f"{day:%Y-%m}", spent.month),
    )
    for limit, allowed, name, used in budgets:
        if allowed is not None:
            publish_quota(tenant, limit=limit, period=name, used=used, allowed=allowed)
