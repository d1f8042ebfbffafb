"""Queries of time series: of a tenant, an adapter, a key or a host, over a window of time, in steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import Case, F, IntegerField, Q, QuerySet, Sum, TextChoices, When
from django.utils import timezone

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.periods import currency_of, periods
from control_plane.billing.usage.counters import SUMMED
from control_plane.billing.usage.models import Metric, Outcome, SeriesKind, TimeSeries
from control_plane.billing.usage.sums import COUNTED, Span, UsageSums, as_of, percentiles
from control_plane.billing.usage.time_series import (
    DAYS,
    HOURS,
    MINUTES,
    Resolution,
    latencies_of,
    minute_of,
    time_of,
)
from control_plane.core.errors import LorikeetError
from control_plane.identity.tenants.models import Tenant

# Minutes of each range.
RANGES = {
    "15m": 15, "1h": 60, "3h": 180, "6h": 360, "12h": 720, "1d": 1440, "2d": 2880, "7d": 10_080, "30d": 43_200,
    "90d": 129_600,
}  # fmt: skip
# Minutes of a step. Each divides a day, so that a step has one price.
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
# How far windows go back, and how far by minutes.
KEPT, IN_MINUTES = timedelta(days=90), timedelta(days=2)
# Points of a report whose step was left out, and of any report.
WANTED_POINTS = 100
MAX_POINTS = 1500
_DAY = 1440
_WHOLE = IntegerField()
# Rows of each breakdown, those with most requests.
MAX_PARTS = 100
# Rows of a breakdown that have their steps: a chart shows no more lines.
MAX_LINES = 10
_LONGEST_FIRST = (DAYS, HOURS, MINUTES)
Buckets = dict[int, int]
Latencies = dict[Metric, Buckets]


@dataclass(frozen=True)
class Window:
    """A window from `first` until before `end`, both in minutes since 1970, shown in steps.

    Steps begin at multiples of `step`. The first and the last step may begin before `first` or end after `end`; only
    their part inside the window is counted, so that adjacent windows add up whatever their steps are.
    """

    first: int
    end: int
    step: int

    def starts(self) -> range:
        return range(self.first // self.step * self.step, self.end, self.step)

    def points(self, grains: Sequence[Resolution] = _LONGEST_FIRST) -> list[Piece]:
        """Return the pieces to read by step: the longest of `grains` that divides a step, shorter at the edges."""
        return _pieces(self.first, self.end, [grain for grain in grains if self.step % grain.step == 0])

    def pieces(self) -> list[Piece]:
        """Return the pieces to read as a whole: the days inside, and hours and minutes at the edges."""
        # Nothing has happened after now, so the current day or hour can be read as a whole.
        end = -(-self.end // _DAY) * _DAY if self.end > minute_of(timezone.now()) else self.end
        return _pieces(self.first, end, _LONGEST_FIRST)


@dataclass(frozen=True)
class Piece:
    """A part of a window, in minutes since 1970, and the resolution that it is read in."""

    grain: Resolution
    first: int
    end: int

    def of(self, series: Collection[int] | QuerySet[TimeSeries]) -> QuerySet[Any]:
        return self.inside(self.grain.sums._default_manager.filter(series__in=series))

    def inside(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that begin in the piece, by their column `start`."""
        return rows.filter(start__gte=self.first, start__lt=self.end).order_by()


