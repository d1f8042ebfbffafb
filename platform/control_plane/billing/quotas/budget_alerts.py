"""Alerts for budgets that are nearly or wholly spent, one for each threshold of a day or month."""

from __future__ import annotations

from typing import Any

from control_plane.billing.quotas.budgets import NANOS_A_MICRO, scope_of
from control_plane.billing.quotas.limiter_interface import BudgetPeriod, Spent
from control_plane.billing.quotas.models import Budget, BudgetSpan
from control_plane.console.webhooks.events import publish
from control_plane.console.webhooks.models import EventType


def spent_micros(budget: Budget, spent: Spent) -> int:
    """Return what is spent of a budget, in millionths of the currency, rounded half up as in every report."""
    nanos = spent.day if budget.span == BudgetSpan.DAY else spent.month
    return (nanos + NANOS_A_MICRO // 2) // NANOS_A_MICRO


def reached(budget: Budget, used_micros: int) -> int | None:
    """Return the highest threshold, in per cent, that is passed."""
    passed = [each for each in budget.alerts if used_micros * 100 >= each * budget.amount_micros]
    return max(passed, default=None)


def tell(budget: Budget, spent: Spent, period: BudgetPeriod, currency: str | None) -> None:
    """Publish an alert if a threshold is passed. Idempotent: each threshold of a period is published once."""
    used = spent_micros(budget, spent)
    threshold = reached(budget, used)
    if threshold is None:
        return
    # Like "2026-05-04" or "2026-05".
    name = period.date.isoformat() if budget.span == BudgetSpan.DAY else f"{period.date:%Y-%m}"
    publish(
        budget.tenant,
        EventType.BUDGET_ALERT,
        {**_about(budget), "period": name, "threshold": threshold, "spent_micros": used, "currency": currency},
        occasion=f"budget/{budget.pk}/{name}/{threshold}/{budget.amount_micros}",
    )


def _about(budget: Budget) -> dict[str, Any]:
    return {
        "scope": scope_of(budget) if budget.api_key is None else "key",
        "key": budget.api_key.name if budget.api_key else None,
        "by_operator": budget.by_operator,
        "span": budget.span,
        "amount_micros": budget.amount_micros,
        "at_limit": budget.at_limit,
    }
