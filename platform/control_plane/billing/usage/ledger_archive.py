"""The archive of the ledger: months that all rollups hold, and that agree with them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta

from django.db.models import Sum

from control_plane.billing.archives import reading
from control_plane.billing.archives.archiving import ArchiveError
from control_plane.billing.archives.reading import ArchivedIds
from control_plane.billing.archives.tables import ArchivedTable, Sums, bounds
from control_plane.billing.usage.counters import SUMMED
from control_plane.billing.usage.models import DailyTotals, DailyUsage, OverallTotals, UsageEvent, Watermark
from control_plane.core.config import current
from control_plane.core.jobs import clocks

LEDGER_NAME = "ledger"
# Age from which a request may be archived. The setting keeps at least two whole months, of at least 59 days.
ARCHIVED_AFTER = timedelta(days=56)


class ArchivedMeanwhileError(RuntimeError):
    """A part was added while late requests were searched for in the archive: search again."""


def settled_id() -> int:
    """Return the id up to which every rollup holds the ledger."""
    mark = Watermark.objects.filter(pk=1).first()
    if mark is None:
        return 0
    return min(mark.event_id, mark.overall_event_id, mark.series_event_id, mark.activity_event_id)


def reconcile(month: date, totals: Sums) -> None:
    """Compare a month's requests and sums with each of its rollups by day. Raises ArchiveError."""
    expected = (totals["rows"], *(totals[f"sum_{name}"] for name in SUMMED))
    for model in (DailyUsage, DailyTotals, OverallTotals):
        actual = rollup_totals(model, month)
        if actual != expected:
            raise ArchiveError(
                f"{model.__name__} of {month:%Y-%m} has {actual}, and the ledger with its archives {expected}: run "
                "manage.py check_rollups"
            )


def rollup_totals(model: type[DailyUsage | DailyTotals | OverallTotals], month: date) -> tuple[int, ...]:
    """Return the requests of a month and the sums of their counts, in the order of `SUMMED`."""
    first, end = bounds(month)
    days = model._default_manager.filter(start__gte=first.date(), start__lt=end.date())
    sums = days.aggregate(**{name: Sum(name, default=0) for name in ("requests", *SUMMED)})
    return tuple(sums[name] for name in ("requests", *SUMMED))


LEDGER = ArchivedTable(
    name=LEDGER_NAME,
    model=UsageEvent,
    summed=SUMMED,
    kept_months=lambda: current().ledger_months,
    settled_id=settled_id,
    reconcile=reconcile,
)


class LateRequests:
    """The requests of a report that are old enough to be archived, of which some may be in the archive already.

    A host that was away for months reports what its journal has, also requests whose report was stored and whose rows
    were archived since. `recorded` returns the latter. Call `require_current` in the transaction that appends the
    others, after it has read the ledger: rows are deleted only after their part is in the database.
    """

    def __init__(self, times: Mapping[str, datetime]) -> None:
        oldest = clocks.now() - ARCHIVED_AFTER
        self._late = {request_id: at for request_id, at in times.items() if at < oldest}
        self._archived: ArchivedIds | None = None

    def recorded(self) -> frozenset[str]:
        """Return the ids that are in the archive. Raises OSError if the store is away."""
        if not self._late:
            return frozenset()
        self._archived = reading.search(LEDGER_NAME, "request_id", self._late.keys(), self._late.values())
        return self._archived.matches

    def require_current(self) -> None:
        """Raise ArchivedMeanwhileError if a part was added since the search."""
        if self._archived is None:
            return
        now = {part.pk for part in reading.searchable(LEDGER_NAME, self._late.values())}
        if now != self._archived.searched:
            raise ArchivedMeanwhileError