def _pieces(first: int, end: int, grains: Sequence[Resolution]) -> list[Piece]:
    grain, *shorter = grains
    inside, outside = -(-first // grain.step) * grain.step, end // grain.step * grain.step
    if not shorter or inside >= outside:
        return _pieces(first, end, shorter) if shorter else [Piece(grain, first, end)] if first < end else []
    return [*_pieces(first, inside, shorter), Piece(grain, inside, outside), *_pieces(outside, end, shorter)]


def window(span: str | None, since: datetime | None, until: datetime | None, step_s: int | None = None) -> Window:
    """Return the window from `since` until before `until`, each moved back to the start of its minute or hour.

    Without `until`, or with a future one, it extends to the end of the current step; without `since` either, it begins
    at a step. Raises LorikeetError (bad_time_range).
    """
    now = timezone.now()
    goes_on = until is None or until >= now
    until = min(until or now, now)
    aligned = since is None and goes_on
    since = since or until - timedelta(minutes=RANGES[span or "1h"])
    if since >= until:
        raise _bad_range("`since` is not before `until`.", "since")
    if minute_of(since) < minute_of(now - KEPT) - 1:
        raise _bad_range("Time series go back 90 days.", "since")
    grain = _grain_at(since, now)
    first = minute_of(since) // grain.step * grain.step
    end = minute_of(now) + 1 if goes_on else minute_of(until) // _grain_at(until, now).step * _grain_at(until, now).step
    if end <= first:
        raise _bad_range(
            "No whole step begins between `since` and `until`: sums are by the minute for two days, then by the hour.",
            "since",
        )
    step = _step(end - first, grain, step_s)
    made = Window(first // step * step if aligned else first, -(-end // step) * step if goes_on else end, step)
    if len(made.starts()) > MAX_POINTS:
        raise _bad_range(f"This range and step make more than {MAX_POINTS} points.", "step")
    return made


def _grain_at(moment: datetime, now: datetime) -> Resolution:
    """Return the shortest resolution that is kept of this time."""
    return MINUTES if minute_of(moment) >= minute_of(now - IN_MINUTES) - 1 else HOURS


def days(span: Span) -> Window:
    """Return the window of whole UTC days, without those that are no longer kept."""
    first, end = (
        minute_of(datetime.combine(day, datetime.min.time(), UTC))
        for day in (span.first, span.last + timedelta(days=1))
    )
    return Window(first, end, _DAY)


def _step(minutes: int, grain: Resolution, step_s: int | None) -> int:
    if step_s is None:
        fitting = (step for step in STEPS if step >= grain.step and minutes / step <= WANTED_POINTS)
        return next(fitting, STEPS[-1])
    if step_s % 60 or step_s // 60 not in STEPS:
        raise _bad_range(f"A step is one of {', '.join(str(step * 60) for step in STEPS)} seconds.", "step")
    if step_s // 60 < grain.step:
        raise _bad_range("Minutes are kept for two days; before that, a step is an hour or longer.", "step")
    return step_s // 60


def _bad_range(message: str, param: str) -> LorikeetError:
    return LorikeetError("bad_time_range", message, "Choose another range or step.", param=param)


# Figures of a step that are not among those of every report.
_OF_STEPS = tuple(name for name in SUMMED if name not in COUNTED)


@dataclass
class Step:
    """The figures of one step, or of a whole window."""

    sums: UsageSums = field(default_factory=UsageSums)
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Outcome.values, 0))
    queue_ms: int = 0
    adapter_load_ms: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    latencies: Latencies = field(default_factory=lambda: {metric: {} for metric in Metric})

    def add(self, other: Step) -> None:
        self.sums += other.sums
        self.queue_ms += other.queue_ms
        self.adapter_load_ms += other.adapter_load_ms
        self.drafted_tokens += other.drafted_tokens
        self.accepted_tokens += other.accepted_tokens
        for outcome, requests in other.outcomes.items():
            self.outcomes[outcome] += requests
        for metric, buckets in other.latencies.items():
            for bucket, requests in buckets.items():
                self.count(metric, bucket, requests)

    def count(self, metric: Metric, bucket: int, requests: int) -> None:
        buckets = self.latencies[metric]
        buckets[bucket] = buckets.get(bucket, 0) + requests

    def json(self) -> dict[str, Any]:
        requests = self.sums.requests
        return {
            **self.sums.json(),
            "outcomes": self.outcomes,
            "mean_queue_ms": self.queue_ms / requests if requests else None,
            "mean_adapter_load_ms": self.adapter_load_ms / requests if requests else None,
            "drafted_tokens": self.drafted_tokens,
            "accepted_tokens": self.accepted_tokens,
            "latency": self.percentiles(),
        }

    def percentiles(self) -> dict[str, dict[str, float | None]]:
        """Return the percentiles of each metric in milliseconds."""
        return {metric.value: percentiles(buckets) for metric, buckets in self.latencies.items()}


class Prices:
    """The prices on the days of a window."""

    def __init__(self, window: Window) -> None:
        self._periods = periods(time_of(window.first).date(), time_of(window.end - 1).date())
        self.currency = currency_of(self._periods)
        self._priced_bases = {base for period in self._periods for base in period.by_base}

    def period(self) -> Case:
        """Return an SQL expression for the number of the period of equal prices that a row is in."""
        firsts = [minute_of(datetime.combine(period.first, time.min, UTC)) for period in self._periods]
        later = reversed(list(enumerate(firsts))[1:])
        return Case(*(When(start__gte=first, then=number) for number, first in later), default=0, output_field=_WHOLE)

    def price(self, period: int, base: int | None) -> PriceVersion | None:
        return self._periods[period].price(base)

    def by_list(self, series: Collection[int]) -> dict[int | None, Collection[int]]:
        """Return the series of each base model that has a price list, and those of all others at None."""
        if not self._priced_bases:
            return {None: series}
        lists: defaultdict[int | None, list[int]] = defaultdict(list)
        for pk, base in TimeSeries.objects.filter(pk__in=series).values_list("pk", "base_model_id"):
            lists[base if base in self._priced_bases else None].append(pk)
        return dict(lists)


