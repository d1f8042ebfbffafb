"""Budgets in money: caps on a caller's spending, the spending by the ledger, and actions that set budgets.

The limiter that counts tokens also counts money, under a separate name and in billionths of the currency: the most that
a request may cost is reserved when it comes in, and replaced by its cost when it ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from control_plane.billing.limits.values import Limits
from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import tokens_cost
from control_plane.billing.prices.periods import BillingPeriod, period_of, periods
from control_plane.billing.quotas.limiter_interface import EPOCH, BudgetPeriod, Scope, Spent
from control_plane.billing.quotas.models import AtLimit, Budget, BudgetSpan
from control_plane.billing.quotas.queries import OF_TENANT, ledger_mark
from control_plane.billing.usage.counters import ReportedCounts
from control_plane.billing.usage.models import DailyTotals, DailyUsage, UsageEvent
from control_plane.billing.usage.sums import cost_of, midnight, summed
from control_plane.core.errors import LorikeetError
from control_plane.core.writes import announce
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

NANOS_A_MICRO = 1000
_PICOS_A_NANO = 1000
_COUNTER = "/money"


@dataclass(frozen=True)
class BudgetTerms:
    """The terms of one budget, as a caller sets them."""

    amount_micros: int
    at_limit: AtLimit = AtLimit.REFUSE
    alerts: tuple[int, ...] = (50, 80, 100)


Terms = Mapping[BudgetSpan, BudgetTerms | None]


@dataclass(frozen=True)
class CallerBudgets:
    """The limits of a caller's spending: caps in billionths of the currency, and today's prices."""

    scopes: tuple[Scope, ...] = ()
    prices: BillingPeriod | None = None

    @property
    def currency(self) -> str | None:
        """The currency; None without prices, when requests cost nothing and are not counted."""
        return self.prices.currency if self.scopes and self.prices else None

    def nanos(self, base: int | None, *, prompt: int, completion: int, cached: int = 0, batch: bool) -> int:
        """Return the cost of these tokens of a base model, to the nearest billionth."""
        price = self.prices.price(base) if self.prices else None
        if price is None:
            return 0
        return _nanos(tokens_cost(price, prompt=prompt, cached=cached, completion=completion, batch=batch))

    def most_nanos(self, base: int | None, *, prompt: int, completion: int, batch: bool) -> int:
        """Return the highest cost of these tokens, cached or not."""
        cached_or_not = (0, prompt)
        return max(
            self.nanos(base, prompt=prompt, completion=completion, cached=cached, batch=batch)
            for cached in cached_or_not
        )


UNBUDGETED = CallerBudgets()


class NoPricesError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "no_prices",
            "There are no prices, so nothing can be counted against a budget.",
            "An operator must publish a price list first; limits of tokens need none.",
            status=409,
        )


class AboveGrantError(LorikeetError):
    def __init__(self, span: BudgetSpan, granted: int) -> None:
        super().__init__(
            "budget_above_grant",
            f"The operator lets this tenant spend at most {granted / 1e6:.2f} a {span}.",
            "Choose no more than that, or ask the operator for more.",
            param=span.value,
        )


def counter_of(tenant_id: UUID | str) -> str:
    """Return the name under which the limiter counts a tenant's money."""
    return f"{tenant_id}{_COUNTER}"


def caller_budgets(tenant: Tenant, key: ApiKey | None) -> CallerBudgets:
    """Return the budgets that refuse a caller's requests; budgets that only warn are left out."""
    applies = Q(api_key=None) if key is None else Q(api_key=None) | Q(api_key=key)
    by_scope: defaultdict[str, list[Budget]] = defaultdict(list)
    for row in Budget.objects.for_tenant(tenant).filter(applies, at_limit=AtLimit.REFUSE):
        by_scope[scope_of(row)].append(row)
    if not by_scope:
        return UNBUDGETED
    scopes = tuple(Scope(name, _caps(rows)) for name, rows in sorted(by_scope.items()))
    return CallerBudgets(scopes, _prices_of_today())


OF_USABLE_KEYS = Q(api_key=None) | Q(api_key__revoked_at=None)


def scope_of(budget: Budget) -> str:
    return OF_TENANT if budget.api_key_id is None else budget.api_key_id.hex


def _caps(budgets: Sequence[Budget]) -> Limits:
    """Return the smallest amount of each span. The limiter's tokens are billionths of the currency here."""
    caps = {
        span: min((each.amount_micros * NANOS_A_MICRO for each in budgets if each.span == span), default=None)
        for span in BudgetSpan
    }
    return Limits(tokens_per_day=caps[BudgetSpan.DAY], tokens_per_month=caps[BudgetSpan.MONTH])


def _prices_of_today() -> BillingPeriod:
    today = timezone.now().astimezone(UTC).date()
    return periods(today, today)[0]


def currency() -> str | None:
    """Return the currency of all price lists, which never changes; None without a list."""
    return PriceVersion.objects.values_list("currency", flat=True).first()


# -- what is spent --------------------------------------------------------------------------------------------------


def money_spent(counter: str, scopes: Sequence[str], period: BudgetPeriod) -> list[Spent]:
    """Return the spending of a day and its month, in billionths, by the whole ledger. `counter` names the tenant.

    The number of queries does not depend on the number of scopes.
    """
    tenant_id = counter.removesuffix(_COUNTER)
    first, day = EPOCH + timedelta(days=period.month), period.date
    prices = periods(first, day)
    while True:
        mark = ledger_mark()
        costs = _costs(tenant_id, scopes, first, day, mark, prices)
        if ledger_mark() == mark:
            return [_spent(scope, costs[scope], day) for scope in scopes]


