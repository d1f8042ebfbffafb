"""Reports of budgets with what is spent of each."""

from __future__ import annotations

from typing import Any

from control_plane.billing.quotas.budget_alerts import reached, spent_micros
from control_plane.billing.quotas.budgets import OF_USABLE_KEYS, counter_of, currency, money_spent, scope_of
from control_plane.billing.quotas.limiter_factory import current_period
from control_plane.billing.quotas.limiter_interface import Spent
from control_plane.billing.quotas.models import Budget, BudgetSpan
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

# Keys that a report lists: those with the least left of their budgets.
MAX_KEYS = 50
Set = dict[str, dict[str, Any] | None]


def budget_report(tenant: Tenant) -> dict[str, Any]:
    """Return a tenant's budgets for `BudgetReportSerializer`."""
    budgets = Budget.objects.for_tenant(tenant).filter(OF_USABLE_KEYS)
    rows = list(budgets.select_related("api_key").order_by("api_key__name", "id"))
    spent = _spent(tenant, rows)
    keys = _of_keys([row for row in rows if row.api_key_id is not None], spent)
    return {
        "currency": currency(),
        "granted": _set([row for row in rows if row.by_operator], spent),
        "own": _set([row for row in rows if not row.by_operator and row.api_key_id is None], spent),
        "keys": sorted(keys, key=_least_left)[:MAX_KEYS],
        "keys_total": len(keys),
    }


def key_budgets(key: ApiKey) -> Set:
    """Return a key's budgets for `BudgetStatesSerializer`."""
    rows = list(Budget.objects.for_tenant(key.tenant).filter(api_key=key))
    return _set(rows, _spent(key.tenant, rows))


def _spent(tenant: Tenant, rows: list[Budget]) -> dict[str, Spent]:
    if not rows:
        return {}
    scopes = sorted({scope_of(row) for row in rows})
    known = money_spent(counter_of(tenant.pk), scopes, current_period())
    return {each.scope: each for each in known}


def _least_left(key: dict[str, Any]) -> float:
    states = [key[span.value] for span in BudgetSpan if key[span.value] is not None]
    return min((-each["spent_micros"] / each["amount_micros"] for each in states), default=0.0)


def _of_keys(rows: list[Budget], spent: dict[str, Spent]) -> list[dict[str, Any]]:
    keys = {row.api_key_id: row.api_key for row in rows}
    return [
        {"id": pk, "name": key.name, "prefix": key.prefix, **_set([row for row in rows if row.api_key_id == pk], spent)}
        for pk, key in keys.items()
        if key is not None
    ]


def _set(rows: list[Budget], spent: dict[str, Spent]) -> Set:
    by_span: dict[str, Budget] = {row.span: row for row in rows}
    return {span.value: _one(by_span[span], spent) if span in by_span else None for span in BudgetSpan}


def _one(row: Budget, spent: dict[str, Spent]) -> dict[str, Any]:
    used = spent_micros(row, spent[scope_of(row)])
    return {
        "amount_micros": row.amount_micros,
        "at_limit": row.at_limit,
        "alerts": row.alerts,
        "spent_micros": used,
        "reached": reached(row, used),
    }
