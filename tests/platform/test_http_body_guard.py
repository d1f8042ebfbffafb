"""Over real ASGI: what is refused before a byte of the body is read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Mapping
from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.platform_fixtures import Org

from control_plane.adapters.registry.upload_bounds import largest_upload_bytes
from control_plane.adapters.uploads.asgi import Handler
from control_plane.adapters.uploads.authorization import authorize_upload
from control_plane.adapters.uploads.spool import require_room
from control_plane.core.db import run_db
from control_plane.core.http.body_guard import BODY_MAX_BYTES, MULTIPART_OVERHEAD, BodyGuard
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db(transaction=True)
BOUNDARY = "xyz"
MULTIPART = (b"content-type", f"multipart/form-data; boundary={BOUNDARY}".encode())


class Exchange:
    """One request over ASGI that counts how much of its body was taken."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = list(chunks)
        self.stays = bool(chunks)  # a client that sends nothing goes away, another waits for its answer
        self.taken = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def receive(self) -> dict[str, Any]:
        if not self.chunks:
            if self.stays:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}
        chunk = self.chunks.pop(0)
        self.taken += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": bool(self.chunks)}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")

    @property
    def error(self) -> dict[str, str]:
        error: dict[str, str] = json.loads(self.body)["error"]
        return error


async def send(
    path: str, chunks: list[bytes], headers: list[tuple[bytes, bytes]] | None = None, *, declared: int | None = None
) -> Exchange:
    exchange = Exchange(chunks)
    sent = [(b"host", b"localhost"), *(headers or [])]
    if declared is not None:
        sent.append((b"content-length", str(declared).encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": sent,
        "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    await BodyGuard(Handler(), authorize_upload, require_room, largest_upload_bytes)(
        scope, exchange.receive, exchange.send
    )
    return exchange


def bearer(text: str) -> tuple[bytes, bytes]:
    return (b"authorization", f"Bearer {text}".encode())


@pytest.fixture
def small_limit(settings: Any) -> int:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"upload_max_bytes": 1 << 20})
    return (1 << 20) + MULTIPART_OVERHEAD


async def test_nobody(acme: Any) -> None:
    for headers in ([], [bearer("lk_abcdefgh_wrong")]):
        exchange = await send(acme.path("uploads"), [b"x" * 1000], [MULTIPART, *headers], declared=1000)
        assert exchange.status == 401
        assert exchange.taken == 0
        assert exchange.error["fix"]
        assert exchange.error["request_id"] == exchange.headers["x-request-id"]


async def test_foreign_tenant_and_weak_role(acme: Any, globex: Any) -> None:
    _, foreign = await run_db(globex.key)
    _, weak = await run_db(acme.key, role=Role.VIEWER)
    for text, status in ((foreign, 404), (weak, 403)):
        exchange = await send(acme.path("uploads"), [b"x"], [MULTIPART, bearer(text)], declared=1)
        assert (exchange.status, exchange.taken) == (status, 0)


async def test_a_compressed_body(acme: Any) -> None:
    _, text = await run_db(acme.key)
    for path in (acme.path("uploads"), acme.path("adapters")):
        exchange = await send(path, [b"x"], [MULTIPART, bearer(text), (b"content-encoding", b"gzip")], declared=1)
        assert (exchange.status, exchange.taken) == (415, 0)
        assert exchange.error["code"] == "unsupported_content_encoding"


async def test_declared_too_large(acme: Any, small_limit: int) -> None:
    _, text = await run_db(acme.key)
    headers = [MULTIPART, bearer(text)]
    exchange = await send(acme.path("uploads"), [b"x"], headers, declared=small_limit + 1)
    assert (exchange.status, exchange.taken) == (413, 0)
    assert "LORIKEET_UPLOAD_MAX_BYTES" in exchange.error["fix"]
    assert "connection" not in exchange.headers
    huge = await send(acme.path("uploads"), [b"x"], headers, declared=10 << 30)
    assert huge.headers["connection"] == "close"


async def test_chunked_too_large(acme: Any, small_limit: int, lorikeet: Any) -> None:
    _, text = await run_db(acme.key)
    chunks = [b"x" * (64 << 10)] * 200
    exchange = await send(acme.path("uploads"), chunks, [MULTIPART, bearer(text)])
    assert exchange.status == 413
    assert exchange.taken <= small_limit + (64 << 10)
    assert exchange.error["code"] == "body_too_large"
    assert [path for path in lorikeet.artifacts.rglob("*") if path.is_file()] == []


async def test_other_addresses_take_little(acme: Any) -> None:
    exchange = await send("/api/session", [b"x"], declared=BODY_MAX_BYTES + 1)
    assert (exchange.status, exchange.taken) == (413, 0)


