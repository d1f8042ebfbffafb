"""A tenant's month as lines of quantity, price and amount; the total is the sum of its lines."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Sum

from control_plane.errors import LorikeetError
from control_plane.prices.models import PriceVersion
from control_plane.prices.money import micros, storage_micros
from control_plane.prices.periods import BillingPeriod, periods
from control_plane.tenants.models import Tenant
from control_plane.usage.models import DailyUsage, StorageDay
from control_plane.usage.sums import Span, UsageSums, as_of, summed, today


@dataclass(frozen=True)
class StatementLine:
    """`quantity` tokens or byte-hours of one kind at one price, from `first` to `last`."""

    kind: str  # of `serializers.LINE_KINDS`
    first: date
    last: date
    price_version: int
    unit_price_micros: int
    quantity: int
    amount_micros: int


def month_span(month: str) -> Span:
    """`"2026-05"` as its days. Raises LorikeetError (400)."""
    try:
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        raise LorikeetError(
            "bad_month", f'"{month}" is no month.', "Write year and month, like 2026-05.", param="month"
        ) from None
    return Span(first, first.replace(day=calendar.monthrange(first.year, first.month)[1]))


def statement(tenant: Tenant, month: str) -> dict[str, Any]:
    """What `month` cost so far; final once the month is over and `as_of` lies behind it."""
    span = month_span(month)
    lines = [
        line
        for stretch, last in _stretches(span)
        if stretch.price is not None
        for line in _lines(tenant, Span(stretch.first, last), stretch.price, span)
    ]
    currencies = {stretch.price.currency for stretch, _ in _stretches(span) if stretch.price is not None}
    return {
        "month": month,
        "currency": next(iter(currencies), None),
        "as_of": as_of(),
        "complete": today() > span.last,
        "lines": lines,
        "total_micros": sum(line.amount_micros for line in lines),
    }


def _stretches(span: Span) -> list[tuple[BillingPeriod, date]]:
    """Periods of one price within the month, each with its last day."""
    found = periods(span.first, span.last)
    ends = [period.first - timedelta(days=1) for period in found[1:]]
    return list(zip(found, [*ends, span.last], strict=True))


def _lines(tenant: Tenant, days: Span, price: PriceVersion, month: Span) -> list[StatementLine]:
    rows = days.of(DailyUsage.objects.for_tenant(tenant))
    used = summed(rows, [BillingPeriod(days.first, price)], ("series__batch",))
    lines = [
        _token_line(kind, days, price, used.get((batch,), UsageSums()), batch=batch)
        for batch in (False, True)
        for kind in ("input", "cached_input", "output")
    ]
    return [line for line in (*lines, _storage_line(tenant, days, price, month)) if line.quantity]


def _token_line(kind: str, days: Span, price: PriceVersion, used: UsageSums, *, batch: bool) -> StatementLine:
    quantities = {
        "input": used.prompt_tokens - used.cached_prompt_tokens,
        "cached_input": used.cached_prompt_tokens,
        "output": used.completion_tokens,
    }
    unit = price.per_million(kind, batch=batch)
    quantity = quantities[kind]
    return StatementLine(
        f"batch_{kind}" if batch else kind, days.first, days.last, price.number, unit, quantity, micros(quantity * unit)
    )


def _storage_line(tenant: Tenant, days: Span, price: PriceVersion, month: Span) -> StatementLine:
    stored = days.of(StorageDay.objects.for_tenant(tenant)).aggregate(total=Sum("byte_hours", default=0))["total"]
    amount = storage_micros(price, stored, len(month.days()) * 24)
    return StatementLine("storage", days.first, days.last, price.number, price.storage_per_gb_month, stored, amount)
