"""The ledger: once per request, summed exactly, paged stably."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from lorikeet_testing.ledger import record_event
from rest_framework.utils.encoders import JSONEncoder

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.usage.actions import Ended, record_events
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.costs import RequestCosts
from control_plane.billing.usage.counters import Counts, Details
from control_plane.billing.usage.models import UsageEvent
from control_plane.billing.usage.payloads import base_names_of, request_json
from control_plane.billing.usage.queries import recent_requests
from control_plane.billing.usage.serializers import RequestRecordSerializer
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def record(org: Any, request_id: str, *, days_ago: float = 0, prompt: int = 10, output: int = 5, **more: Any) -> bool:
    return record_event(
        request_id=request_id,
        tenant=org.tenant,
        model="support",
        endpoint="chat.completions",
        outcome=more.pop("outcome", "finished"),
        created_at=datetime.now(UTC) - timedelta(days=days_ago),
        counts=Counts(prompt_tokens=prompt, cached_prompt_tokens=2, completion_tokens=output, first_token_ms=7),
        **more,
    )


def test_once_per_request(acme: Any, committing: Any, events: Any) -> None:
    with committing():
        assert record(acme, "req_1") is True
        assert record(acme, "req_1", output=999) is False
    assert UsageEvent.objects.get().completion_tokens == 5
    assert [(event, data["id"]) for _, event, data in events] == [("usage.tick", "req_1")]


def test_a_resumed_answer_is_stored_whatever_an_older_engine_counted_as_cached(acme: Any) -> None:
    """More cached tokens than the prompt has would be refused by the database, and the rows beside it with it."""
    counts = Counts.of(pb.UsageRecord(prompt_tokens=9, cached_prompt_tokens=48, completion_tokens=100))
    assert record_event(
        request_id="req_1", tenant=acme.tenant, model="m", endpoint="completions", outcome="finished",
        created_at=datetime.now(UTC), counts=counts,
    )  # fmt: skip
    row = UsageEvent.objects.get()
    assert (row.prompt_tokens, row.cached_prompt_tokens, row.completion_tokens) == (9, 9, 100)


def test_live_events_are_what_the_api_shows(acme: Any, ready_version: Any) -> None:
    version = ready_version(acme)
    key, _ = acme.key("ci")
    details = Details(
        auth_ms=3,
        quota_ms=1,
        finish_reason="abort",
        preemption_spans=((40, 7),),
        ignored=("a",),
        schema_violations=("oneOf",),
    )
    of_version = {"adapter": version.adapter, "version": version}
    record(acme, "a", **of_version, api_key=key, streamed=True, outcome="aborted", details=details)
    record(acme, "b")
    for event in recent_requests(acme.tenant, 10).results:
        shown = json.loads(json.dumps(RequestRecordSerializer(event).data, cls=JSONEncoder))
        assert request_json(event, RequestCosts([event]), base_names_of([event])) == shown


def test_a_request_says_what_it_waited_for_and_what_it_cost(acme: Any) -> None:
    day = date.today()
    PriceVersion.objects.create(
        number=1, effective_on=day - timedelta(days=1), currency="EUR", input_per_million=1_000_000,
        cached_input_per_million=500_000, output_per_million=2_000_000, storage_per_gb_month=0,
    )  # fmt: skip
    details = Details(
        auth_ms=3, quota_ms=1, finish_reason="length", adapter_loaded_from="disk", preemption_spans=((40, 7), (90, 2))
    )
    record(acme, "new", details=details)
    record(acme, "before prices", days_ago=3)
    older, newer = acme.client().get(acme.path("requests")).json()["results"]
    assert {name: newer[name] for name in ("auth_ms", "quota_ms", "finish_reason", "adapter_loaded_from")} == {
        "auth_ms": 3, "quota_ms": 1, "finish_reason": "length", "adapter_loaded_from": "disk"
    }  # fmt: skip
    assert newer["base_model"] == newer["model"], "of a request without an adapter"
    assert newer["preemption_spans"] == [{"at_ms": 40, "ms": 7}, {"at_ms": 90, "ms": 2}]
    assert (newer["cost_micros"], newer["currency"]) == (8 + 1 + 10, "EUR")
    assert (older["id"], older["cost_micros"], older["preemption_spans"]) == ("before prices", None, [])


def test_a_batch_stores_what_is_new_of_it(acme: Any) -> None:
    record(acme, "a")
    plain = {"tenant": acme.tenant, "model": "m", "endpoint": "completions", "outcome": "finished"}
    ended = [Ended(request_id=name, created_at=datetime.now(UTC), counts=Counts(), **plain) for name in "abcb"]
    assert record_events(ended) == 2
    assert UsageEvent.objects.for_tenant(acme.tenant).count() == 3


def test_sums(acme: Any, globex: Any, ready_version: Any) -> None:
    version = ready_version(acme)
    record(acme, "a", adapter=version.adapter, version=version)
    record(acme, "b", adapter=version.adapter, version=version, days_ago=1)
    record(acme, "c", days_ago=1, outcome="aborted")
    record(acme, "old", days_ago=40)
    record(globex, "theirs", prompt=1000)
    aggregate()
    usage = acme.client().get(acme.path("usage?days=7")).json()
    assert usage["totals"] == {
        "requests": 3, "prompt_tokens": 30, "cached_prompt_tokens": 6, "completion_tokens": 15, "device_us": 0,
        "cost_micros": None,
    }  # fmt: skip
    assert len(usage["by_day"]) == 7
    assert [day["requests"] for day in usage["by_day"]][-2:] == [2, 1]
    assert [(row["adapter"], row["requests"]) for row in usage["by_adapter"]] == [("support", 2), (None, 1)]
    for field in ("requests", "prompt_tokens", "completion_tokens"):
        assert sum(day[field] for day in usage["by_day"]) == usage["totals"][field]
        assert sum(row[field] for row in usage["by_adapter"]) == usage["totals"][field]


def test_overview(acme: Any, globex: Any, ready_version: Any) -> None:
    ready_version(acme)
    record(acme, "a")
    record(acme, "b", days_ago=2)
    record(globex, "c")
    aggregate()
    overview = acme.client().get(acme.path("overview")).json()
    assert overview["adapters"] == {"total": 1, "ready": 1}
    assert (overview["requests_24h"], overview["tokens_24h"]) == (1, 15)
    assert [request["id"] for request in overview["recent_requests"]] == ["b", "a"]
    assert [host["name"] for host in overview["hosts"]] == ["local"]


def test_pages(acme: Any) -> None:
    for index in range(7):
        record(acme, f"req_{index}")
    first = acme.client().get(acme.path("requests?limit=3")).json()
    record(acme, "req_new")
    second = acme.client().get(acme.path(f"requests?limit=3&cursor={first['next_cursor']}")).json()
    third = acme.client().get(acme.path(f"requests?limit=3&cursor={second['next_cursor']}")).json()
    seen = [row["id"] for page in (first, second, third) for row in page["results"]]
    assert seen == [f"req_{index}" for index in reversed(range(7))]
    assert third["next_cursor"] is None


@pytest.mark.parametrize(
    "query", ["requests?cursor=%00", "requests?cursor=zzz", "requests?limit=0", "requests?limit=x", "usage?days=0"]
)
def test_bad_queries(acme: Any, query: str) -> None:
    answer = acme.client().get(acme.path(query))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in ("cursor", "limit", "days")


def test_no_prompt_is_kept() -> None:
    names = {field.name for field in UsageEvent._meta.get_fields()}
    assert not {name for name in names if "text" in name or "content" in name or name in ("prompt", "output")}
