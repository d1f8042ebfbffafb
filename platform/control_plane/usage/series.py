"""Reading time series: of a tenant, an adapter, a key or a host, over a stretch of time, in steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from control_plane.errors import LorikeetError
from control_plane.prices.models import PriceVersion
from control_plane.prices.periods import periods, price_on
from control_plane.tenants.models import Tenant
from control_plane.usage.counters import SUMMED
from control_plane.usage.models import Metric, Outcome, SeriesKind, TimeSeries
from control_plane.usage.sums import COUNTED, Span, UsageSums, as_of, cost_of, percentiles
from control_plane.usage.time_series import DAYS, HOURS, MINUTES, Resolution, latencies_of, minute_of, time_of

RANGES = {
    "15m": 15, "1h": 60, "3h": 180, "6h": 360, "12h": 720, "1d": 1440, "2d": 2880, "7d": 10_080, "30d": 43_200,
    "90d": 129_600,
}  # fmt: skip
"""Minutes."""
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
"""Minutes. Each divides a day, so that a step has one price."""
KEPT, IN_MINUTES = timedelta(days=90), timedelta(days=2)
WANTED_POINTS = 100
MOST_POINTS = 1500
_DAY = 1440
MOST_PARTS = 100
# Of these a report has each step: more lines than that no chart shows.
MOST_LINES = 10
_LONGEST_FIRST = (DAYS, HOURS, MINUTES)
Buckets = dict[int, int]
Latencies = dict[Metric, Buckets]


@dataclass(frozen=True)
class Window:
    """From `first` until before `end` in steps, all in minutes since 1970; both are at the edge of a step."""

    first: int
    end: int
    step: int
    resolution: Resolution

    def starts(self) -> range:
        return range(self.first, self.end, self.step)

    def points(self) -> Piece:
        """To be read by step: in the longest steps that those asked for are made of."""
        return Piece(next(grain for grain in _LONGEST_FIRST if self.step % grain.step == 0), self.first, self.end)

    def pieces(self) -> list[Piece]:
        """To be read as a whole: the days inside, and hours and minutes at the edges."""
        # Nothing has happened after now: the day, or the hour, that is not over is all there.
        end = -(-self.end // _DAY) * _DAY if self.end > minute_of(timezone.now()) else self.end
        return _pieces(self.first, end, [grain for grain in _LONGEST_FIRST if grain.step >= self.resolution.step])

    def of(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        inside = rows.filter(start__gte=self.first, start__lt=self.end).order_by()
        annotated: QuerySet[Any] = inside.annotate(at=F("start") / self.step * self.step)
        return annotated


@dataclass(frozen=True)
class Piece:
    """A stretch of a window, in minutes since 1970, and what it is read from."""

    grain: Resolution
    first: int
    end: int

    def of(self, series: Collection[int] | QuerySet[TimeSeries]) -> QuerySet[Any]:
        rows = self.grain.sums._default_manager.filter(series__in=series)
        return rows.filter(start__gte=self.first, start__lt=self.end).order_by()


def _pieces(first: int, end: int, grains: Sequence[Resolution]) -> list[Piece]:
    grain, *shorter = grains
    inside, outside = -(-first // grain.step) * grain.step, end // grain.step * grain.step
    if not shorter or inside >= outside:
        return _pieces(first, end, shorter) if shorter else [Piece(grain, first, end)] if first < end else []
    return [*_pieces(first, inside, shorter), Piece(grain, inside, outside), *_pieces(outside, end, shorter)]


def window(span: str | None, since: datetime | None, until: datetime | None, step_s: int | None = None) -> Window:
    """Raises LorikeetError (bad_time_range)."""
    now = timezone.now()
    until = min(until or now, now)
    since = since or until - timedelta(minutes=RANGES[span or "1h"])
    first, end = minute_of(since), minute_of(until) + 1
    if end <= first or since >= until:
        raise _bad_range("`since` is not before `until`.", "since")
    if first < minute_of(now - KEPT) - 1:
        raise _bad_range("Time series go back 90 days.", "since")
    grain = MINUTES if first >= minute_of(now - IN_MINUTES) - 1 else HOURS
    step = _step(end - first, grain, step_s)
    made = Window(first // step * step, -(-end // step) * step, step, grain)
    if len(made.starts()) > MOST_POINTS:
        raise _bad_range(f"That would be more than {MOST_POINTS} points.", "step")
    return made


def days(span: Span) -> Window:
    """Whole UTC days; those that are older than days are kept are not in it."""
    first, end = (
        minute_of(datetime.combine(day, datetime.min.time(), UTC))
        for day in (span.first, span.last + timedelta(days=1))
    )
    return Window(first, end, _DAY, DAYS)


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
    return LorikeetError("bad_time_range", message, "Ask for another range or step.", param=param)


@dataclass
class Step:
    """What happened in one step, or in all of them."""

    sums: UsageSums = field(default_factory=UsageSums)
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Outcome.values, 0))
    queue_ms: int = 0
    adapter_load_ms: int = 0
    latencies: Latencies = field(default_factory=lambda: {metric: {} for metric in Metric})

    def add(self, other: Step) -> None:
        self.sums += other.sums
        self.queue_ms += other.queue_ms
        self.adapter_load_ms += other.adapter_load_ms
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
            "latency": {metric.value: percentiles(buckets) for metric, buckets in self.latencies.items()},
        }


class Prices:
    """What holds on the days of a window."""

    def __init__(self, asked: Window) -> None:
        stretches = periods(time_of(asked.first).date(), time_of(asked.end - 1).date())
        self.currency = stretches[-1].price.currency if stretches[-1].price else None
        self._versions: list[PriceVersion] = [one.price for one in stretches if one.price]
        self._by_day: dict[date, PriceVersion | None] = {}

    def on(self, minute: int) -> PriceVersion | None:
        day = time_of(minute).date()
        if day not in self._by_day:
            self._by_day[day] = price_on(day, self._versions)
        return self._by_day[day]


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
    """The series added up for each combination of the columns `by`, of which "at" is the step."""
    found: defaultdict[Key, Step] = defaultdict(Step)
    for piece in pieces:
        rows = piece.of(series).annotate(at=F("start") / step * step)
        _add_sums(found, rows, by, prices)
        if latencies:
            _add_latencies(found, rows, by)
    return dict(found)


def _add_sums(found: defaultdict[Key, Step], rows: QuerySet[Any], by: Sequence[str], prices: Prices) -> None:
    # By day too, since a day has one price.
    grouped = rows.annotate(day=F("start") / _DAY).values_list(*by, "day", "outcome", "batch")
    names = (*COUNTED, *(name for name in SUMMED if name not in COUNTED))
    for row in grouped.annotate(**{f"sum_{name}": Sum(name) for name in names}):
        key, (day_number, outcome, batch), figures = row[: len(by)], row[len(by) : len(by) + 3], row[len(by) + 3 :]
        reported = dict(zip(names, figures, strict=True))
        sums = UsageSums(**{name: reported[name] for name in COUNTED})
        cost = cost_of(prices.on(day_number * _DAY), sums, batch=batch)
        part = Step(
            replace(sums, cost_pico=cost), queue_ms=reported["queue_ms"], adapter_load_ms=reported["adapter_load_ms"]
        )
        part.outcomes[outcome] = sums.requests
        found[key].add(part)


def _add_latencies(found: defaultdict[Key, Step], rows: QuerySet[Any], by: Sequence[str]) -> None:
    counts: defaultdict[Key, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for *key, latencies in rows.filter(latencies__isnull=False).values_list(*by, "latencies"):
        counted = counts[tuple(key)]
        for code, requests in latencies.items():
            counted[code] += requests
    for of, counted in counts.items():
        for metric, bucket, requests in latencies_of(counted):
            found[of].count(metric, bucket, requests)


def whole(steps: Iterable[Step]) -> Step:
    total = Step()
    for step in steps:
        total.add(step)
    return total


def report(series: QuerySet[TimeSeries], asked: Window, parts: dict[str, Parts]) -> dict[str, Any]:
    """As `SeriesReportSerializer` shows it: every step, also empty ones, and what it is made of."""
    prices = Prices(asked)
    steps = read(_ids(series), [asked.points()], prices, ("at",), step=asked.step)
    return {
        "since": time_of(asked.first),
        "until": time_of(asked.end),
        "step_s": asked.step * 60,
        "as_of": as_of(),
        "currency": prices.currency,
        "totals": whole(steps.values()).json(),
        "points": [{"at": time_of(start), **steps.get((start,), Step()).json()} for start in asked.starts()],
        **{name: _parts(part, asked, prices) for name, part in parts.items()},
    }


def _ids(series: QuerySet[TimeSeries]) -> list[int]:
    return list(series.values_list("pk", flat=True))


@dataclass(frozen=True)
class Parts:
    """Series to be shown each by itself, and the columns that name one."""

    series: QuerySet[TimeSeries]
    named: dict[str, str]


def added_up(series: QuerySet[TimeSeries], asked: Window, column: str) -> Counter[int]:
    """One figure by series: of those that had any requests."""
    counts: Counter[int] = Counter()
    for piece in asked.pieces():
        for pk, figure in piece.of(series).values_list("series_id").annotate(Sum(column)):
            counts[pk] += figure
    return counts


def by_series(series: Sequence[int], asked: Window) -> dict[int, Step]:
    """Everything of each but latencies."""
    found = read(series, asked.pieces(), Prices(asked), ("series_id",), latencies=False)
    return {pk: step for (pk,), step in found.items()}


def _parts(parts: Parts, asked: Window, prices: Prices) -> list[dict[str, Any]]:
    """Those with most requests; of those with most device time the steps too."""
    requests = added_up(parts.series, asked, "requests")
    most = sorted(requests, key=lambda pk: (-requests[pk], pk))[:MOST_PARTS]
    names = {
        pk: dict(zip(parts.named, row, strict=True))
        for pk, *row in parts.series.filter(pk__in=most).values_list("pk", *parts.named.values())
    }
    sums = {pk: step for (pk,), step in read(most, asked.pieces(), prices, ("series_id",)).items()}
    lines = _lines(sorted(most, key=lambda pk: -sums[pk].sums.device_us)[:MOST_LINES], asked)
    return [{**names[pk], **sums[pk].json(), **lines.get(pk, _NO_LINES)} for pk in most]


_NO_LINES: dict[str, list[int]] = {"requests_by_step": [], "device_us_by_step": []}


def _lines(series: Sequence[int], asked: Window) -> dict[int, dict[str, list[int]]]:
    rows = asked.points().of(series).annotate(at=F("start") / asked.step * asked.step)
    steps = {
        (pk, at): figures
        for pk, at, *figures in rows.values_list("series_id", "at").annotate(Sum("requests"), Sum("device_us"))
    }
    return {
        pk: {
            name: [steps.get((pk, start), (0, 0))[column] for start in asked.starts()]
            for column, name in enumerate(_NO_LINES)
        }
        for pk in series
    }


_NO_PARTS: dict[str, Any] = {"by_adapter": [], "by_key": [], "by_version": [], "by_tenant": [], "by_host": []}


def total(tenant: Tenant, asked: Window) -> Step:
    """All of a tenant's requests in the window."""
    own = TimeSeries.objects.for_tenant(tenant).filter(kind=SeriesKind.TENANT)
    return read(_ids(own), asked.pieces(), Prices(asked)).get((), Step())


