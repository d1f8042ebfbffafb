"""Every endpoint that takes `since` and `until`: windows that follow each other add up to the whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone as django_timezone
from lorikeet_testing.ledger import record_event

from control_plane.billing.refusals.actions import Count, Reason, add
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.fleet.hosts import service_gaps
from control_plane.fleet.hosts.models import EngineHost
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "frontend" / "openapi.json").read_text())
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ZONES = [timezone(offset) for offset in (timedelta(), 5.5 * HOUR, -8 * HOUR, 5.75 * HOUR, 14 * HOUR)]
ACTION = "window.test"


def windowed() -> list[str]:
    """The addresses of the schema that take both ends of a window."""
    return [
        path
        for path, methods in SCHEMA["paths"].items()
        if {"since", "until"} <= {parameter["name"] for parameter in methods.get("get", {}).get("parameters", [])}
    ]


def _gaps(answer: Any) -> int:
    """Steps in which two tenants waited: only the widest gap of a step is kept, so each event here has its own."""
    return sum(point["widest"] is not None for host in answer.json()["hosts"] for point in host["points"])


async def _whole(answer: Any) -> bytes:
    return b"".join([part async for part in answer.streaming_content])


# By the end of an address: how many events an answer counts, and the parameters that a whole answer needs.
COUNTED: dict[str, tuple[Callable[[Any], int], dict[str, Any]]] = {
    "/audit": (lambda answer: len(answer.json()["events"]), {"size": 200, "action": ACTION}),
    "/audit.csv": (
        lambda answer: async_to_sync(_whole)(answer).count(ACTION.encode()),
        {"action": ACTION},
    ),
    "/fairness": (_gaps, {}),
    "/refusals/series": (lambda answer: answer.json()["total"], {}),
    "/requests": (lambda answer: len(answer.json()["results"]), {"limit": 200}),
    "/series": (lambda answer: answer.json()["totals"]["requests"], {}),
    "/series/parts": (lambda answer: sum(part["requests"] for part in answer.json()), {"by": "key"}),
}
# Those that are read in steps, from sums by the minute or hour.
STEPPED = ("/series", "/series/parts", "/fairness")


def kind_of(path: str) -> str:
    """The longest end of an address that is in `COUNTED`; an endpoint without one has no test yet."""
    ends = [end for end in COUNTED if path.endswith(end)]
    assert ends, f"{path} takes since and until: say in COUNTED how its answer counts"
    return max(ends, key=len)


Ask = Callable[..., Any]


@pytest.fixture
def ask(acme: Any, operator: Any) -> Ask:
    owner = acme.client(Role.OWNER)

    def get(path: str, **query: Any) -> Any:
        client = operator if path.startswith("/api/operator/") else owner
        answer = client.get(path.replace("{tenant}", "acme"), {**COUNTED[kind_of(path)][1], **query})
        assert answer.status_code == 200, (path, query, answer.content)
        return answer

    return get


def happen(acme: Any, globex: Any, host: EngineHost, moments: Sequence[datetime]) -> None:
    """At each moment a request, a refused one, a line in the audit log, and a gap between two tenants."""
    for number, at in enumerate(moments):
        record_event(
            request_id=f"w{number}", tenant=acme.tenant, created_at=at, counts=Counts(prompt_tokens=1), model="m",
            endpoint="chat.completions", host=host.name, outcome="finished",
        )  # fmt: skip
        minute = int(at.timestamp() // 60)
        reason = Reason(acme.tenant.pk, None, "chat.completions", 429, "rate_limit_exceeded", "rpm", minute)
        add({reason: Count(1, at.timestamp(), "m")})
        ahead, behind = str(acme.tenant.pk), str(globex.tenant.pk)
        service_gaps.record(host.name, pb.ServiceGap(gap=1, bound=10, ahead=ahead, behind=behind), at)
        with pytest.MonkeyPatch.context() as clock:
            clock.setattr(django_timezone, "now", lambda at=at: at)
            AuditEvent.objects.create(tenant=acme.tenant, actor_kind="system", action=ACTION, target_kind="t")
    aggregate()


def test_each_is_known() -> None:
    assert {kind_of(path) for path in windowed()} == set(COUNTED)
    halves = {"since", "until"}
    for path, methods in SCHEMA["paths"].items():
        for operation in methods.values():
            names = halves & {parameter["name"] for parameter in operation.get("parameters", [])}
            assert names in (set(), halves), f"{path} takes one end of a window"


# Pages of CSV are read on threads of their own, with other connections to the database.
COMMITTED = pytest.mark.django_db(transaction=True)
PATHS = [pytest.param(path, marks=[COMMITTED] if path.endswith(".csv") else []) for path in windowed()]


@pytest.mark.parametrize("path", PATHS)
def test_adjacent_windows_add_up(path: str, acme: Any, globex: Any, host: EngineHost, ask: Ask) -> None:
    rnd, kind = random.Random(path), kind_of(path)
    is_stepped = kind.endswith(STEPPED)
    now = django_timezone.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    # Of the minutes of one day, and of the hours before; each with an event on it, just before it and just after it.
    recent = [hour - minutes * MINUTE for minutes in sorted(rnd.sample(range(10, 500), 5), reverse=True)]
    recent.append(hour - 2 * MINUTE)
    old = [hour - hours * HOUR for hours in rnd.sample(range(60, 400), 4)]
    borders = sorted({*old, *recent, *(border.replace(minute=0) for border in recent[:2])})
    tick = timedelta(microseconds=1)
    moments = sorted(border + offset for border in borders for offset in (-tick, timedelta(), MINUTE / 2))
    happen(acme, globex, host, moments)

    def events(since: datetime, until: datetime) -> int:
        inside = [at for at in moments if since <= at < until]
        if kind != "/fairness":
            return len(inside)
        return len({at.replace(second=0, microsecond=0) for at in inside})

    def count(since: datetime, until: datetime, **query: Any) -> int:
        ends = [moment.astimezone(rnd.choice(ZONES)).isoformat() for moment in (since, until)]
        return COUNTED[kind][0](ask(path, since=ends[0], until=ends[1], **query))

    end = hour - MINUTE
    for steps, places in (([60, 300, 3600, 86_400], [*recent, end]), ([3600, 7200, 86_400], [*borders, end])):
        if kind == "/fairness":
            steps = steps[:1]
            if steps == [3600]:
                continue  # one gap an hour is kept of old times: these do not add up
        whole = events(places[0], places[-1])
        chosen = [places[0], *sorted(rnd.sample(places[1:-1], 3)), places[-1]]
        parts = [
            count(since, until, **({"step": rnd.choice(steps)} if is_stepped else {}))
            for since, until in pairwise(chosen)
        ]
        assert parts == [events(since, until) for since, until in pairwise(chosen)]
        assert sum(parts) == whole
        if is_stepped:
            assert count(places[0], places[-1], step=rnd.choice(steps)) == whole
        assert count(places[0], places[-1]) == whole or kind == "/fairness"


# Their answers say which ends they have; a page of parts does not.
STEPPED_PATHS = [path for path in windowed() if path.endswith(STEPPED) and not path.endswith("/parts")]


@pytest.mark.parametrize("path", STEPPED_PATHS)
def test_ends_between_minutes_move_back_to_theirs(
    path: str, acme: Any, globex: Any, host: EngineHost, ask: Ask
) -> None:
    """Also of times that are kept by the hour; the answer says which ends it has."""
    hour = django_timezone.now().replace(minute=0, second=0, microsecond=0)
    for start, grain in ((hour - 3 * HOUR, MINUTE), (hour - 100 * HOUR, HOUR)):
        ends = [start + grain / 3, start + grain, start + 2.5 * grain]
        parts = [ask(path, since=since.isoformat(), until=until.isoformat()) for since, until in pairwise(ends)]
        shown = [
            (datetime.fromisoformat(part.json()["since"]), datetime.fromisoformat(part.json()["until"]))
            for part in parts
        ]
        assert shown == [(start, start + grain), (start + grain, start + 2 * grain)]
    wrong = {"since": (hour - 3 * HOUR).isoformat(), "until": (hour - 3 * HOUR + MINUTE / 2).isoformat()}
    client = acme.client(Role.OWNER) if "{tenant}" in path else None
    if client is not None:
        answer = client.get(path.replace("{tenant}", "acme"), wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_time_range")


@pytest.mark.parametrize("path", STEPPED_PATHS)
def test_a_range_ends_with_the_present_step(path: str, acme: Any, globex: Any, host: EngineHost, ask: Ask) -> None:
    """Also a window that goes on into the future; the first step of a range is a whole one."""
    now = django_timezone.now()
    happen(acme, globex, host, [now])
    for query in ({"range": "1d", "step": 3600}, {"since": (now - HOUR).isoformat(), "until": "2999-01-01T00:00:00Z"}):
        answer = ask(path, **query)
        assert COUNTED[kind_of(path)][0](answer) == 1, query
        assert answer.json()["until"] > now.isoformat()
    answer = ask(path, range="1d", step=3600).json()
    assert datetime.fromisoformat(answer["since"]).minute == 0


def test_steps_at_the_ends_count_what_is_inside(acme: Any, globex: Any, host: EngineHost, ask: Ask) -> None:
    hour = django_timezone.now().replace(minute=0, second=0, microsecond=0) - 5 * HOUR
    happen(acme, globex, host, [hour + minutes * MINUTE for minutes in (5, 20, 40, 70, 100)])
    query = {"since": (hour + 20 * MINUTE).isoformat(), "until": (hour + 100 * MINUTE).isoformat(), "step": 3600}
    report = ask("/api/tenants/{tenant}/series", **query).json()
    starts = [(datetime.fromisoformat(point["at"]), point["requests"]) for point in report["points"]]
    assert starts == [(hour, 2), (hour + HOUR, 1)]
    assert report["by_host"][0]["requests_by_step"] == [2, 1]
    assert report["by_host"][0]["requests"] == 3
    refused = ask("/api/tenants/{tenant}/refusals/series", **query).json()
    assert refused["by_code"][0]["by_step"] == [2, 1]