def _spent(scope: str, by_day: Mapping[date, int], day: date) -> Spent:
    return Spent(scope, _nanos(by_day.get(day, 0)), _nanos(sum(by_day.values())))


Costs = defaultdict[str, Counter[date]]


def _costs(
    tenant_id: str, scopes: Sequence[str], first: date, day: date, mark: int, prices: Sequence[BillingPeriod]
) -> Costs:
    """Return the costs in 10^-12 of the currency, by scope and day."""
    costs: Costs = defaultdict(Counter)
    keys = [UUID(scope) for scope in scopes if scope != OF_TENANT]
    of_days = {"tenant_id": tenant_id, "start__gte": first, "start__lte": day}
    tomorrow = midnight(day + timedelta(days=1))
    fresh = UsageEvent.objects.filter(
        tenant_id=tenant_id, id__gt=mark, created_at__gte=midnight(first), created_at__lt=tomorrow
    )
    if keys:
        rolled = DailyUsage.objects.filter(**of_days, series__api_key_id__in=keys)
        for (key, start), sums in summed(rolled, prices, ("series__api_key_id", "start")).items():
            costs[key.hex][start] += sums.cost_pico
        for key, start, pico in _fresh_costs(fresh.filter(api_key_id__in=keys), "api_key_id", prices):
            costs[key.hex][start] += pico
    if OF_TENANT in scopes:
        for (start,), sums in summed(DailyTotals.objects.filter(**of_days), prices, ("start",)).items():
            costs[OF_TENANT][start] += sums.cost_pico
        for _, start, pico in _fresh_costs(fresh, "tenant_id", prices):
            costs[OF_TENANT][start] += pico
    return costs


_TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens")


def _fresh_costs(
    rows: QuerySet[UsageEvent], by: str, prices: Sequence[BillingPeriod]
) -> Iterable[tuple[UUID, date, int]]:
    days = rows.annotate(day=TruncDate("created_at", tzinfo=UTC)).order_by()
    grouped = days.values_list(by, "day", "batch", "base_model_id")
    for owner, day, batch, base, *sums in grouped.annotate(**{f"sum_{name}": Sum(name) for name in _TOKENS}):
        used = ReportedCounts(**dict(zip(_TOKENS, sums, strict=True)))
        yield owner, day, cost_of(period_of(prices, day).price(base), used, batch=batch)


def _nanos(pico: int) -> int:
    return (pico + _PICOS_A_NANO // 2) // _PICOS_A_NANO


# -- setting --------------------------------------------------------------------------------------------------------


def set_granted_budgets(*, actor: Actor, tenant: Tenant, terms: Terms) -> None:
    """Set what an operator lets a tenant spend. In force within two seconds; running requests are completed.

    Raises NoPricesError.
    """
    with transaction.atomic():
        _store(actor, tenant, None, terms, by_operator=True)


def set_tenant_budgets(*, acting: Principal, terms: Terms) -> None:
    """Set a tenant's own budgets. Raises NoPricesError, AboveGrantError."""
    with transaction.atomic():
        _refuse_above_grant(acting.tenant, terms)
        _store(acting.actor, acting.tenant, None, terms)


def set_key_budgets(*, acting: Principal, key: ApiKey, terms: Terms) -> None:
    """Set the budgets of a tenant's key. Raises NoPricesError, AboveGrantError."""
    with transaction.atomic():
        _refuse_above_grant(acting.tenant, terms)
        _store(acting.actor, acting.tenant, key, terms)


def _refuse_above_grant(tenant: Tenant, terms: Terms) -> None:
    for granted in Budget.objects.for_tenant(tenant).filter(by_operator=True):
        span = BudgetSpan(granted.span)
        wanted = terms.get(span)
        if wanted is not None and wanted.amount_micros > granted.amount_micros:
            raise AboveGrantError(span, granted.amount_micros)


def _store(actor: Actor, tenant: Tenant, key: ApiKey | None, terms: Terms, *, by_operator: bool = False) -> None:
    if currency() is None and any(terms.values()):
        raise NoPricesError
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # one change after another
    rows = Budget.objects.for_tenant(tenant)
    before = {row.span: _json(row) for row in rows.filter(api_key=key, by_operator=by_operator)}
    set_budgets = {span.value: _json(each) for span in BudgetSpan if (each := terms.get(span)) is not None}
    if set_budgets == before:
        return
    for span in BudgetSpan:
        wanted = terms.get(span)
        whose: dict[str, Any] = {"tenant": tenant, "api_key": key, "by_operator": by_operator, "span": span}
        if wanted is None:
            rows.filter(**whose).delete()
        else:
            rows.update_or_create(
                **whose,
                defaults={
                    "amount_micros": wanted.amount_micros,
                    "at_limit": wanted.at_limit,
                    "alerts": sorted(set(wanted.alerts)),
                },
            )
    action = "key.budgets" if key else "tenant.budgets"
    label = key.name if key else tenant.slug
    detail = {"budgets": set_budgets, "before": before, "granted": by_operator}
    audit.record(actor, action, key or tenant, tenant=tenant, label=label, **detail)
    announce(tenant.pk, "budgets.updated", lambda: {"key": str(key.pk) if key else None})


def _json(terms: BudgetTerms | Budget) -> dict[str, Any]:
    alerts = sorted(set(terms.alerts))
    return {"amount_micros": terms.amount_micros, "at_limit": str(terms.at_limit), "alerts": alerts}