Key = tuple[Any, ...]


def read(
    series: Collection[int],
    pieces: Iterable[Piece],
    prices: Prices,
    by: Sequence[str] = (),
    *,
    step: int = _DAY,
    latencies: bool = True,
) -> dict[Key, Step]:
    """Add the series up for each combination of the columns `by`, of which "at" is the step."""
    result: defaultdict[Key, Step] = defaultdict(Step)
    all_pieces = list(pieces)
    # One query per price list: joining each row with its series would cost more.
    for base, priced in prices.by_list(series).items():
        for piece in all_pieces:
            rows = piece.of(priced).annotate(at=F("start") / step * step)
            _add_sums(result, rows, by, prices, base)
            if latencies:
                _add_latencies(result, rows, by)
    return dict(result)


def _add_sums(
    result: defaultdict[Key, Step], rows: QuerySet[Any], by: Sequence[str], prices: Prices, base: int | None
) -> None:
    grouped = rows.annotate(period=prices.period()).values_list(*by, "period", "outcome", "batch")
    names = (*COUNTED, *_OF_STEPS)
    for row in grouped.annotate(**{f"sum_{name}": Sum(name) for name in names}):
        key, (period, outcome, batch), figures = row[: len(by)], row[len(by) : len(by) + 3], row[len(by) + 3 :]
        reported = dict(zip(names, figures, strict=True))
        sums = UsageSums(**{name: reported[name] for name in COUNTED})
        sums = sums.at(prices.price(period, base), batch=batch)
        part = Step(sums, **{name: reported[name] for name in _OF_STEPS})
        part.outcomes[outcome] = sums.requests
        result[key].add(part)