def of_tenant(tenant: Tenant, asked: Window) -> dict[str, Any]:
    own = TimeSeries.objects.for_tenant(tenant)
    parts = {
        "by_key": Parts(own.filter(kind=SeriesKind.KEY), {"name": "api_key__name", "prefix": "api_key__prefix"}),
        "by_host": Parts(own.filter(kind=SeriesKind.TENANT_HOST), {"name": "host"}),
    }
    found = report(own.filter(kind=SeriesKind.TENANT), asked, parts)
    return {**_NO_PARTS, **found, "by_adapter": _by_adapter(own.filter(kind=SeriesKind.VERSION), asked)}


def _by_adapter(versions: QuerySet[TimeSeries], asked: Window) -> list[dict[str, Any]]:
    """Versions of an adapter added up: first by series alone, since joining each day with its adapter costs most."""
    requests, adapter_of = added_up(versions, asked, "requests"), dict(versions.values_list("pk", "adapter_id"))
    most: Counter[UUID | None] = Counter()
    for pk, count in requests.items():
        most[adapter_of[pk]] += count
    sums = {adapter: Step() for adapter, _ in most.most_common(MOST_PARTS)}
    shown = [pk for pk in requests if adapter_of[pk] in sums]
    for pk, step in by_series(shown, asked).items():
        sums[adapter_of[pk]].add(step)
    names: dict[UUID | None, str | None] = dict(
        versions.filter(adapter__in=sums).values_list("adapter_id", "adapter__name")
    )
    return [{"name": names.get(adapter), **step.json(), **_NO_LINES} for adapter, step in sums.items()]


