"""Which prices hold on which days. Versions change at midnight UTC, so that a day has one price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.db.models import Case, IntegerField, Value, When

from control_plane.prices.models import PriceVersion


@dataclass(frozen=True)
class BillingPeriod:
    """Days from `first` on with one price; no price before there was any."""

    first: date
    price: PriceVersion | None


def periods(first: date, last: date, versions: Sequence[PriceVersion] | None = None) -> list[BillingPeriod]:
    """The stretches of equal price that cover `first` to `last`, in order."""
    known = sorted(versions if versions is not None else PriceVersion.objects.all(), key=_precedence)
    starts = sorted({first} | {version.effective_on for version in known if first < version.effective_on <= last})
    return [BillingPeriod(start, price_on(start, known)) for start in starts]


def _precedence(version: PriceVersion) -> tuple[date, int]:
    return version.effective_on, version.number


def price_on(day: date, ordered: Sequence[PriceVersion]) -> PriceVersion | None:
    held = [version for version in ordered if version.effective_on <= day]
    return held[-1] if held else None


def price_within(stretches: Sequence[BillingPeriod], day: date) -> PriceVersion | None:
    """Of a day that they cover."""
    return [period.price for period in stretches if period.first <= day][-1]


def period_number(stretches: Sequence[BillingPeriod], column: str) -> Case:
    """In SQL, the index of the period that the date in `column` falls into."""
    later = reversed(list(enumerate(stretches))[1:])
    cases = [When(**{f"{column}__gte": period.first}, then=Value(index)) for index, period in later]
    return Case(*cases, default=Value(0), output_field=IntegerField())
