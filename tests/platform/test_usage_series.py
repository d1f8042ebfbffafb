"""Time series: exact like the other rollups, whatever is asked of them, and each tenant's own."""

from __future__ import annotations

import io
import random
from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.seed import add_version

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.usage import time_series
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.histogram import bucket_of, percentile_us
from control_plane.billing.usage.models import (
    DaySums,
    HourSums,
    MinuteSums,
    SeriesKind,
    TimeSeries,
    UsageEvent,
    Watermark,
)
from control_plane.billing.usage.time_series import minute_of

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def record(org: Any, request_id: str, ago: timedelta, **more: Any) -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "first_token_ms": 100, "decode_ms": 40, "queue_ms": 4}
    counts.update({name: more.pop(name) for name in list(more) if name in counts})
    common: dict[str, Any] = {"counts": Counts(**counts)} | {
        "model": "support",
        "endpoint": "chat.completions",
        "host": "gpu1",
        "outcome": "finished",
    }
    record_event(
        request_id=request_id, tenant=org.tenant, created_at=timezone.now() - ago,
        **{**common, **more},
    )  # fmt: skip


def asked(org: Any, **query: Any) -> dict[str, Any]:
    answer = org.client().get(org.path("series"), query)
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[no-any-return]


def snapshot() -> list[Any]:
    columns = ("series__identity", "start", "requests")
    columns += ("latencies",)
    rows = {model: model.objects.values_list(*columns) for model in (MinuteSums, HourSums, DaySums)}
    return [sorted(found, key=str) for found in rows.values()]


def test_minutes_and_hours_equal_the_ledger_in_any_batch_and_order(acme: Any, globex: Any) -> None:
    rnd, version = random.Random(1), add_version(acme.tenant, "support", 1)
    for number in range(40):
        own = {"adapter": version.adapter, "version": version} if number % 3 == 0 else {}
        ago = timedelta(minutes=rnd.choice([rnd.random() * 5, rnd.random() * 2900, rnd.random() * 100_000]))
        outcome = rnd.choice(["finished", "failed"])
        org = acme if own else rnd.choice([acme, globex])
        record(org, f"r{number}", ago, outcome=outcome, first_token_ms=rnd.randint(0, 9000), **own)
        if number % 15 == 0:
            aggregate(batch=3)
    aggregate()
    call_command("check_rollups", stdout=io.StringIO())
    horizon = minute_of(timezone.now() - timedelta(days=2))
    recent = Counter(minute_of(at) for at in UsageEvent.objects.values_list("created_at", flat=True))
    of_host = MinuteSums.objects.filter(series__kind=SeriesKind.HOST, start__gte=horizon)
    shown: Counter[int] = Counter()
    for start, requests in of_host.values_list("start", "requests"):
        shown[start] += requests
    assert shown == Counter({minute: count for minute, count in recent.items() if minute >= horizon})
    once = snapshot()
    assert aggregate() == 0
    assert snapshot() == once
    call_command("check_rollups", "--rebuild", stdout=io.StringIO())
    assert snapshot() == once


