"""What is compressed on its way to a client, and what never is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from control_plane.core.http.compression import LARGE, CompressionMiddleware
from control_plane.core.http.console import ConsoleMiddleware
from control_plane.identity.audit.models import AuditEvent

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
GZIP = {"HTTP_ACCEPT_ENCODING": "gzip, deflate, br"}
ROWS = json.dumps([{"name": f"adapter-{n}", "state": "ready"} for n in range(2000)])


def sent(accept: str = "gzip", body: str = ROWS, path: str = "/api/x", **headers: str) -> HttpResponse:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(body, content_type=headers.pop("Content_Type", "application/json"), headers=headers)

    answer = CompressionMiddleware(view)(RequestFactory().get(path, HTTP_ACCEPT_ENCODING=accept))
    assert isinstance(answer, HttpResponse)
    return answer


def test_rows_are_compressed() -> None:
    answer = sent()
    assert gzip.decompress(answer.content).decode() == ROWS
    assert (answer["Content-Encoding"], answer["Vary"]) == ("gzip", "Accept-Encoding")
    assert int(answer["Content-Length"]) == len(answer.content) < len(ROWS) / 5


async def test_large_ones_are_compressed_without_holding_the_loop() -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(ROWS, content_type="application/json")

    assert len(ROWS) > LARGE
    answer: Any = CompressionMiddleware(view)(RequestFactory().get("/api/x", HTTP_ACCEPT_ENCODING="gzip"))
    assert gzip.decompress((await answer).content).decode() == ROWS


@pytest.mark.parametrize("accept", ["", "br", "identity", "gzip;q=0", "br, gzip; q=0.0"])
def test_only_for_who_takes_it(accept: str) -> None:
    answer = sent(accept)
    assert answer.content.decode() == ROWS
    assert answer["Vary"] == "Accept-Encoding"


def test_what_is_small_or_compressed_already_is_left_alone() -> None:
    for answer in (sent(body="{}"), sent(Content_Type="image/png"), sent(**{"Content-Encoding": "br"})):
        assert answer.get("Content-Encoding") != "gzip"


def test_lengths_do_not_tell_what_is_inside() -> None:
    assert len({len(sent().content) for _ in range(30)}) > 5


# BREACH: what holds a secret is never compressed beside what somebody else may have chosen.
def test_secrets_are_not_compressed() -> None:
    assert "Content-Encoding" not in sent(**{"Cache-Control": "no-store"})
    assert "Content-Encoding" not in sent(path="/api/session")


def test_answers_with_secrets_are_not_compressed(acme: Any) -> None:
    client = acme.client()
    name = "n" * 80
    made = client.post(acme.path("keys"), {"name": name}, format="json", **GZIP)
    rotated = client.post(acme.path(f"keys/{made.json()['id']}/rotate"), {}, format="json", **GZIP)
    invited = client.post(acme.path("invitations"), {"email": "x@y.example", "role": "viewer"}, format="json", **GZIP)
    for answer in (made, rotated, invited):
        assert answer.status_code < 300
        assert (answer["Cache-Control"], answer.get("Content-Encoding")) == ("no-store", None)


def test_lists_are_compressed(acme: Any) -> None:
    client = acme.client()
    for n in range(20):
        client.post(acme.path("keys"), {"name": f"key {n}"}, format="json")
    assert AuditEvent.objects.count() > 20
    answer = client.get(acme.path("keys"), **GZIP)
    assert answer["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(answer.content))) == 20


def test_the_bundle_comes_as_it_was_compressed(tmp_path: Path, settings: Any) -> None:
    plain = b"console.log(1);" * 100
    (tmp_path / "assets").mkdir()
    for suffix, content in (("", plain), (".gz", gzip.compress(plain)), (".br", b"brotli")):
        (tmp_path / "assets" / f"index-abc123.js{suffix}").write_bytes(content)
    settings.WHITENOISE_ROOT = str(tmp_path)
    middleware = ConsoleMiddleware(lambda request: HttpResponse("a view"))

    def asked(accept: str) -> Any:
        return middleware(RequestFactory().get("/assets/index-abc123.js", HTTP_ACCEPT_ENCODING=accept))

    assert (asked("gzip, br")["Content-Encoding"], asked("gzip, br").content) == ("br", b"brotli")
    assert (asked("gzip")["Content-Encoding"], gzip.decompress(asked("gzip").content)) == ("gzip", plain)
    assert asked("").content == plain
    assert "Accept-Encoding" in asked("gzip")["Vary"]
