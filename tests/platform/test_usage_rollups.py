"""Rollups equal the ledger: once per row, whatever the batch, however often, however late."""

from __future__ import annotations

import io
import math
import os
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Count, F, Sum
from hypothesis import given, settings
from hypothesis import strategies as st
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.ledger import fill, record_event

from control_plane.billing.usage import storage
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import SUMMED, Counts
from control_plane.billing.usage.histogram import BOUNDS_US, bucket_of, percentile_us, within
from control_plane.billing.usage.models import (
    DailyLatency,
    DailyTotals,
    DailyUsage,
    HourlyUsage,
    Metric,
    OverallLatency,
    OverallTotals,
    StorageDay,
    UsageEvent,
    Watermark,
)
from control_plane.billing.usage.rollup_sql import LEAST_US
from control_plane.billing.usage.sums import Span, overall

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
NOW = datetime(2026, 5, 4, 10, 30, tzinfo=UTC)


def record(org: Any, request_id: str, at: datetime = NOW, **more: Any) -> bool:
    counts = {
        "prompt_tokens": 10, "cached_prompt_tokens": 2, "completion_tokens": 5, "first_token_ms": 7, "decode_ms": 40,
        "device_us": 1234, "queue_ms": 3, "adapter_load_ms": 2, "drafted_tokens": 7, "accepted_tokens": 4,
    }  # fmt: skip
    counts.update({name: more.pop(name) for name in list(more) if name in counts})
    return record_event(
        request_id=request_id,
        tenant=org.tenant,
        model="support",
        endpoint="chat.completions",
        outcome=more.pop("outcome", "finished"),
        created_at=at,
        counts=Counts(**counts),
        **more,
    )


def sums_of(rows: Any, requests: Any) -> dict[str, int]:
    return rows.order_by().aggregate(requests=requests, **{name: Sum(name, default=0) for name in SUMMED})


def assert_equal_to_the_ledger() -> None:
    ledger = sums_of(UsageEvent.objects.all(), Count("id"))
    for rollup in (HourlyUsage, DailyUsage, DailyTotals, OverallTotals):
        assert sums_of(rollup.objects.all(), Sum("requests", default=0)) == ledger
    ended = UsageEvent.objects.filter(outcome__in=["finished", "aborted"])
    answered = ended.exclude(completion_tokens=0, first_token_ms=0)
    for latency in (DailyLatency, OverallLatency):
        counted = latency._default_manager.filter(metric=Metric.FIRST_TOKEN)
        assert counted.aggregate(n=Sum("requests", default=0))["n"] == answered.count()


def snapshot() -> list[Any]:
    models = ((HourlyUsage, "series_id"), (DailyUsage, "series_id"), (DailyLatency, "tenant_id"))
    return [sorted(map(str, model.objects.values_list(key, "start", "requests"))) for model, key in models]


def test_twice_is_once(acme: Any, globex: Any, ready_version: Any) -> None:
    version = ready_version(acme)
    key, _ = acme.key()
    record(acme, "a", adapter=version.adapter, version=version, api_key=key)
    record(acme, "b", adapter=version.adapter, version=version)
    record(acme, "c", NOW + timedelta(hours=1), outcome="aborted")
    record(globex, "d")
    assert aggregate() == 4
    before = snapshot()
    assert aggregate() == 0
    assert snapshot() == before
    assert HourlyUsage.objects.count() == 4
    assert_equal_to_the_ledger()


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_any_batch_any_order(acme: Any, globex: Any, ready_version: Any, batch: int) -> None:
    version, rnd = ready_version(acme), random.Random(batch)
    for index in range(60 if batch > 1 else 15):
        org = rnd.choice([acme, globex])
        own = {"adapter": version.adapter, "version": version} if org is acme and rnd.random() < 0.5 else {}
        at = NOW + timedelta(minutes=rnd.randint(-6000, 6000))
        outcome = rnd.choice(["finished", "aborted", "failed", "refused"])
        record(org, f"r{index}", at, outcome=outcome, device_us=rnd.randint(0, 10**7), **own)
        if rnd.random() < 0.2:
            aggregate(batch)
    aggregate(batch)
    assert_equal_to_the_ledger()


