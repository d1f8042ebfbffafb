"""A request that fails is in the ledger as failed, is billed what its caller received, and counts against the SLO."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.browser import receive
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import FakeEngineThread, Running
from lorikeet_testing.ledger import record_event
from lorikeet_testing.platform_fixtures import Org
from lorikeet_testing.three_hosts import ThreeHosts, events, id_of, text_of
from lorikeet_testing.web import eventually
from websockets.asyncio.client import connect

from control_plane.billing.slo.actions import set_objective
from control_plane.billing.slo.queries import attainment
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.actions import ABANDONED_KEPT, Counts, abandon_attempts, forget_abandoned_attempts
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.models import AbandonedTry, ApiEndpoint, UsageEvent
from control_plane.billing.usage.recovery import recover_usage
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb


@pytest.fixture
def hosts(three_hosts: ThreeHosts) -> ThreeHosts:
    three_hosts.ready()
    return three_hosts


# -- after a token was sent, and when no host can go on ------------------------------


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("die@7 die@0", "engine_disconnected"),
        ("device_error@7 device_error@0", "device_error"),
        ("stop@7 stop@0 stop@0", "engine_stopped"),
    ],
)
def test_a_stream_that_breaks_ends_with_an_error_and_is_billed_what_arrived(
    hosts: ThreeHosts, fault: str, code: str
) -> None:
    answer = hosts.post(fault, stream=True, stream_options={"include_usage": True})
    assert answer.status_code == 200  # it had begun
    assert "[DONE]" not in answer.text
    error = events(answer)[-1]["error"]
    assert error["code"] == code
    assert error["message"] and error["fix"]
    received = len(text_of(answer).split())
    assert 0 < received <= 7
    assert len(hosts.tries(id_of(answer))) == len(fault.split())
    row = hosts.row(id_of(answer))
    assert (row["outcome"], row["error_code"]) == ("failed", code)
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["completion_tokens"]) == (0, 0, received)
    assert row["api_key_id"] and row["adapter_id"]


def test_what_its_journal_says_later_changes_nothing(hosts: ThreeHosts) -> None:
    answer = hosts.post("cut@7 cut@0", stream=True)
    row = hosts.row(id_of(answer))
    assert any(id_of(answer) in engine.journal for engine in hosts.engines)
    hosts.recover()
    assert hosts.row(id_of(answer)) == row
    assert row["outcome"] == "failed"


def test_on_the_socket(hosts: ThreeHosts) -> None:
    async def talk() -> tuple[str, int, dict[str, Any]]:
        url = f"{hosts.web.url.replace('http', 'ws')}/ws/inference"
        async with connect(url, additional_headers=hosts.web.tenants["acme"].bearer, proxy=None) as socket:
            await receive(socket)
            body = {"model": "support", "messages": [{"role": "user", "content": "tries die@7 die@0"}]}
            await socket.send(json.dumps({"type": "generate", "id": "a", "request": body}))
            accepted, tokens = await receive(socket), 0
            while (frame := await receive(socket))["type"] == "delta":
                tokens += frame["tokens"]
            return accepted["request_id"], tokens, frame

    request_id, tokens, last = asyncio.run(talk())
    assert (last["type"], last["error"]["code"]) == ("error", "engine_disconnected")
    row = hosts.row(request_id)
    assert (row["outcome"], row["completion_tokens"]) == ("failed", tokens)


def test_one_prompt_that_fails_for_good_fails_the_request(hosts: ThreeHosts) -> None:
    """Each prompt is a row of its own: one that had ended by then is billed, the others' callers received nothing."""
    body = {"model": "support", "prompt": ["tries die device_error@0", "tries hang"], "max_tokens": 4}
    answer = hosts.send("completions", body)
    assert answer.status_code == 500
    row = hosts.row(id_of(answer))
    assert (row["outcome"], row["completion_tokens"]) == ("failed", 0)
    hosts.ended(id_of(answer))
    (other,) = {s.request_id.partition(".")[0] for e in hosts.engines for s in e.submits if s.text == "tries hang"}
    assert hosts.row(other)["outcome"] == "failed"


