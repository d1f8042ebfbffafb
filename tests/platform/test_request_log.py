"""One log line for each request, by what it was; the client's id is kept; nothing secret is in it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpResponse
from django.utils import timezone
from django.utils.log import log_response
from lorikeet_testing.seed import add_version

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts
from control_plane.core.http.edge import Edge
from control_plane.core.http.logs import JsonFormatter, RequestIdFilter
from control_plane.core.http.request_id import accept_or_make, client_request_id, is_acceptable, set_request_id
from control_plane.core.http.request_log import ROUTE, TENANT, note_dispatched
from control_plane.gateway.recording.request_log import log_inference

CLIENTS_ID = "proxy-0123456789"


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    formatter, ids = JsonFormatter(), RequestIdFilter()
    return [
        json.loads(formatter.format(one))
        for one in caplog.records
        if one.name == "lorikeet.requests" and ids.filter(one)
    ]


async def request(app: Any, path: str = "/api/x", headers: Mapping[str, str] | None = None) -> list[Any]:
    """Send a request through the edge, as uvicorn does: in a task of its own."""
    sent: list[Any] = []
    raw = [(b"host", b"testserver"), *((k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"token=secret",
        "headers": raw,
        "http_version": "1.1",
    }

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    await asyncio.create_task(Edge(app, {})(scope, receive, send))
    return sent


def answering(status: int, *, as_id: str = "", dispatched: bool = False) -> Any:
    """An application that answers, and names the request as the gateway does, from a task within."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def view() -> None:
            set_request_id(as_id or accept_or_make(client_request_id()))
            scope["state"].update({ROUTE: "api/<slug:tenant>/x", TENANT: "acme"})
            if dispatched:
                note_dispatched(as_id)

        await asyncio.create_task(view())
        await send({"type": "http.response.start", "status": status, "headers": []})

    return app


def test_answers_that_were_chosen_are_no_errors(caplog: pytest.LogCaptureFixture) -> None:
    for status, error in ((503, None), (503, OperationalError()), (500, None), (500, ZeroDivisionError())):
        log_response("%d", status, response=HttpResponse(status=status), exception=error)
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


async def test_a_request_over_http_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await request(answering(200), "/api/invitations/secret", {"X-Request-Id": CLIENTS_ID})
    (line,) = lines(caplog)
    assert (line["method"], line["route"], line["status"], line["tenant"]) == (
        "GET",
        "api/<slug:tenant>/x",
        200,
        "acme",
    )
    assert line["request_id"] == CLIENTS_ID and line["ms"] >= 0 and line["level"] == "info"
    assert "secret" not in json.dumps(line)


async def test_an_inference_request_has_its_line_from_its_usage_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await request(answering(200, as_id="req_ledger", dispatched=True), headers={"X-Request-Id": CLIENTS_ID})
        assert lines(caplog) == []
        await request(answering(429, as_id="req_refused"), headers={"X-Request-Id": CLIENTS_ID})
    (line,) = lines(caplog)
    assert (line["request_id"], line["client_request_id"], line["status"]) == ("req_refused", CLIENTS_ID, 429)


async def test_what_the_edge_refuses_is_logged_and_so_is_a_client_that_left(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        raise ConnectionResetError

    settings.ALLOWED_HOSTS = ["other"]
    with caplog.at_level(logging.INFO):
        assert (await request(answering(200)))[0]["status"] == 400
        settings.ALLOWED_HOSTS = ["testserver"]
        with pytest.raises(ConnectionResetError):
            await request(silent)
    assert [line["status"] for line in lines(caplog)] == [400, 0]


async def test_sampling_keeps_failures(caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"log_requests": 0.0})
    with caplog.at_level(logging.INFO):
        for status in (200, 302, 404, 500):
            await request(answering(status))
    assert [line["status"] for line in lines(caplog)] == [404, 500]
    caplog.clear()
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"log_requests": 1.0})
    with caplog.at_level(logging.INFO):
        await request(answering(200), "/livez")
        assert lines(caplog) == [], "probes are no requests of anybody"


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        (CLIENTS_ID, True),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("short", False),
        ("", False),
        ("with space 123", False),
        ("line\nbreak123", False),
        ("linebreak1\n", False),
        ("\x1b[31mred-red", False),
        ("ünicode-123456", False),
        ('{"json": "1234"}', False),
    ],
)
async def test_a_well_formed_id_is_kept(offered: str, kept: bool) -> None:
    assert is_acceptable(offered) is kept
    assert (accept_or_make(offered) == offered) is kept
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(client_request_id())

    await request(app, headers={"X-Request-Id": offered.encode().decode("latin-1")} if offered else None)
    assert seen == [offered if kept else ""]


@pytest.mark.django_db
def test_the_line_of_an_inference_request(acme: Any, caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    version = add_version(acme.tenant, "support")
    ended = Ended(
        request_id="req_1", tenant=acme.tenant, model="support", endpoint="chat.completions", outcome="finished",
        created_at=timezone.now(), version=version, adapter=version.adapter, host="gpu1", streamed=True,
        counts=Counts(prompt_tokens=7, completion_tokens=9, first_token_ms=80, queue_ms=3, decode_ms=120),
    )  # fmt: skip
    with caplog.at_level(logging.INFO):
        log_inference(ended, "llama", CLIENTS_ID)
    (line,) = lines(caplog)
    expected = {
        "request_id": "req_1", "client_request_id": CLIENTS_ID, "tenant": acme.tenant.slug, "model": "support",
        "version": version.number, "base_model": "llama", "host": "gpu1", "outcome": "finished", "streamed": True,
        "prompt_tokens": 7, "completion_tokens": 9, "first_token_ms": 80, "queue_ms": 3, "decode_ms": 120,
    }  # fmt: skip
    assert line.items() >= expected.items()
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"log_requests": 0.0})
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_inference(ended, "llama", "")
        log_inference(Ended(**{**vars(ended), "outcome": "failed", "error_code": "engine_hung"}), "llama", "")
    assert [line["error_code"] for line in lines(caplog)] == ["engine_hung"]
