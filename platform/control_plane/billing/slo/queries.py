"""Objectives, and attainment from the latency rollups.

An objective among `histogram.BOUNDS_US` (the usual round numbers) is counted exactly; others in proportion.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import Sum

from control_plane.billing.slo.models import DEFAULT_TARGET, Objective
from control_plane.billing.usage import series
from control_plane.billing.usage.histogram import within
from control_plane.billing.usage.models import DailyLatency, DailyTotals, Metric, Outcome
from control_plane.billing.usage.sums import Span, as_of, last_days, percentiles
from control_plane.identity.tenants.models import Tenant

Buckets = dict[int, int]
# Windows of burn rates, each with the seconds of a step of the series that it is read from.
BURN_WINDOWS = (("1h", 60), ("6h", 60), ("1d", 60), ("7d", 3600))


@dataclass(frozen=True)
class Targets:
    """The objectives of a tenant; None means no objective."""

    first_token_ms: int | None = None
    inter_token_ms: int | None = None
    target: float = DEFAULT_TARGET

    def of(self, metric: Metric) -> int | None:
        return self.first_token_ms if metric == Metric.FIRST_TOKEN else self.inter_token_ms


def targets_of(tenant: Tenant) -> Targets:
    row = Objective.objects.for_tenant(tenant).first()
    return Targets(row.first_token_ms, row.inter_token_ms, row.target) if row else Targets()


def attainment(tenant: Tenant, days: int) -> dict[str, Any]:
    """Return the data of `SloReportSerializer`: each objective over the last `days` UTC days with today."""
    span, targets = last_days(days), targets_of(tenant)
    counts = _counts(tenant, span)
    totals = span.of(DailyTotals.objects.for_tenant(tenant)).aggregate(requests=Sum("requests"), queue=Sum("queue_ms"))
    requests = totals["requests"] or 0
    failed = _failed(tenant, span)
    recent = {name: series.total(tenant, series.window(name, None, None, step_s)) for name, step_s in BURN_WINDOWS}
    return {
        "first_token_ms": targets.first_token_ms,
        "inter_token_ms": targets.inter_token_ms,
        "target": targets.target,
        "weight": tenant.weight,
        "days": days,
        "as_of": as_of(),
        "requests": requests,
        "failed": sum(failed.values()),
        "mean_queue_ms": (totals["queue"] or 0) / requests if requests else None,
        **{
            metric.value: {
                **_metric(counts[metric], failed, targets.of(metric), targets.target, span),
                "burn": [_burn(name, step, metric, targets) for name, step in recent.items()],
            }
            for metric in Metric
        },
    }


def _failed(tenant: Tenant, span: Span) -> dict[date, int]:
    """Return by day the requests that failed through no fault of the caller's: they met no objective."""
    rows = span.of(DailyTotals.objects.for_tenant(tenant)).filter(outcome=Outcome.FAILED)
    return dict(rows.order_by().values_list("start").annotate(Sum("requests")))


def _counts(tenant: Tenant, span: Span) -> dict[Metric, dict[date, Buckets]]:
    counts: dict[Metric, dict[date, Buckets]] = {metric: defaultdict(dict) for metric in Metric}
    rows = span.of(DailyLatency.objects.for_tenant(tenant)).values_list("metric", "start", "bucket", "requests")
    for metric, day, bucket, requests in rows:
        counts[Metric(metric)][day][bucket] = requests
    return counts


def _metric(
    by_day: dict[date, Buckets], failed: dict[date, int], limit_ms: int | None, target: float, span: Span
) -> dict[str, Any]:
    whole: Buckets = defaultdict(int)
    for buckets in by_day.values():
        for bucket, requests in buckets.items():
            whole[bucket] += requests
    measured, met = _met(whole, sum(failed.values()), limit_ms)
    return {
        "objective_ms": limit_ms,
        "measured": measured,
        "met": met,
        "attainment": _share(met, measured),
        "budget": None if met is None else _budget(measured, met, target),
        "percentiles": percentiles(whole),
        "by_day": [{"date": day, **_day(by_day.get(day, {}), failed.get(day, 0), limit_ms)} for day in span.days()],
    }


def _burn(window: str, step: series.Step, metric: Metric, targets: Targets) -> dict[str, Any]:
    """Return the burn rate: 1 uses the budget up exactly within its time, 2 in half of it."""
    measured, met = _met(step.latencies[metric], step.outcomes[Outcome.FAILED], targets.of(metric))
    missed = None if met is None else measured - met
    rate = missed / measured / (1 - targets.target) if missed is not None and measured else None
    return {"window": window, "measured": measured, "missed": missed, "rate": rate}


def _day(buckets: Buckets, failed: int, limit_ms: int | None) -> dict[str, Any]:
    measured, met = _met(buckets, failed, limit_ms)
    return {"measured": measured, "attainment": _share(met, measured)}


def _met(buckets: Buckets, failed: int, limit_ms: int | None) -> tuple[int, int | None]:
    """Return how many requests were measured or failed, and how many met the objective, rounded down."""
    return sum(buckets.values()) + failed, None if limit_ms is None else int(within(buckets, limit_ms * 1000))


def _share(met: int | None, measured: int) -> float | None:
    return met / measured if met is not None and measured else None


def _budget(measured: int, met: int, target: float) -> dict[str, Any]:
    """Return the misses that the target allows over these requests, and the share left; below zero if overdrawn."""
    allowed, missed = measured * (1 - target), measured - met
    return {"allowed": round(allowed, 3), "missed": missed, "left": (allowed - missed) / allowed if allowed else None}
