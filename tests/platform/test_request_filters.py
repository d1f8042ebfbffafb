"""The filters of the request log: each alone, all together, and only within the tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.seed import add_version

from control_plane.billing.usage import queries
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.queries import RequestFilters

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
NOW = timezone.now().replace(microsecond=0)


@pytest.fixture
def log(acme: Any, globex: Any) -> dict[str, str]:
    """Three requests of acme's, one of globex's like the first."""
    key, _ = acme.key()
    first, second = add_version(acme.tenant, "support", 1), add_version(acme.tenant, "support", 2)
    common: dict[str, Any] = {"endpoint": "chat.completions"}
    record_event(
        request_id="req_slow", tenant=acme.tenant, model="support@v1", adapter=first.adapter, version=first,
        outcome="finished", host="gpu1", created_at=NOW - timedelta(hours=2), api_key=key,
        counts=Counts(prompt_tokens=4000, completion_tokens=96, queue_ms=100, prefill_ms=900, decode_ms=5000,
                      first_token_ms=1000), **common,
    )  # fmt: skip
    record_event(
        request_id="req_failed", tenant=acme.tenant, model="support@v2", adapter=second.adapter, version=second,
        outcome="failed", error_code="engine_disconnected", host="gpu2", created_at=NOW - timedelta(minutes=5),
        counts=Counts(prompt_tokens=10), **common,
    )  # fmt: skip
    record_event(
        request_id="req_old", tenant=acme.tenant, model="base", outcome="finished", host="gpu1",
        created_at=NOW - timedelta(days=60), counts=Counts(prompt_tokens=1, completion_tokens=1), **common,
    )  # fmt: skip
    record_event(
        request_id="req_theirs", tenant=globex.tenant, model="support@v1", outcome="finished", host="gpu1",
        created_at=NOW, counts=Counts(prompt_tokens=9), **common,
    )  # fmt: skip
    return {"key": str(key.pk)}


def found(org: Any, **query: Any) -> list[str]:
    answer = org.client().get(org.path("requests"), query)
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["results"]]


SLOW, FAILED, OLD = ["req_slow"], ["req_failed"], ["req_old"]


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["req_old", "req_failed", "req_slow"]),
    ({"model": "SUPPORT"}, [*FAILED, *SLOW]),
    ({"adapter": "support", "version": 1}, SLOW),
    ({"adapter": "supp"}, []),
    ({"adapter_contains": "UPP", "version": 1}, SLOW),
    ({"adapter_contains": "other"}, []),
    ({"outcome": "failed"}, FAILED),
    ({"error": "engine_disconnected"}, FAILED),
    ({"host": "gpu1"}, SLOW),
    ({"min_ms": 6000}, SLOW),
    ({"min_ms": 6001}, []),
    ({"min_first_token_ms": 1000}, SLOW),
    ({"min_tokens": 4096}, SLOW),
    ({"key": "console"}, FAILED),
    ({"since": (NOW - timedelta(hours=1)).isoformat()}, FAILED),
    ({"until": (NOW - timedelta(days=59)).isoformat()}, OLD),
    ({"outcome": "finished", "since": datetime(2020, 1, 1, tzinfo=UTC).isoformat()}, [*OLD, *SLOW]),
    ({"id": "req_old"}, OLD),
    ({"id": "req_theirs"}, []),
    ({"outcome": "finished", "host": "gpu2"}, []),
]


# Not by their values, in which there is the time.
@pytest.mark.parametrize(("query", "expected"), CASES, ids=[f"{n} {'+'.join(case[0])}" for n, case in enumerate(CASES)])
def test_filters(acme: Any, log: dict[str, str], query: dict[str, Any], expected: list[str]) -> None:
    assert found(acme, **query) == expected


def test_the_requests_of_a_key(acme: Any, globex: Any, log: dict[str, str]) -> None:
    assert found(acme, key=log["key"]) == SLOW
    assert found(globex, key=log["key"]) == []


def test_pages_keep_their_filter(acme: Any, log: dict[str, str]) -> None:
    first = acme.client().get(acme.path("requests"), {"model": "support", "limit": 1}).json()
    rest = acme.client().get(acme.path("requests"), {"model": "support", "cursor": first["next_cursor"]}).json()
    assert [row["id"] for row in first["results"] + rest["results"]] == [*FAILED, *SLOW]


@pytest.mark.parametrize(
    "query", [{"key": "x"}, {"outcome": "good"}, {"min_ms": -1}, {"since": "yesterday"}, {"version": 0}], ids=str
)
def test_what_makes_no_sense_is_refused(acme: Any, query: dict[str, Any]) -> None:
    answer = acme.client().get(acme.path("requests"), query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(query)))


def test_a_filter_that_nothing_fits_looks_through_a_part_at_a_time(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_SCANNED", 10)
    now = timezone.now()
    for number in range(35):
        at = now - timedelta(minutes=35 - number)
        record_event(
            request_id=f"req_{number}", tenant=acme.tenant, model="base", endpoint="chat.completions", created_at=at,
            outcome="failed" if number in (2, 30) else "finished", counts=Counts(prompt_tokens=1),
        )  # fmt: skip

    def pages(**asked: Any) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = queries.recent_requests(acme.tenant, 5, cursor, RequestFilters(**asked))
            found.append([row.request_id for row in page.results])
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor

    assert pages(outcome="failed") == [["req_30"], [], [], ["req_2"]]
    assert pages(outcome="refused") == [[], [], [], []]
    assert [len(page) for page in pages(outcome="finished")] == [5, 5, 5, 5, 5, 5, 3]
    assert pages(id="req_2") == [["req_2"]]
    # What is older than asked for ends the search, wherever the rows go on.
    monkeypatch.setattr(queries, "MAX_DELAY", timedelta(0))
    assert pages(outcome="refused", since=now - timedelta(minutes=12)) == [[], []]
    assert pages(outcome="failed", until=now - timedelta(minutes=30)) == [["req_2"]]