def test_requests_of_the_console_and_attainment_have_it(hosts: ThreeHosts) -> None:
    console = Console(hosts.web, hosts.web.tenants["acme"])
    with contextlib.closing(console.http) as http:
        failed_before = http.get("/api/tenants/acme/slo").json()["failed"]
        request_id = id_of(hosts.post("die die"))
        hosts.row(request_id)
        shown = http.get("/api/tenants/acme/requests").json()["results"]
        assert (request_id, "failed") in {(row["id"], row["outcome"]) for row in shown}
        eventually(
            lambda: http.get("/api/tenants/acme/slo").json()["failed"] > failed_before, what="it among the failed"
        )


# -- attainment ---------------------------------------------------------------------


@pytest.mark.django_db
def test_failed_requests_met_no_objective(acme: Org) -> None:
    set_objective(acting=acme.principal(), first_token_ms=200, inter_token_ms=100, target=0.9)
    ended = [("finished", 100, 5)] * 3 + [("failed", 0, 0), ("failed", 50, 4), ("refused", 0, 0), ("aborted", 100, 3)]
    for outcome, first_token_ms, tokens in ended:
        record_event(
            request_id=uuid.uuid4().hex,
            tenant=acme.tenant,
            model="support",
            endpoint="completions",
            outcome=outcome,
            created_at=datetime.now(UTC),
            counts=Counts(first_token_ms=first_token_ms, completion_tokens=tokens, decode_ms=10),
        )
    aggregate()
    shown = attainment(acme.tenant, 7)
    assert (shown["requests"], shown["failed"]) == (7, 2)
    for metric in ("first_token", "inter_token"):
        assert (shown[metric]["measured"], shown[metric]["met"]) == (6, 4)
        assert shown[metric]["attainment"] == pytest.approx(4 / 6)
        assert shown[metric]["by_day"][-1]["measured"] == 6


# -- the journal of a host that comes back ------------------------------------------


@pytest.fixture
def journal(tmp_path: Any) -> Any:
    """An engine whose journal has what a test puts there."""
    thread = FakeEngineThread(f"unix:{tmp_path}/engine.sock")
    yield thread
    thread.close()


def keep(journal: FakeEngineThread, org: Org, engine_id: str, outcome: str = "aborted") -> None:
    submit = pb.Submit(request_id=engine_id, tenant=str(org.tenant.pk), text="four words are here")
    running = Running(submit, asyncio.Queue(), [], time.time() - 60)
    journal.engine._record(running, outcome).completion_tokens = 9


def recover(journal: FakeEngineThread) -> int:
    return recover_usage(HostEndpoint("local", journal.engine.address), leave_to_web_s=-1)


def make_id(org: Org) -> str:
    return request_ids.make(org.principal(), ApiEndpoint.CHAT, streamed=True)


@pytest.mark.django_db
def test_an_abandoned_try_is_billed_to_nobody(acme: Org, host: Any, journal: FakeEngineThread) -> None:
    request_id = make_id(acme)
    keep(journal, acme, request_id)
    abandon_attempts([request_id])
    assert recover(journal) == 0
    assert not UsageEvent.objects.exists()
    assert journal.engine.acknowledged == {request_id}


@pytest.mark.django_db
def test_of_two_tries_of_a_web_process_that_died_one_is_billed(acme: Org, host: Any, journal: FakeEngineThread) -> None:
    """It had no time to say which it had abandoned."""
    request_id = make_id(acme)
    for number in (1, 2):
        keep(journal, acme, request_ids.of_attempt(request_id, number))
    assert recover(journal) == 1
    assert UsageEvent.objects.get().request_id == request_id
    assert len(journal.engine.acknowledged) == 2


@pytest.mark.django_db
def test_of_a_failure_that_no_web_process_stored_nothing_is_billed(
    acme: Org, host: Any, journal: FakeEngineThread
) -> None:
    keep(journal, acme, make_id(acme), "failed")
    assert recover(journal) == 1
    row = UsageEvent.objects.get()
    assert (row.outcome, row.prompt_tokens, row.completion_tokens) == ("failed", 0, 0)


@pytest.mark.django_db
def test_abandoned_tries_are_forgotten(acme: Org) -> None:
    abandon_attempts(["old", "new"])
    old = timezone.now() - ABANDONED_KEPT - timedelta(minutes=1)
    AbandonedTry.objects.filter(pk="old").update(created_at=old)
    assert forget_abandoned_attempts() == 1
    assert AbandonedTry.objects.get().pk == "new"
