"""Which prices hold on which days. Versions change at midnight UTC, so that a day has one price for each base model.

One rule says which list counts: the base model's own, if it has one on that day, or else the installation's, which is
also that of what ran on a base model that is not known.
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
    """Days from `first` on with the same prices; none before there were any."""

    first: date
    general: PriceVersion | None
    own: Mapping[int, PriceVersion] = field(default_factory=dict)
    """By the primary keys of the base models that have a list of their own."""

    def price(self, base: int | None) -> PriceVersion | None:
        """Of requests to this base model."""
        return self.own.get(base or 0, self.general)

    @property
    def currency(self) -> str | None:
        """None without any price."""
        return next((price.currency for price in (self.general, *self.own.values()) if price), None)


def periods(first: date, last: date, versions: Sequence[PriceVersion] | None = None) -> list[BillingPeriod]:
    """The stretches of equal prices that cover `first` to `last`, in order."""
    known = sorted(versions if versions is not None else PriceVersion.objects.all(), key=_precedence)
    lists: defaultdict[int | None, list[PriceVersion]] = defaultdict(list)
    for version in known:
        lists[version.base_model_id].append(version)
    starts = sorted({first} | {version.effective_on for version in known if first < version.effective_on <= last})
    return [_period(start, lists) for start in starts]


def _period(start: date, lists: Mapping[int | None, Sequence[PriceVersion]]) -> BillingPeriod:
    held = {base: price for base, versions in lists.items() if (price := _price_on(start, versions))}
    own = {base: price for base, price in held.items() if base is not None and not price.inherits}
    return BillingPeriod(start, held.get(None), own)


def _precedence(version: PriceVersion) -> tuple[date, int]:
    return version.effective_on, version.number


def _price_on(day: date, ordered: Sequence[PriceVersion]) -> PriceVersion | None:
    held = [version for version in ordered if version.effective_on <= day]
    return held[-1] if held else None


def period_of(stretches: Sequence[BillingPeriod], day: date) -> BillingPeriod:
    """Of a day that they cover."""
    return [period for period in stretches if period.first <= day][-1]


def currency_of(stretches: Iterable[BillingPeriod]) -> str | None:
    """Of all price lists: it never changes. None while nothing has a price."""
    return next((period.currency for period in stretches if period.currency), None)


def period_number(stretches: Sequence[BillingPeriod], column: str) -> Case:
    """In SQL, the index of the period that the date in `column` falls into."""
    later = reversed(list(enumerate(stretches))[1:])
    cases = [When(**{f"{column}__gte": period.first}, then=Value(index)) for index, period in later]
    return Case(*cases, default=Value(0), output_field=IntegerField())
