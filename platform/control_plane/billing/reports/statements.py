"""Statements: a tenant's month as lines of quantity, price and amount; the total is the sum of its lines."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Sum

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import micros, storage_micros
from control_plane.billing.prices.periods import BillingPeriod, currency_of, periods
from control_plane.billing.usage.models import DailyUsage, StorageDay
from control_plane.billing.usage.sums import Span, UsageSums, as_of, is_settled, priced
from control_plane.core.errors import LorikeetError
from control_plane.core.http.serializers import FIRST_YEAR, LAST_YEAR
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.tenants.models import Tenant


@dataclass(frozen=True)
class StatementLine:
    """The `quantity` of tokens or byte-hours of one kind at one price, from `first` to `last`.

    `base_model` is the current name of the base model whose price list applies; None for the installation's list.
    """

    kind: str  # of `serializers.LINE_KINDS`
    base_model: str | None
    first: date
    last: date
    price_version: int
    unit_price_micros: int
    quantity: int
    amount_micros: int


def month_span(month: str) -> Span:
    """Return the days of a month like "2026-05". Raises LorikeetError (400)."""
    try:
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        first = None
    if first is None or not FIRST_YEAR <= first.year <= LAST_YEAR:
        raise LorikeetError(
            "bad_month", f'"{month}" is not a month.', "Write year and month, like 2026-05.", param="month"
        )
    return Span(first, first.replace(day=calendar.monthrange(first.year, first.month)[1]))


def statement(tenant: Tenant, month: str) -> dict[str, Any]:
    """Return the cost of `month` so far; it is final once the month is over and `as_of` is later."""
    span = month_span(month)
    billing_periods = periods(span.first, span.last)
    lines = [
        line for line in (*_token_lines(tenant, span, billing_periods), *_storage_lines(tenant, span)) if line.quantity
    ]
    return {
        "month": month,
        "currency": currency_of(billing_periods),
        "as_of": as_of(),
        "complete": is_settled(span.last),
        "lines": sorted(lines, key=lambda line: (line.base_model is not None, line.base_model or "", line.first)),
        "total_micros": sum(line.amount_micros for line in lines),
    }


def _price_days(span: Span, billing_periods: Sequence[BillingPeriod]) -> dict[PriceVersion, Span]:
    """Return each price version of any list with its days within the month."""
    ends = [period.first - timedelta(days=1) for period in billing_periods[1:]]
    days: dict[PriceVersion, Span] = {}
    for period, last in zip(billing_periods, [*ends, span.last], strict=True):
        for price in (period.general, *period.by_base.values()):
            if price is not None:
                days[price] = Span(days[price].first if price in days else period.first, last)
    return days


def _token_lines(tenant: Tenant, span: Span, billing_periods: Sequence[BillingPeriod]) -> list[StatementLine]:
    used: defaultdict[tuple[PriceVersion, bool], UsageSums] = defaultdict(UsageSums)
    for part in priced(span.of(DailyUsage.objects.for_tenant(tenant)), billing_periods, ()):
        if part.price is not None:
            used[part.price, part.batch] += part.sums
    price_days = _price_days(span, billing_periods)
    names: dict[int | None, str] = dict(
        BaseModel.objects.filter(pk__in={price.base_model_id for price in price_days}).values_list("pk", "name")
    )
    return [
        _token_line(kind, days, price, names.get(price.base_model_id), used[price, batch], batch=batch)
        for price, days in price_days.items()
        for batch in (False, True)
        for kind in ("input", "cached_input", "output")
    ]


def _token_line(
    kind: str, days: Span, price: PriceVersion, base: str | None, used: UsageSums, *, batch: bool
) -> StatementLine:
    quantities = {
        "input": used.prompt_tokens - used.cached_prompt_tokens,
        "cached_input": used.cached_prompt_tokens,
        "output": used.completion_tokens,
    }
    unit = price.per_million(kind, batch=batch)
    quantity = quantities[kind]
    name = f"batch_{kind}" if batch else kind
    return StatementLine(name, base, days.first, days.last, price.number, unit, quantity, micros(quantity * unit))


def _storage_lines(tenant: Tenant, month: Span) -> list[StatementLine]:
    """Return the lines of storage, at the installation's prices for adapters of all base models."""
    general = list(PriceVersion.objects.filter(base_model=None))
    price_days = _price_days(month, periods(month.first, month.last, general))
    return [_storage_line(tenant, days, price, month) for price, days in price_days.items()]


def _storage_line(tenant: Tenant, days: Span, price: PriceVersion, month: Span) -> StatementLine:
    stored = days.of(StorageDay.objects.for_tenant(tenant)).aggregate(total=Sum("byte_hours", default=0))["total"]
    unit = price.storage_per_gb_month
    amount = storage_micros(price, stored, len(month.days()) * 24)
    return StatementLine("storage", None, days.first, days.last, price.number, unit, stored, amount)