def test_drafts_are_summed_by_version_and_cost_nothing(acme: Any) -> None:
    PriceVersion.objects.create(
        number=1, effective_on=timezone.now().date() - timedelta(days=9), currency="EUR", input_per_million=1_000_000,
        cached_input_per_million=500_000, output_per_million=2_000_000, storage_per_gb_month=0,
    )  # fmt: skip
    for number, drafted in ((1, 0), (2, 40)):
        version = add_version(acme.tenant, "support", number)
        of_version = {"adapter": version.adapter, "version": version}
        for index in range(2):
            drafts = Counts(prompt_tokens=10, completion_tokens=9, drafted_tokens=drafted, accepted_tokens=drafted // 5)
            record(acme, f"{number}-{index}", timedelta(minutes=5), counts=drafts, **of_version)
    aggregate()
    parts = {part["version"]: part for part in asked(acme, adapter="support")["by_version"]}
    drafts = {number: (part["drafted_tokens"], part["accepted_tokens"]) for number, part in parts.items()}
    assert drafts == {1: (0, 0), 2: (80, 16)}
    assert parts[1]["cost_micros"] == parts[2]["cost_micros"] == 2 * (10 + 18)
    row = acme.client().get(acme.path("requests")).json()["results"][0]
    assert (row["completion_tokens"], row["drafted_tokens"], row["accepted_tokens"]) == (9, 40, 8)


def test_a_difference_is_told(acme: Any) -> None:
    record(acme, "a", timedelta(minutes=5))
    aggregate()
    MinuteSums.objects.filter(series__kind=SeriesKind.TENANT).update(device_us=7)
    MinuteSums.objects.filter(series__kind=SeriesKind.HOST).update(latencies=None)
    with pytest.raises(CommandError, match="3 sums differ"):
        call_command("check_rollups", stdout=io.StringIO())


def test_a_version_without_series_catches_up(acme: Any) -> None:
    record(acme, "a", timedelta(minutes=5))
    aggregate()
    before = snapshot()
    TimeSeries.objects.all().delete()
    Watermark.objects.update(series_event_id=0)
    assert aggregate() == 0
    assert snapshot() == before


def test_what_is_old_is_forgotten_and_not_filled_again(acme: Any) -> None:
    record(acme, "now", timedelta(minutes=5))
    record(acme, "week", timedelta(days=7))
    record(acme, "year", timedelta(days=365))
    aggregate()
    of_tenant = {"series__kind": SeriesKind.TENANT}
    assert [model.objects.filter(**of_tenant).count() for model in (MinuteSums, HourSums)] == [1, 2]
    time_series.forget(timezone.now() + timedelta(days=3))
    assert [model.objects.filter(**of_tenant).count() for model in (MinuteSums, HourSums)] == [0, 2]
    time_series.forget(timezone.now() + timedelta(days=100))
    assert not HourSums.objects.exists()


def test_minutes_are_cut_not_rounded(acme: Any) -> None:
    at = (timezone.now() - timedelta(minutes=10)).replace(second=59, microsecond=999_999)
    record(acme, "a", timezone.now() - at)
    UsageEvent.objects.get()  # written
    aggregate()
    starts = MinuteSums.objects.values_list("start", flat=True).distinct()
    assert list(starts) == [minute_of(UsageEvent.objects.get().created_at)]


def test_series_of_a_tenant_say_how_much_how_soon_and_for_whom(acme: Any, globex: Any) -> None:
    key, _ = acme.key()
    first, second = add_version(acme.tenant, "support", 1), add_version(acme.tenant, "support", 2)
    values = [20, 100, 100, 400, 3000]
    for number, value in enumerate(values):
        record(acme, f"r{number}", timedelta(minutes=3), first_token_ms=value, adapter=first.adapter, version=first,
               api_key=key)  # fmt: skip
    record(acme, "failed", timedelta(minutes=20), outcome="failed", adapter=second.adapter, version=second)
    record(acme, "base", timedelta(hours=5), host="gpu2")
    record(globex, "theirs", timedelta(minutes=3))
    aggregate()
    found = asked(acme, range="1h")
    assert found["step_s"] == 60 and len(found["points"]) in (60, 61)
    assert found["totals"]["requests"] == 6 and found["totals"]["outcomes"]["failed"] == 1
    assert sum(point["requests"] for point in found["points"]) == 6
    exact = percentile_us(Counter(bucket_of(value * 1000) for value in values), 0.95)
    assert exact is not None
    assert found["totals"]["latency"]["first_token"]["p95_ms"] == exact / 1000
    assert [(part["name"], part["requests"]) for part in found["by_adapter"]] == [("support", 6)]
    assert [(part["name"], part["requests"]) for part in found["by_key"]] == [(key.name, 5), (None, 1)]
    whole = asked(acme, range="1d")
    assert whole["totals"]["requests"] == 7 and whole["step_s"] == 900
    assert [part["name"] for part in whole["by_host"]] == ["gpu1", "gpu2"]
    versions = asked(acme, range="1h", adapter="support")
    assert [(part["version"], part["requests"]) for part in versions["by_version"]] == [(1, 5), (2, 1)]
    assert sum(versions["by_version"][0]["requests_by_step"]) == 5
    assert asked(acme, range="1h", adapter="support", version=2)["totals"]["requests"] == 1
    assert asked(acme, range="6h", host="gpu2")["totals"]["requests"] == 1


def test_ranges_choose_what_they_are_read_from(acme: Any) -> None:
    record(acme, "old", timedelta(days=30))
    record(acme, "new", timedelta(minutes=3))
    aggregate()
    for span, step_s, requests in (("7d", 7200, 1), ("90d", 86_400, 2), ("2d", 1800, 1), ("15m", 60, 1)):
        found = asked(acme, range=span)
        assert (found["step_s"], found["totals"]["requests"]) == (step_s, requests), span
    since = (timezone.now() - timedelta(days=30, hours=2)).isoformat()
    until = (timezone.now() - timedelta(days=29)).isoformat()
    zoomed = asked(acme, since=since, until=until)
    assert zoomed["step_s"] == 3600 and zoomed["totals"]["requests"] == 1


@pytest.mark.parametrize(
    "query",
    [
        {"range": "5y"}, {"step": 61}, {"range": "90d", "step": 60}, {"since": "2020-01-01T00:00:00Z"},
        {"since": "2999-01-01T00:00:00Z"}, {"adapter": "a", "host": "h"}, {"range": "1d", "step": 86_401},
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said(acme: Any, query: dict[str, Any]) -> None:
    answer = acme.client().get(acme.path("series"), query)
    assert answer.status_code == 400 and answer.json()["error"]["fix"]


def test_operators_see_all_and_tenants_do_not(acme: Any, globex: Any, operator: Any) -> None:
    record(acme, "a", timedelta(minutes=3))
    record(acme, "b", timedelta(minutes=3), host="gpu2")
    record(globex, "c", timedelta(minutes=3))
    aggregate()
    everybody = operator.get("/api/operator/series").json()
    assert everybody["totals"]["requests"] == 3
    assert [(part["tenant"], part["requests"]) for part in everybody["by_tenant"]] == [("acme", 2), ("globex", 1)]
    assert [part["name"] for part in everybody["by_host"]] == ["gpu1", "gpu2"]
    on_host = operator.get("/api/operator/series", {"host": "gpu1"}).json()
    assert on_host["totals"]["requests"] == 2
    assert {part["tenant"] for part in on_host["by_tenant"]} == {"acme", "globex"}
    assert operator.get("/api/operator/series", {"tenant": "globex"}).json()["totals"]["requests"] == 1
    assert acme.client().get("/api/operator/series").status_code == 403


def test_costs_are_those_of_the_day(acme: Any) -> None:
    PriceVersion.objects.create(
        number=1, effective_on=date(2026, 1, 1), currency="USD", input_per_million=3, cached_input_per_million=0,
        output_per_million=0, storage_per_gb_month=0,
    )  # fmt: skip
    record(acme, "a", timedelta(minutes=3), prompt_tokens=1_000_000, completion_tokens=0)
    aggregate()
    assert asked(acme, range="1h")["totals"]["cost_micros"] == 3


@pytest.mark.parametrize("moment", ["0001-01-01", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T00:00Z"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_the_ends_of_time_are_no_moments(acme: Any, name: str, moment: str) -> None:
    """There is no time some days before the one, or a moment after the other."""
    for path in ("series", "requests", "refusals/series", "audit"):
        answer = acme.client().get(acme.path(path), {name: moment})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name), path


def test_every_part_is_reached_by_pages_and_by_its_name(acme: Any, globex: Any) -> None:
    for number in range(5):
        version = add_version(acme.tenant, f"support-{number}", 1)
        for call in range(number + 2):
            tokens = 1000 if number == 0 else 10
            of = {"adapter": version.adapter, "version": version, "prompt_tokens": tokens}
            record(acme, f"r{number}.{call}", timedelta(minutes=5), **of)
    key, _ = acme.key()
    record(acme, "keyed", timedelta(minutes=5), api_key=key)
    record(globex, "theirs", timedelta(minutes=5))
    aggregate()

    def page(**query: Any) -> tuple[list[str | None], str]:
        answer = acme.client().get(acme.path("series/parts"), query)
        assert answer.status_code == 200, answer.content
        return [row["name"] for row in answer.json()], answer.headers["X-Total-Count"]

    assert page(by="adapter", limit=2) == (["support-4", "support-3"], "6")
    assert page(by="adapter", limit=2, offset=4) == (["support-0", None], "6")
    assert page(by="adapter", sort="tokens", limit=1) == (["support-0"], "6")
    assert page(by="adapter", search="PORT-2") == (["support-2"], "1")
    assert page(by="key") == ([None, key.name], "2")
    assert page(by="key", search=key.prefix) == ([key.name], "1")
    assert acme.client().get(acme.path("series/parts"), {"by": "host"}).status_code == 400