@pytest.mark.parametrize("address", ["evaluation-sets", "pinned-prefixes"])
async def test_long_texts_are_taken_from_whom_may_send_them(acme: Any, address: str) -> None:
    """As long as their settings say: sets of prompts, and documents that many requests begin with."""
    exchange = await send(acme.path(address), [b"x"], declared=BODY_MAX_BYTES + 1)
    assert (exchange.status, exchange.taken) == (401, 0)
    key = bearer((await run_db(acme.key))[1])
    text = "The sea is blue. " * 5000
    assert len(text) > BODY_MAX_BYTES
    if address == "evaluation-sets":
        item = json.dumps({"prompt": text, "expected": "so it is"}).encode()
        body, kind = multipart({"name": "long", "metric": "exact"}, {"long.jsonl": item}, "file"), MULTIPART
    else:
        body = json.dumps({"name": "long", "model": "nothing", "prompt": text}).encode()
        kind = (b"content-type", b"application/json")
    chunks = [body[start : start + 10_000] for start in range(0, len(body), 10_000)]
    exchange = await send(acme.path(address), chunks, [kind, key], declared=len(body))
    assert exchange.taken == len(body)
    if address == "evaluation-sets":
        assert exchange.status == 201, exchange.body
    else:
        assert (exchange.status, exchange.error["code"]) == (409, "pins_not_allowed")
    exchange = await send(acme.path(address), [b"x"], [kind, key], declared=10 << 20)
    assert (exchange.status, exchange.taken, exchange.error["code"]) == (413, 0, "body_too_large")


async def test_session_upload_needs_csrf(acme: Any, client: Any) -> None:
    await run_db(client.force_login, acme.users[Role.OWNER])
    cookie = (b"cookie", f"lorikeet_session={client.cookies['lorikeet_session'].value}".encode())
    exchange = await send(acme.path("uploads"), [b"x"], [MULTIPART, cookie], declared=1)
    assert (exchange.status, exchange.error["code"], exchange.taken) == (403, "csrf_failed", 0)


async def test_good_upload(acme: Any, host: Any, queue: Any) -> None:
    _, text = await run_db(acme.key)
    body = multipart({"name": "support"}, adapter_files())
    chunks = [body[start : start + 1000] for start in range(0, len(body), 1000)]
    exchange = await send(acme.path("uploads"), chunks, [MULTIPART, bearer(text)], declared=len(body))
    assert exchange.status == 202, exchange.body
    assert exchange.taken == len(body)
    assert json.loads(exchange.body)["state"] == "received"
    assert queue.names() == ["validate_next"]


async def test_session_upload(acme: Any, host: Any, queue: Any, client: Any) -> None:
    await run_db(client.force_login, acme.users[Role.DEVELOPER])
    token = (await run_db(client.get, "/api/session")).json()["csrf_token"]
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    headers = [MULTIPART, (b"cookie", cookies.encode()), (b"x-csrftoken", token.encode())]
    body = multipart({"name": "support"}, adapter_files())
    exchange = await send(acme.path("uploads"), [body], headers, declared=len(body))
    assert exchange.status == 202, exchange.body


async def test_client_goes_away(acme: Any, lorikeet: Any) -> None:
    _, text = await run_db(acme.key)
    exchange = await send(acme.path("uploads"), [], [MULTIPART, bearer(text)], declared=100)
    assert exchange.status == 0
    assert [path for path in lorikeet.artifacts.rglob("*") if path.is_file()] == []


def multipart(fields: dict[str, str], files: dict[str, bytes], field: str = "files") -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, content in files.items():
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


async def test_requests_share_threads(acme: Org, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop stands still until a thread that it started runs: Django starts two for each request."""
    key = bearer((await run_db(acme.key))[1])
    await send(acme.path("keys"), [b"{}"], [key])
    loops, starters = threading.get_ident(), []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        starters.append(threading.get_ident())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    statuses = [(await send(acme.path("keys"), [b"{}"], [key])).status for _ in range(20)]
    assert statuses == [403] * 20
    # A thread that has answered may not have said yet that it is free: a few more are started, once.
    assert starters.count(loops) <= 5


async def test_the_event_loop_writes_no_file(acme: Org, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is behind makes writers wait, and the loop has everybody's tokens to send."""
    writers = []
    write = SpooledTemporaryFile.writelines

    def noted(file: Any, parts: Iterable[bytes]) -> None:
        writers.append(threading.get_ident())
        write(file, parts)

    monkeypatch.setattr(SpooledTemporaryFile, "writelines", noted)
    key = bearer((await run_db(acme.key))[1])
    exchange = await send(acme.path("uploads"), [b"x" * (1 << 20)] * 3, [key, MULTIPART])
    assert exchange.status == 400  # it is no form
    assert writers
    assert threading.get_ident() not in writers