def of_versions(versions: QuerySet[TimeSeries], asked: Window) -> dict[str, Any]:
    """Of an adapter: its versions side by side."""
    parts = {"by_version": Parts(versions, {"version": "version__number"})}
    return {**_NO_PARTS, **report(versions, asked, parts)}


def of_adapter(tenant: Tenant, adapter_id: Any, version: int | None, asked: Window) -> dict[str, Any]:
    versions = TimeSeries.objects.for_tenant(tenant).filter(kind=SeriesKind.VERSION, adapter=adapter_id)
    return of_versions(versions.filter(version__number=version) if version else versions, asked)


def of_tenant_on_host(tenant: Tenant, host: str, asked: Window) -> dict[str, Any]:
    own = TimeSeries.objects.for_tenant(tenant).filter(kind=SeriesKind.TENANT_HOST, host=host)
    return {**_NO_PARTS, **report(own, asked, {})}


def of_everybody(asked: Window, tenant: Tenant | None = None, host: str = "") -> dict[str, Any]:
    """For operators: all tenants on all hosts, or one of either."""
    if tenant is not None:
        return of_tenant_on_host(tenant, host, asked) if host else of_tenant(tenant, asked)
    named = {"name": "tenant__name", "tenant": "tenant__slug", "weight": "tenant__weight"}
    hosts = TimeSeries.objects.filter(kind=SeriesKind.HOST)
    if host:
        on_host = TimeSeries.objects.filter(kind=SeriesKind.TENANT_HOST, host=host)
        return {**_NO_PARTS, **report(hosts.filter(host=host), asked, {"by_tenant": Parts(on_host, named)})}
    parts = {
        "by_tenant": Parts(TimeSeries.objects.filter(kind=SeriesKind.TENANT), named),
        "by_host": Parts(hosts, {"name": "host"}),
    }
    return {**_NO_PARTS, **report(TimeSeries.objects.filter(kind=SeriesKind.ALL), asked, parts)}