def test_a_late_row_goes_to_its_own_hour_and_day(acme: Any) -> None:
    record(acme, "today")
    aggregate()
    record(acme, "late", NOW - timedelta(days=3))
    aggregate()
    days = DailyUsage.objects.order_by("start").values_list("start", "requests")
    assert list(days) == [(date(2026, 5, 1), 1), (date(2026, 5, 4), 1)]


def test_all_tenants_days_follow_a_version_without_them(acme: Any, globex: Any, monkeypatch: Any) -> None:
    record(acme, "a", NOW - timedelta(days=1))
    record(globex, "b")
    aggregate()
    with monkeypatch.context() as before:
        before.setattr("control_plane.billing.usage.aggregation._add_up_tenants", lambda mark: None)
        for at in (NOW - timedelta(days=1), NOW, NOW + timedelta(days=1)):
            record(acme, f"at {at}", at)
            aggregate()
    assert sum(OverallTotals.objects.values_list("requests", flat=True)) == 2
    span = Span(NOW.date(), NOW.date())
    assert [rows.model for rows in overall(span)] == [DailyTotals, DailyLatency]
    assert aggregate() == 0
    assert_equal_to_the_ledger()
    assert [rows.model for rows in overall(span)] == [OverallTotals, OverallLatency]


def test_nothing_is_lost_when_it_is_killed_between_writing_and_committing(acme: Any, monkeypatch: Any) -> None:
    record(acme, "a")

    def die(mark: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("control_plane.billing.usage.aggregation._finish", die)
        aggregate()
    assert DailyUsage.objects.count() == 0
    aggregate()
    assert_equal_to_the_ledger()


def test_days_and_hours_are_utc(acme: Any) -> None:
    record(acme, "a", datetime(2026, 5, 4, 23, 59, 59, 999999, tzinfo=UTC))
    record(acme, "b", datetime(2026, 5, 5, tzinfo=UTC))
    record(acme, "c", datetime.fromisoformat("2026-05-05T01:30:00+02:00"))
    aggregate()
    hours = HourlyUsage.objects.order_by("start").values_list("start", "requests")
    assert list(hours) == [
        (datetime(2026, 5, 4, 23, tzinfo=UTC), 2),
        (datetime(2026, 5, 5, 0, tzinfo=UTC), 1),
    ]


def test_times_of_hours_fit(acme: Any) -> None:
    """A request of weeks, in microseconds, is more than 32 bits hold."""
    record(acme, "long", first_token_ms=2**31 - 1, decode_ms=2**31 - 1, device_us=2**50)
    aggregate()
    assert DailyUsage.objects.get().device_us == 2**50
    assert set(DailyLatency.objects.values_list("bucket", flat=True)) <= {len(BOUNDS_US), bucket_of(2**31 * 250)}


def test_buckets_in_the_database_are_those_of_the_code(acme: Any) -> None:
    values = [0, 1, 2, 10, 99, 100, 101, 250, 251, 999, 60_000, 999_999, 1_000_001]
    for value in values:
        record(acme, f"r{value}", first_token_ms=value, completion_tokens=1)
    aggregate()
    counted = DailyLatency.objects.filter(metric=Metric.FIRST_TOKEN).values_list("bucket", "requests")
    assert dict(counted) == Counter(bucket_of(value * 1000 or LEAST_US) for value in values)
    assert not DailyLatency.objects.filter(metric=Metric.INTER_TOKEN).exists()


@settings(deadline=None)
@given(st.lists(st.integers(100, 10**9), min_size=1), st.floats(0.01, 1))
def test_percentiles_are_within_their_bucket(values: list[int], share: float) -> None:
    counts = Counter(bucket_of(value) for value in values)
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    found = percentile_us(counts, share)
    assert found is not None
    assert abs(bucket_of(found) - bucket_of(exact)) <= 1
    for target in (100_000, 250_000, 1_000_000, 2_000_000):
        assert within(counts, target) == sum(value <= target for value in values)


def test_of_nothing() -> None:
    assert percentile_us({}, 0.5) is None
    assert within({}, 100) == 0


def test_says_how_fresh_it_is(acme: Any) -> None:
    assert acme.client().get(acme.path("usage")).json()["as_of"] is None
    aggregate()
    assert acme.client().get(acme.path("usage")).json()["as_of"]


def test_storage_is_counted_once_an_hour(acme: Any, globex: Any, ready_version: Any) -> None:
    size = ready_version(acme).bytes
    at = datetime(2026, 5, 4, 22, 10, tzinfo=UTC)
    for minutes in (0, 10, 50, 60, 130):
        storage.measure(at + timedelta(minutes=minutes))
    assert list(StorageDay.objects.order_by("start").values_list("start", "byte_hours", "measured_hours")) == [
        (date(2026, 5, 4), 2 * size, 2),
        (date(2026, 5, 5), size, 1),
    ]


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_row_that_commits_late_is_not_passed(acme: Any) -> None:
    """PostgreSQL: row 1 is written but not committed while the aggregator runs, and row 2 commits after."""
    assert while_another_commits(lambda: record(acme, "slow"), aggregate) == 1
    record(acme, "quick")
    aggregate()
    assert Watermark.objects.get().event_id == UsageEvent.objects.order_by("-id")[0].pk
    assert_equal_to_the_ledger()


def test_gaps_between_ids_are_passed_in_one_step(acme: Any) -> None:
    for number, request_id in enumerate(("a", "b", "c"), 1):
        record(acme, request_id)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE usage_usageevent SET id = %s WHERE request_id = %s", [number * 10**9, request_id])
    assert aggregate(batch=1) == 3
    assert Watermark.objects.get().event_id == 3 * 10**9
    assert_equal_to_the_ledger()


MANY = 200_000 if os.environ.get("LORIKEET_LONG") else 20_000


def test_many_events_aggregated_twice(acme: Any, globex: Any, ready_version: Any) -> None:
    """All in one statement of the database, then: aggregated, again, and from nothing in other batches."""
    version = ready_version(acme)
    for number, (org, own) in enumerate([(acme, None), (acme, version), (globex, None)]):
        fill(MANY // 3 + (number < MANY % 3), f"r{number}_", org.tenant, own)
    assert aggregate(batch=50_000) == MANY
    assert_equal_to_the_ledger()
    once = snapshot()
    assert aggregate() == 0
    assert snapshot() == once
    for model in (HourlyUsage, DailyUsage, DailyTotals, DailyLatency, OverallTotals, OverallLatency, Watermark):
        model.objects.all().delete()
    assert aggregate(batch=33_001) == MANY
    assert snapshot() == once
    assert sum(row["requests"] for row in DailyUsage.objects.values("requests")) == MANY


def test_an_operator_compares_and_rebuilds(acme: Any, globex: Any) -> None:
    record(acme, "a")
    record(globex, "b", outcome="aborted")
    call_command("check_rollups", stdout=io.StringIO())
    DailyUsage.objects.for_tenant(acme.tenant).update(device_us=1)
    HourlyUsage.objects.for_tenant(globex.tenant).delete()
    OverallTotals.objects.filter(outcome="aborted").update(requests=2)
    DailyLatency.objects.filter(tenant=globex.tenant, metric="first_token").update(bucket=F("bucket") + 1)
    OverallLatency.objects.filter(metric="inter_token").delete()
    said = io.StringIO()
    # A count in a wrong bucket is two that differ.
    with pytest.raises(CommandError, match=f"{3 + 2 + 1} sums differ"):
        call_command("check_rollups", stdout=said)
    assert "the ledger has (1, 10, 2, 5, 1234, 3, 2, 7, 4), the rollup (1, 10, 2, 5, 1, 3, 2, 7, 4)" in said.getvalue()
    call_command("check_rollups", "--rebuild", stdout=io.StringIO())
    assert_equal_to_the_ledger()