def _add_latencies(result: defaultdict[Key, Step], rows: QuerySet[Any], by: Sequence[str]) -> None:
    counts: defaultdict[Key, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for *key, latencies in rows.filter(latencies__isnull=False).values_list(*by, "latencies"):
        counted = counts[tuple(key)]
        for code, requests in latencies.items():
            counted[code] += requests
    for of, counted in counts.items():
        for metric, bucket, requests in latencies_of(counted):
            result[of].count(metric, bucket, requests)


def whole(steps: Iterable[Step]) -> Step:
    total = Step()
    for step in steps:
        total.add(step)
    return total


def report(series: QuerySet[TimeSeries], window: Window, parts: dict[str, Parts]) -> dict[str, Any]:
    """Return the data of `SeriesReportSerializer`: every step, also empty ones, and the breakdowns."""
    prices = Prices(window)
    steps = read(_ids(series), window.points(), prices, ("at",), step=window.step)
    return {
        "since": time_of(window.first),
        "until": time_of(window.end),
        "step_s": window.step * 60,
        "as_of": as_of(),
        "currency": prices.currency,
        "totals": whole(steps.values()).json(),
        "points": [{"at": time_of(start), **steps.get((start,), Step()).json()} for start in window.starts()],
        **{name: _parts(part, window, prices) for name, part in parts.items()},
    }


def _ids(series: QuerySet[TimeSeries]) -> list[int]:
    return list(series.values_list("pk", flat=True))


@dataclass(frozen=True)
class Parts:
    """A breakdown: series to add up by one of their columns, and the columns that name such a part.

    `detailed` adds latencies, and the steps of the parts with most device time.
    """

    series: QuerySet[TimeSeries]
    by: str
    named: dict[str, str]
    detailed: bool = True


def added_up(series: QuerySet[TimeSeries], window: Window, column: str) -> Counter[int]:
    """Return one figure by series, for series with requests."""
    counts: Counter[int] = Counter()
    for piece in window.pieces():
        for pk, figure in piece.of(series).values_list("series_id").annotate(Sum(column)):
            counts[pk] += figure
    return counts


def by_series(series: Sequence[int], window: Window) -> dict[int, Step]:
    """Return all figures of each series except latencies."""
    steps = read(series, window.pieces(), Prices(window), ("series_id",), latencies=False)
    return {pk: step for (pk,), step in steps.items()}


def _parts(parts: Parts, window: Window, prices: Prices) -> list[dict[str, Any]]:
    """Return the parts with most requests. Sums are read by series first, since a join with the series costs most."""
    requests = added_up(parts.series, window, "requests")
    part_of: dict[int, Any] = dict(parts.series.values_list("pk", parts.by))
    most: Counter[Any] = Counter()
    for pk, count in requests.items():
        most[part_of[pk]] += count
    sums = {part: Step() for part in sorted(most, key=lambda part: (-most[part], str(part)))[:MAX_PARTS]}
    shown = [pk for pk in requests if part_of[pk] in sums]
    for (pk,), step in read(shown, window.pieces(), prices, ("series_id",), latencies=parts.detailed).items():
        sums[part_of[pk]].add(step)
    names = _names(parts, {part_of[pk]: pk for pk in shown}.values())
    lined = sorted(sums, key=lambda part: -sums[part].sums.device_us)[: MAX_LINES if parts.detailed else 0]
    lines = _lines({pk: part_of[pk] for pk in shown if part_of[pk] in lined}, window)
    return [{**names[part], **step.json(), **lines.get(part, _NO_LINES)} for part, step in sums.items()]


class PartSort(TextChoices):
    """The figures by which a breakdown can be sorted, the largest first."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    DEVICE_TIME = "device_us"


_SORTED_BY = {
    PartSort.REQUESTS: ("requests",),
    PartSort.TOKENS: ("prompt_tokens", "completion_tokens"),
    PartSort.DEVICE_TIME: ("device_us",),
}


def page_of_parts(
    parts: Parts, window: Window, *, search: str, sort: PartSort, offset: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return some rows of a breakdown, and the number of all rows whose name contains `search`."""
    series = parts.series
    if search:
        matches = (Q(**{f"{column}__icontains": search}) for column in parts.named.values())
        series = series.filter(reduce(or_, matches))
    figures: Counter[int] = Counter()
    for column in _SORTED_BY[sort]:
        figures.update(added_up(series, window, column))
    part_of: dict[int, Any] = dict(series.values_list("pk", parts.by))
    largest: Counter[Any] = Counter()
    for pk, figure in figures.items():
        largest[part_of[pk]] += figure
    page = sorted(largest, key=lambda part: (-largest[part], str(part)))[offset : offset + limit]
    shown = [pk for pk in figures if part_of[pk] in page]
    sums = {part: Step() for part in page}
    for (pk,), step in read(shown, window.pieces(), Prices(window), ("series_id",), latencies=False).items():
        sums[part_of[pk]].add(step)
    names = _names(parts, shown)
    return [{**names[part], **step.sums.json()} for part, step in sums.items()], len(largest)


def _names(parts: Parts, series: Iterable[int]) -> dict[Any, dict[str, Any]]:
    """Return the columns that name each part of these series."""
    rows = parts.series.filter(pk__in=list(series)).values_list(parts.by, *parts.named.values())
    return {part: dict(zip(parts.named, row, strict=True)) for part, *row in rows}


_NO_LINES: dict[str, list[int]] = {"requests_by_step": [], "device_us_by_step": []}


def _lines(part_of: Mapping[int, Any], window: Window) -> dict[Any, dict[str, list[int]]]:
    """Return the steps of each part, by the part that a series belongs to."""
    steps: defaultdict[tuple[Any, int], list[int]] = defaultdict(lambda: [0, 0])
    for piece in window.points():
        rows = piece.of(part_of).annotate(at=F("start") / window.step * window.step)
        for pk, at, *figures in rows.values_list("series_id", "at").annotate(Sum("requests"), Sum("device_us")):
            sums = steps[part_of[pk], at]
            sums[:] = (before + more for before, more in zip(sums, figures, strict=True))
    return {
        part: {
            name: [steps[part, start][column] if (part, start) in steps else 0 for start in window.starts()]
            for column, name in enumerate(_NO_LINES)
        }
        for part in set(part_of.values())
    }


_NO_PARTS: dict[str, Any] = {
    "by_adapter": [], "by_key": [], "by_version": [], "by_tenant": [], "by_host": [], "by_base_model": [],
}  # fmt: skip


def _on(within: QuerySet[TimeSeries], kind: SeriesKind, on: Collection[int] | None) -> QuerySet[TimeSeries]:
    """Return the series of a kind; on some base models, by their primary keys, or on all."""
    series = within.filter(kind=kind)
    return series if on is None else series.filter(base_model__in=on)


def _by_base_model(series: QuerySet[TimeSeries]) -> Parts:
    return Parts(series, "base_model__name", {"name": "base_model__name"})


def total(tenant: Tenant, window: Window, on: Collection[int] | None = None) -> Step:
    """Return a tenant's requests in the window."""
    series = _on(TimeSeries.objects.for_tenant(tenant), SeriesKind.TENANT, on)
    return read(_ids(series), window.pieces(), Prices(window)).get((), Step())


def total_of_all(window: Window, on: Collection[int] | None = None) -> Step:
    """Return all tenants' requests in the window."""
    everybody = _on(TimeSeries.objects.all(), SeriesKind.ALL, on)
    return read(_ids(everybody), window.pieces(), Prices(window)).get((), Step())


def by_tenant(tenants: Collection[UUID], window: Window, on: Collection[int] | None = None) -> dict[UUID, Step]:
    """Return each tenant's requests in the window."""
    series = _on(TimeSeries.objects.filter(tenant__in=tenants), SeriesKind.TENANT, on)
    tenant_of = dict(series.values_list("pk", "tenant_id"))
    steps: defaultdict[UUID, Step] = defaultdict(Step)
    for (pk,), step in read(tenant_of, window.pieces(), Prices(window), ("series_id",)).items():
        if (tenant := tenant_of[pk]) is not None:
            steps[tenant].add(step)
    return dict(steps)


def _tenant_parts(tenant: Tenant, by: str, on: Collection[int] | None) -> Parts:
    """Return the breakdown of a tenant's requests by "adapter" or "key"."""
    series = TimeSeries.objects.for_tenant(tenant)
    if by == "adapter":
        return Parts(_on(series, SeriesKind.VERSION, on), "adapter_id", {"name": "adapter__name"}, detailed=False)
    named = {"name": "api_key__name", "prefix": "api_key__prefix"}
    return Parts(_on(series, SeriesKind.KEY, on), "api_key_id", named)


def parts_of_tenant(
    tenant: Tenant, window: Window, by: str, on: Collection[int] | None = None, **page: Any
) -> tuple[list[dict[str, Any]], int]:
    """Return a page of a tenant's adapters or keys with their usage, and how many there are."""
    return page_of_parts(_tenant_parts(tenant, by, on), window, **page)


def of_tenant(tenant: Tenant, window: Window, on: Collection[int] | None = None) -> dict[str, Any]:
    kinds = {kind: _on(TimeSeries.objects.for_tenant(tenant), kind, on) for kind in SeriesKind}
    parts = {
        **{f"by_{name}": _tenant_parts(tenant, name, on) for name in ("adapter", "key")},
        "by_host": Parts(kinds[SeriesKind.TENANT_HOST], "host", {"name": "host"}),
        "by_base_model": _by_base_model(kinds[SeriesKind.TENANT]),
    }
    return {**_NO_PARTS, **report(kinds[SeriesKind.TENANT], window, parts)}


def of_adapter(tenant: Tenant, adapter_id: Any, version: int | None, window: Window) -> dict[str, Any]:
    """Return a report of an adapter's versions side by side, or of one version. Each is of one base model."""
    versions = TimeSeries.objects.for_tenant(tenant).filter(kind=SeriesKind.VERSION, adapter=adapter_id)
    if version:
        versions = versions.filter(version__number=version)
    parts = {"by_version": Parts(versions, "version_id", {"version": "version__number"})}
    return {**_NO_PARTS, **report(versions, window, parts)}


def of_tenant_on_host(tenant: Tenant, host: str, window: Window, on: Collection[int] | None = None) -> dict[str, Any]:
    series = _on(TimeSeries.objects.for_tenant(tenant), SeriesKind.TENANT_HOST, on).filter(host=host)
    return {**_NO_PARTS, **report(series, window, {"by_base_model": _by_base_model(series)})}


def of_everybody(
    window: Window, tenant: Tenant | None = None, host: str = "", on: Collection[int] | None = None
) -> dict[str, Any]:
    """Return a report for operators: all tenants on all hosts, or one of either."""
    if tenant is not None:
        return of_tenant_on_host(tenant, host, window, on) if host else of_tenant(tenant, window, on)
    named = {"name": "tenant__name", "tenant": "tenant__slug", "weight": "tenant__weight"}
    kinds = {kind: _on(TimeSeries.objects.all(), kind, on) for kind in SeriesKind}
    if host:
        on_host, of_host = (kinds[kind].filter(host=host) for kind in (SeriesKind.TENANT_HOST, SeriesKind.HOST))
        parts = {"by_tenant": Parts(on_host, "tenant_id", named), "by_base_model": _by_base_model(of_host)}
        return {**_NO_PARTS, **report(of_host, window, parts)}
    parts = {
        "by_tenant": Parts(kinds[SeriesKind.TENANT], "tenant_id", named),
        "by_host": Parts(kinds[SeriesKind.HOST], "host", {"name": "host"}),
        "by_base_model": _by_base_model(kinds[SeriesKind.ALL]),
    }
    return {**_NO_PARTS, **report(kinds[SeriesKind.ALL], window, parts)}
