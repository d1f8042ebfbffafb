"""The description of a table whose old rows are archived, and its months."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Model, QuerySet

Sums = dict[str, int]


@dataclass(frozen=True)
class ArchivedTable:
    """A table with whole numbers as `id` and a column `created_at`.

    `kept_months` returns how many whole months stay besides the present one; 0 keeps all. `settled_id` returns the id
    up to which rows may be archived. `reconcile` raises an error if other tables disagree with a month's totals, which
    are those of its parts and of the rows that are about to be deleted.
    """

    name: str
    model: type[Model]
    summed: tuple[str, ...]
    kept_months: Callable[[], int]
    settled_id: Callable[[], int]
    reconcile: Callable[[date, Sums], None]

    def rows(self, month: date, up_to: int) -> QuerySet[Any]:
        """Return the rows of a month with ids up to `up_to`, in no order."""
        first, end = bounds(month)
        rows: QuerySet[Any] = self.model._default_manager.all()
        return rows.filter(created_at__gte=first, created_at__lt=end, id__lte=up_to).order_by()

    def cutoff(self, now: datetime) -> date | None:
        """Return the first day that is kept; None if all are."""
        kept = self.kept_months()
        return months_before(month_of(now), kept) if kept else None


def month_of(at: datetime) -> date:
    return at.astimezone(UTC).date().replace(day=1)


def months_before(month: date, number: int) -> date:
    years, zero_based = divmod(month.year * 12 + month.month - 1 - number, 12)
    return date(years, zero_based + 1, 1)


def bounds(month: date) -> tuple[datetime, datetime]:
    """Return the first moment of a month and that of the next one."""
    first = datetime.combine(month, time(), UTC)
    return first, datetime.combine((month + timedelta(days=31)).replace(day=1), time(), UTC)


def added(left: Mapping[str, int], right: Mapping[str, int]) -> Sums:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}
