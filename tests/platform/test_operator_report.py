"""The operator's report equals what its ledger adds up to, row by row."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from lorikeet_testing.ledger import record_event
from lorikeet_testing.seed import add_version

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import micros, tokens_cost
from control_plane.billing.reports import operator
from control_plane.billing.reports.operator import operator_report
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.histogram import bucket_of
from control_plane.billing.usage.models import BASE_MODEL_ITSELF, DailyActivity, Outcome, UsageEvent, Watermark
from control_plane.billing.usage.rollup_check import differences
from control_plane.billing.usage.sums import COUNTED, Span, percentiles
from control_plane.identity.tenants.models import Tenant

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
SPAN = Span(date(2026, 5, 4), date(2026, 5, 24))
TENANTS, EVENTS, MAX_TENANTS, TOP_ADAPTERS = 5, 300, 4, 7


def test_it_is_the_ledger_added_up(acme: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(operator, "MAX_TENANTS", MAX_TENANTS)
    monkeypatch.setattr(operator, "TOP_ADAPTERS", TOP_ADAPTERS)
    PriceVersion.objects.bulk_create(PRICES.values())
    record(acme.key()[0])
    before = UsageEvent.objects.order_by("id")[0].id - 1  # ids go on where other tests left them
    Watermark.objects.create(pk=1, event_id=before, overall_event_id=before)
    aggregate(batch=70)
    expected = {**added_up(), "as_of": operator_report(SPAN)["as_of"]}
    assert operator_report(SPAN) == expected
    mark = Watermark.objects.get()
    assert mark.activity_event_id == mark.event_id
    DailyActivity.objects.all().delete()
    assert operator_report(SPAN)["by_tenant"] == [], "who used most is looked for there"
    Watermark.objects.update(activity_event_id=0)
    assert operator_report(SPAN) == expected, "after an update, until the aggregator has made it from the ledger"
    aggregate(batch=70)
    assert differences() == [] and operator_report(SPAN)["by_tenant"] == expected["by_tenant"]
    DailyActivity.objects.filter(adapter_id=BASE_MODEL_ITSELF, outcome="failed").update(requests=1000)
    assert any(found.startswith("activity of") for found in differences())


def test_of_nothing() -> None:
    report = operator_report(SPAN)
    assert (report["tenants"], report["by_tenant"], report["top_adapters"]) == (0, [], [])
    assert report["totals"] == dict.fromkeys((*COUNTED, "cost_micros"), 0)
    assert [day["date"] for day in report["by_day"]] == SPAN.days()


def price_from(day: date, number: int, unit: int) -> PriceVersion:
    return PriceVersion(
        number=number, effective_on=day, currency="USD", input_per_million=unit, cached_input_per_million=unit // 3,
        output_per_million=unit * 3 + 1, storage_per_gb_month=0,
    )  # fmt: skip


# None before the first.
PRICES = {day: price_from(day, n, 199_999 * n) for n, day in enumerate((date(2026, 5, 7), date(2026, 5, 15)), start=1)}


def record(key: Any) -> None:
    """Adapters of several versions and keys, and requests before and after the days that are asked for."""
    rnd = random.Random(5)
    owners = []
    for tenant in [key.tenant, *(Tenant.objects.create(slug=f"t{n}", name=f"T{n}") for n in range(1, TENANTS))]:
        versions = [add_version(tenant, "a", 1), add_version(tenant, "a", 2), add_version(tenant, "b"), None]
        owners += [(tenant, version) for version in versions]
    start = datetime(2026, 5, 1, tzinfo=UTC)
    for number in range(EVENTS):
        tenant, version = rnd.choice(owners)
        prompt = rnd.randint(0, 10**6)
        record_event(
            request_id=f"r{number}",
            tenant=tenant,
            adapter=version and version.adapter,
            version=version,
            api_key=key if tenant == key.tenant and rnd.random() < 0.5 else None,
            model="m",
            endpoint="completions",
            outcome=rnd.choice(Outcome.values),
            created_at=start + timedelta(seconds=rnd.randrange(28 * 86_400)),
            counts=Counts(
                prompt_tokens=prompt,
                cached_prompt_tokens=rnd.randint(0, prompt),
                completion_tokens=rnd.randint(2, 10**6),
                first_token_ms=rnd.randint(1, 10_000),
                decode_ms=rnd.randint(1, 10**8),
                device_us=rnd.randint(0, 10**9),
            ),
        )


def added_up() -> dict[str, Any]:
    ledger = UsageEvent.objects.select_related("tenant", "adapter").order_by("id")
    events = [event for event in ledger if SPAN.first <= event.created_at.date() <= SPAN.last]
    whole = sums(events)
    by_day = grouped(events, lambda event: event.created_at.date())
    by_tenant = grouped(events, lambda event: event.tenant)
    by_adapter = grouped(events, lambda event: (event.tenant.slug, event.adapter and event.adapter.name))
    return {
        "first": SPAN.first,
        "last": SPAN.last,
        "currency": "USD",
        "totals": whole,
        "outcomes": {outcome: ended(events, outcome) for outcome in Outcome.values},
        "latency": latency(events),
        "by_day": [{"date": day, **sums(by_day.get(day, []))} for day in SPAN.days()],
        "by_base_model": [{"base_model": None, **whole}],
        "tenants": len(by_tenant),
        "by_tenant": [
            {
                "tenant": tenant.slug,
                "name": tenant.name,
                **sums(own),
                "refused": ended(own, Outcome.REFUSED),
                "failed": ended(own, Outcome.FAILED),
                "device_share": sums(own)["device_us"] / whole["device_us"],
                "latency": latency(own),
            }
            for tenant, own in most(by_tenant, MAX_TENANTS)
        ],
        "top_adapters": [
            {
                "tenant": tenant,
                "adapter": adapter,
                **sums(own),
                "device_share": sums(own)["device_us"] / whole["device_us"],
            }
            for (tenant, adapter), own in most(by_adapter, TOP_ADAPTERS)
        ],
    }


def grouped(events: Iterable[UsageEvent], key: Callable[[UsageEvent], Any]) -> dict[Any, list[UsageEvent]]:
    groups: defaultdict[Any, list[UsageEvent]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return groups


def most(groups: dict[Any, list[UsageEvent]], count: int) -> list[tuple[Any, list[UsageEvent]]]:
    return sorted(groups.items(), key=lambda item: -sums(item[1])["device_us"])[:count]


def ended(events: Iterable[UsageEvent], outcome: str) -> int:
    return sum(event.outcome == outcome for event in events)


def sums(events: Iterable[UsageEvent]) -> dict[str, Any]:
    added = Counter(dict.fromkeys(COUNTED, 0))
    cost, has_price = 0, not events
    for event in events:
        added.update({"requests": 1, **{name: getattr(event, name) for name in COUNTED if name != "requests"}})
        if prices := [price for day, price in PRICES.items() if day <= event.created_at.date()]:
            has_price = True
            cost += tokens_cost(
                prices[-1],
                prompt=event.prompt_tokens,
                cached=event.cached_prompt_tokens,
                completion=event.completion_tokens,
                batch=event.batch,
            )
    return {**added, "cost_micros": micros(cost) if has_price else None}


def latency(events: Iterable[UsageEvent]) -> dict[str, dict[str, float | None]]:
    answered = [event for event in events if event.outcome in (Outcome.FINISHED, Outcome.ABORTED)]
    first = Counter(bucket_of(event.first_token_ms * 1000) for event in answered)
    inter = Counter(bucket_of(event.decode_ms * 1000 // (event.completion_tokens - 1)) for event in answered)
    return {"first_token": percentiles(first), "inter_token": percentiles(inter)}
