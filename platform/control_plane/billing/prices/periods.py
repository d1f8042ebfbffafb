"""Periods of equal prices. Versions change at midnight UTC, so that a day has one price for each base model.

A base model's own list applies on the days on which it has one, else the installation's list. The latter also prices
requests of an unknown base model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from django.db.models import Case, IntegerField, Value, When

from control_plane.billing.prices.models import PriceVersion


@dataclass(frozen=True)
class BillingPeriod:
    """Consecutive days from `first` on with the same prices; no prices before the first list."""

    first: date
    general: PriceVersion | None
    # Lists of base models, by the base models' primary keys.
    by_base: Mapping[int, PriceVersion] = field(default_factory=dict)

    def price(self, base: int | None) -> PriceVersion | None:
        """Return the price of requests to this base model."""
        return self.by_base.get(base or 0, self.general)

    @property
    def currency(self) -> str | None:
        """The currency; None without prices."""
        return next((price.currency for price in (self.general, *self.by_base.values()) if price), None)


def periods(first: date, last: date, versions: Sequence[PriceVersion] | None = None) -> list[BillingPeriod]:
    """Return the periods of equal prices that cover `first` to `last`, in order."""
    unordered = versions if versions is not None else PriceVersion.objects.all()
    known = sorted(unordered, key=lambda version: (version.effective_on, version.number))
    lists: defaultdict[int | None, list[PriceVersion]] = defaultdict(list)
    for version in known:
        lists[version.base_model_id].append(version)
    starts = sorted({first} | {version.effective_on for version in known if first < version.effective_on <= last})
    return [_period(start, lists) for start in starts]


def _period(start: date, lists: Mapping[int | None, Sequence[PriceVersion]]) -> BillingPeriod:
    prices = {base: price for base, versions in lists.items() if (price := _price_on(start, versions))}
    by_base = {base: price for base, price in prices.items() if base is not None and not price.inherits}
    return BillingPeriod(start, prices.get(None), by_base)


def _price_on(day: date, ordered: Sequence[PriceVersion]) -> PriceVersion | None:
    begun = [version for version in ordered if version.effective_on <= day]
    return begun[-1] if begun else None


def period_of(stretches: Sequence[BillingPeriod], day: date) -> BillingPeriod:
    """Return the period of a day that the periods cover."""
    return [period for period in stretches if period.first <= day][-1]


def currency_of(stretches: Iterable[BillingPeriod]) -> str | None:
    """Return the currency of all price lists, which never changes. None while nothing has a price."""
    return next((period.currency for period in stretches if period.currency), None)


def period_number(stretches: Sequence[BillingPeriod], column: str) -> Case:
    """Return an SQL expression for the index of the period that the date in `column` falls into."""
    later = reversed(list(enumerate(stretches))[1:])
    cases = [When(**{f"{column}__gte": period.first}, then=Value(index)) for index, period in later]
    return Case(*cases, default=Value(0), output_field=IntegerField())
