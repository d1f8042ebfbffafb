"""Usage as CSV, from rollup rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from control_plane.billing.prices.money import micros
from control_plane.billing.prices.periods import period_of, periods
from control_plane.billing.reports.models import Grain
from control_plane.billing.usage.aggregation import first_hour
from control_plane.billing.usage.base_models import BASE_COLUMNS, NamedBases
from control_plane.billing.usage.counters import SUMMED, SummedCounts
from control_plane.billing.usage.models import DailyUsage, HourlyUsage
from control_plane.billing.usage.sums import Span, cost_of, midnight
from control_plane.core.errors import LorikeetError
from control_plane.core.http.csv_files import lines, safe
from control_plane.identity.tenants.models import Tenant

PAGE = 1000
COLUMNS = (
    "start", "tenant", "adapter", "version", "key", "key_prefix", "outcome", "requests", *SUMMED, "cost_micros",
    "currency", "price_version", "batch", "base_model",
)  # fmt: skip
_READ = (
    "id", "start", "tenant__slug", "series__adapter__name", "series__version__number", "series__api_key__name",
    "series__api_key__prefix", "series__outcome", "requests", *SUMMED, *BASE_COLUMNS, "series__base_model_id",
    "series__batch",
)  # fmt: skip


def require_kept(span: Span, grain: Grain) -> None:
    """Raise LorikeetError (400) if hours of the span are no longer kept."""
    oldest = first_hour(timezone.now()).date()
    if grain is Grain.HOUR and span.first < oldest:
        raise LorikeetError(
            "hours_not_kept",
            f"Usage by the hour is kept from {oldest} on; before that, by the day.",
            'Begin later, or set grain to "day".',
            param="grain",
        )


class UsageTable:
    """The usage rows of one tenant, or of all for an operator, on all base models or some, in order of time.

    `pages` yields them as text, each page of whole lines.
    """

    def __init__(self, tenant: Tenant | None, span: Span, grain: Grain, bases: NamedBases | None = None) -> None:
        self._tenant, self._span, self._grain, self._bases = tenant, span, grain, bases
        self._prices = periods(span.first, span.last)
        self._last: tuple[Any, int] | None = None

    @property
    def file_name(self) -> str:
        who = self._tenant.slug if self._tenant else "all-tenants"
        return f"usage-{who}-{self._span.first}-{self._span.last}-by-{self._grain.value}.csv"

    def pages(self) -> Iterator[str]:
        yield lines([COLUMNS])
        while page := self.next_page():
            yield page

    def next_page(self) -> str:
        """Return the lines after the last page; "" at the end. Each call is one query."""
        rows = self._rows()
        if not rows:
            return ""
        self._last = (rows[-1][1], rows[-1][0])
        return lines([self._line(row) for row in rows])

    def _rows(self) -> list[tuple[Any, ...]]:
        rows: QuerySet[Any] = self._all().order_by("start", "id")
        if self._bases is not None:
            rows = rows.filter(self._bases.of("series__"))
        if self._last is not None:
            start, number = self._last
            rows = rows.filter(start__gte=start).exclude(start=start, id__lte=number)
        return list(rows.values_list(*_READ)[:PAGE])

    def _all(self) -> QuerySet[Any]:
        if self._grain is Grain.DAY:
            days = DailyUsage.objects.for_tenant(self._tenant) if self._tenant else DailyUsage.objects.all()
            return self._span.of(days)
        hours = HourlyUsage.objects.for_tenant(self._tenant) if self._tenant else HourlyUsage.objects.all()
        # Bounds that the index by start can use; of `start__date` each page would read all hours of the tenant.
        return hours.filter(
            start__gte=midnight(self._span.first), start__lt=midnight(self._span.last + timedelta(days=1))
        )

    def _line(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        _, start, *rest, base, of_version, base_id, batch = row
        used = SummedCounts(**dict(zip(SUMMED, rest[7:], strict=True)))
        day = start if self._grain is Grain.DAY else start.date()
        price = period_of(self._prices, day).price(base_id)
        cost = cost_of(price, used, batch=batch)
        texts = [safe(value) for value in rest[:6]]
        currency, number = (price.currency, price.number) if price else ("", "")
        return (
            start.isoformat(),
            *texts,
            *rest[6:],
            micros(cost),
            currency,
            number,
            str(batch).lower(),
            safe(base or of_version),
        )
