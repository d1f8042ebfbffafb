"""Refused requests, counted by minute and reason."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from control_plane.billing.refusals import actions
from control_plane.billing.refusals.actions import Count, Reason, add
from control_plane.billing.refusals.models import HourlyRefusals, Refusal
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.recording import refusals
from control_plane.gateway.recording.refusals import RefusalLog
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
MINUTE = int(time.time() // 60)


def reason(org: Any, minute: int = MINUTE, **fields: Any) -> Reason:
    plain = {"api_key_id": None, "endpoint": "chat.completions", "status": 429, "code": "rate_limit_exceeded"}
    return Reason(tenant_id=org.tenant.pk, minute=minute, **{"limit": "requests_per_minute", **plain, **fields})


def count(number: int, model: str = "support") -> Count:
    return Count(number, time.time(), model)


@pytest.fixture
def within_one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's clock stands still: what is noted next to each other is never of two minutes."""
    now = time.time()
    monkeypatch.setattr(refusals, "time", SimpleNamespace(time=lambda: now))


def test_counts_add_up(acme: Any) -> None:
    key, _ = acme.key("backend")
    add({reason(acme): count(3), reason(acme, api_key_id=key.pk): count(1)})
    add({reason(acme): count(4, "pirate"), reason(acme, MINUTE + 1): count(1)})
    rows = acme.client(Role.VIEWER).get(acme.path("refusals")).json()["results"]
    assert sorted((row["count"], row["key"], row["model"]) for row in rows if row["key"] is None) == [
        (1, None, "support"),
        (7, None, "pirate"),
    ]
    assert next(row for row in rows if row["key"] == "backend")["count"] == 1
    assert rows[0]["limit"] == "requests_per_minute"


def test_pages(acme: Any, globex: Any) -> None:
    add({reason(acme, MINUTE + number): count(1) for number in range(5)})
    add({reason(globex): count(1)})
    first = acme.client().get(acme.path("refusals?limit=3")).json()
    second = acme.client().get(acme.path(f"refusals?limit=3&cursor={first['next_cursor']}")).json()
    assert [len(first["results"]), len(second["results"]), second["next_cursor"]] == [3, 2, None]
    assert acme.client().get(acme.path("refusals?cursor=nonsense!")).json()["error"]["code"] == "bad_cursor"


def test_old_ones_are_forgotten(acme: Any) -> None:
    add({reason(acme): count(1), reason(acme, MINUTE - 31 * 24 * 60): count(1)})
    assert actions.forget() == 1
    assert Refusal.objects.get().minute > timezone.now() - timedelta(days=1)


@pytest.mark.usefixtures("within_one_minute")
def test_what_clients_make_up_is_no_new_row_and_never_too_long(acme: Any) -> None:
    log = RefusalLog()
    for number in range(1000):
        log.note(acme.principal(), "completions", invalid("m", "f", f"p{number}" * 99), f"model-{number}" * 99)
    (counted,) = log._counts.items()
    with CaptureQueriesContext(connection) as queries:
        add(dict([counted]))
    assert len([query for query in queries if "SAVEPOINT" not in query["sql"]]) <= 6
    row = Refusal.objects.get()
    assert (row.count, row.code, row.model[:9]) == (1000, "invalid_value", "model-999")


def test_a_text_that_no_database_stores_holds_up_no_other_refusal(acme: Any) -> None:
    """The batch of counts was written in vain for as long as the process ran."""
    log = RefusalLog()
    log.note(acme.principal(), "completions", invalid("m", "f", "a\0"), "m\0")
    add(log._counts)
    row = Refusal.objects.get()
    assert (row.model, row.param) == ("m\N{REPLACEMENT CHARACTER}", "a\N{REPLACEMENT CHARACTER}")


@pytest.mark.usefixtures("within_one_minute")
def test_kinds_are_bounded(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_WAITING", 2)
    log = RefusalLog()
    for code in ("a", "b", "c", "b"):
        log.note(acme.principal(), "completions", invalid("m", "f", code=code), "")
    assert [(kind.code, found.count) for kind, found in log._counts.items()] == [("a", 1), ("b", 2)]


@pytest.mark.usefixtures("within_one_minute")
def test_a_database_that_is_away_loses_nothing(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    fails = [True, False]

    async def run(_add: Any, counts: dict[Reason, Count]) -> None:
        if fails.pop(0):
            raise DatabaseError("away")
        written.extend(found.count for found in counts.values())

    monkeypatch.setattr(refusals, "run_db", run)
    log, error = RefusalLog(), ApiError(429, "rate_limit_exceeded", "m", "f")
    principal = acme.principal()
    log.note(principal, "completions", error, "support")

    async def twice() -> None:
        assert not await log._write()
        log.note(principal, "completions", error, "support")
        assert await log._write()

    asyncio.run(twice())
    assert written == [2]


def series(org: Any, **query: Any) -> Any:
    answer = org.client(Role.VIEWER).get(org.path("refusals/series"), query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_over_time_by_code(acme: Any, globex: Any) -> None:
    quota, away = reason(acme), reason(acme, MINUTE - 2, status=503, code="no_ready_host", limit="")
    add({quota: count(3), reason(acme, MINUTE - 3): count(2), away: count(4), reason(globex): count(9)})
    add({quota: count(1)})
    found = series(acme, range="15m", step=60)
    assert (found["total"], found["failed"], found["step_s"]) == (10, 4, 60)
    assert [(row["code"], row["status"], row["count"]) for row in found["by_code"]] == [
        ("rate_limit_exceeded", 429, 6),
        ("no_ready_host", 503, 4),
    ]
    assert {len(row["by_step"]) for row in found["by_code"]} == {len(found["starts"])}
    assert [number for number in found["by_code"][0]["by_step"] if number] == [2, 4]
    for span in ("7d", "90d"):  # from the hours
        assert (series(acme, range=span)["total"], series(acme, range=span)["failed"]) == (10, 4)
    assert series(globex)["total"] == 9
    wrong = acme.client().get(acme.path("refusals/series"), {"since": "2020-01-01T00:00:00Z"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_time_range")


def test_operators_see_all_or_one(acme: Any, globex: Any) -> None:
    add({reason(acme): count(3), reason(globex): count(9)})
    assert acme.client(Role.OWNER).get("/api/operator/refusals/series").status_code == 403
    set_operator(actor=SYSTEM, user=globex.users[Role.VIEWER], operator=True)
    operator = globex.client(Role.VIEWER)
    assert operator.get("/api/operator/refusals/series").json()["total"] == 12
    assert operator.get("/api/operator/refusals/series?tenant=acme&range=7d").json()["total"] == 3
    assert operator.get("/api/operator/refusals/series?tenant=nobody").status_code == 404


def test_rare_codes_are_added_up(acme: Any) -> None:
    add({reason(acme, code=f"code_{number:02}"): count(100 - number) for number in range(23)})
    found = series(acme)
    assert [row["code"] for row in found["by_code"][-2:]] == ["code_19", "others"]
    assert found["by_code"][-1]["count"] == 80 + 79 + 78
    assert found["total"] == sum(row["count"] for row in found["by_code"])


def test_hours_are_forgotten_after_ninety_days(acme: Any) -> None:
    add({reason(acme): count(3)})
    actions.forget(timezone.now() + timedelta(days=60))
    assert HourlyRefusals.objects.count() == 1 and not Refusal.objects.exists()
    actions.forget(timezone.now() + timedelta(days=92))
    assert not HourlyRefusals.objects.exists()
