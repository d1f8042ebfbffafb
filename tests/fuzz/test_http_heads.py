"""HTTP heads of every damaged kind, sent to the web process as it is started: none is answered with its own fault."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.fuzzing import changed, fuzz
from lorikeet_testing.web import WebProcess

ANSWERS_WITHIN_S = 0.05
"""A head that looks whole; what takes longer is answered to nobody, and counts as "closed"."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # else the ports of 100,000 connections run out

TENANT = "/api/tenants/acme"
UPLOAD = f"{TENANT}/uploads/resumable"
PATHS = [
    "/", "/livez", "/readyz", "/metrics", "/v1/models", "/v1/models/support", "/v1/chat/completions", "/v1/nothing",
    "/api/session", "/api/docs", "/api/schema", f"{TENANT}/adapters", f"{TENANT}/usage?days=30",
    f"{TENANT}/audit?before=1", f"{TENANT}/requests?limit=5", f"{TENANT}/reports?month=2026-01", f"{TENANT}/uploads",
    UPLOAD, f"{UPLOAD}/00000000-0000-4000-8000-000000000000", "/ws/inference", "/ws/console", "/t/acme",
    "/assets/index.js", "/static/rest_framework/css/default.css", "/api/oidc/callback?code=a&state=b",
    "/api/oidc/start?next=/t/acme",
]  # fmt: skip
ODD_PATHS = [
    "*", "//", "/%00", "/%ff%fe", "/..%2f..%2fetc/passwd", "/static/../../manage.py", "/v1/models/%F0%9F%98%80",
    "http://evil.example/v1/models", "evil.example:80", "/api//tenants", "/v1/models/a%0Ab", "/?%00=%00", "/;a?b#c",
    "/%", f"{TENANT}/adapters?search=%00", f"{TENANT}/audit?before=99999999999999999999999",
    f"{TENANT}/usage?days=1e9", f"{TENANT}/requests?cursor=%ff%00", f"{TENANT}/reports?month=9999-13",
    f"{TENANT}/adapters/a/versions/{'9' * 40}", f"{UPLOAD}/%00", "/" + "a/" * 2000, "/?" + "a=1&" * 2000, "/\u00e9",
    "/v1/models/" + "x" * 5000,
]  # fmt: skip
METHODS = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI", "get", "QUERY", "M-SEARCH",
    "G\0T",
]  # fmt: skip
ODD_HEADERS = [
    "Host: evil.example", "Host:", "Host: [::1", "Host: localhost:99999999", "Host: \xff",
    "Transfer-Encoding: chunked", "Transfer-Encoding: identity, chunked", "Transfer-Encoding : chunked",
    "Transfer-Encoding: gzip", "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999",
    "Content-Length: 0x10", "Content-Length: +4", "Content-Length: 4, 4", "Content-Length: 1\r\nContent-Length: 2",
    "Expect: 100-continue", "Expect: nonsense", "Connection: close", "Connection: keep-alive, Upgrade, close",
    "Upgrade: h2c", "Upgrade: websocket", "HTTP2-Settings: AAM", "Sec-WebSocket-Key: short",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 99",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99", "Sec-WebSocket-Protocol: a,,b",
    "Origin: http://evil.example", "Origin: null", "Origin: \xff://", "Authorization: Bearer",
    "Authorization: Bearer lk_abcdefgh_\xff", "Authorization: Basic AAAA", "Authorization: bearer lk_abcdefgh_x y",
    'Cookie: lorikeet_session="aaaaaaaaaaaa\\000bbbbbbbb"', 'Cookie: lorikeet_session="\\377\\376aaaaaaaaaaaaaaaaa"',
    "Cookie: lorikeet_session=" + "a" * 4000, "Cookie: =;;=;a", "Cookie: lorikeet_csrf=\xff", "X-CSRFToken: \xff\x01",
    "X-Forwarded-For: 1.2.3.4, \xff", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example",
    "X-Request-Id: \xff", "X-HTTP-Method-Override: DELETE", "X-HTTP-Method-Override: \xff",
    "Content-Type: multipart/form-data", "Content-Type: multipart/form-data; boundary=" + "b" * 300,
    "Content-Type: application/json; charset=utf-7",
    "Content-Type: application/x-www-form-urlencoded; charset=nonsense", "Content-Type: \xff/\xff;=",
    "Content-Type: multipart/form-data; boundary=b; charset=hex", "Content-Type: application/json; charset=rot13",
    "Content-Type: application/x-www-form-urlencoded; charset=undefined", "Content-Encoding: gzip",
    "Accept: */*;q=x, text/html", "Accept: application/json; version=\xff", "Accept-Language: \xff, de;q=9",
    "Accept-Encoding: gzip;q=nan", "If-Modified-Since: Thu, 99 Foo 9999", "If-None-Match: \xff",
    "Range: bytes=0-0,-1,9-", "Range: bytes=99999999999999999999-", "Idempotency-Key: " + "k" * 300,
    "Idempotency-Key: \xff", "Tus-Resumable: 1.0.0", "Tus-Resumable: 9", "Upload-Length: 99999999999999999999",
    "Upload-Length: -0", "Upload-Offset: 0", "Upload-Offset: \xb2", "Upload-Metadata: filename \xff",
    "Upload-Metadata: adapter c3VwcG9ydA==,filename YS56aXA=", "Upload-Defer-Length: 1",
    "Upload-Checksum: sha256 AAAA", "Upload-Checksum: md5", "Upload-Concat: final;", " folded: header", "\tx", ":",
    "a", "\0: 1", "X-Long: " + "v" * 9000, "X-Endless: " + "v" * 40_000,
    "\r\n".join(f"X-{number}: 1" for number in range(120)), "Sec-WebSocket-Key: " + "k" * 9000, "X-\u00e9: 1",
    "Date:\x0b", "Trailer: Authorization", "Forwarded: for=\x22_gazonk\x22",
]  # fmt: skip
BODIES = [
    b"", b"", b"", b"{}", b'{"model":"support","messages":[]}', b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhel",
    b"zz\r\n",
]  # fmt: skip


PIECES = [b"\r\n", b"\n", b"\0", b"%00", b":"]


@dataclass(frozen=True)
class Change:
    """Of bytes at a place, given as a share of the head's length."""

    at: float
    cut: int
    put: bytes


@st.composite
def heads(draw: Callable[[SearchStrategy[object]], object], bearer: str) -> bytes:
    rest = draw(
        st.tuples(
            st.sampled_from(METHODS[:7] * 6 + METHODS),
            st.sampled_from(PATHS * 3 + ODD_PATHS),
            st.sampled_from(["HTTP/1.1"] * 40 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", "", "ICY"]),
            st.lists(st.sampled_from(ODD_HEADERS), max_size=2),
            st.booleans(),
            st.booleans(),
            st.sampled_from(BODIES),
            st.lists(
                st.builds(
                    Change,
                    st.floats(0, 1, allow_subnormal=False),
                    st.integers(0, 4),
                    st.one_of(st.just(b""), st.binary(max_size=3), st.sampled_from(PIECES)),
                ),
                max_size=1,
            ),
        )
    )
    assert isinstance(rest, tuple)
    method, path, version, odd, known, closes, body, changes = rest
    own = ["Host: localhost", *([f"Authorization: Bearer {bearer}"] if known else [])]
    own += [f"Content-Length: {len(body)}"] if body or method in ("POST", "PUT", "PATCH") else []
    own += ["Connection: close"] if closes else []
    head = "\r\n".join([f"{method} {path} {version}", *own, *odd, "", ""])
    data: bytes = head.encode("latin-1") + body
    for change in changes:
        at = int(change.at * len(data))
        data = data[:at] + change.put + data[at + change.cut :]
    return data


def send(port: int, data: bytes) -> int | str:
    """The status, or "closed" for a connection that ended without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        with contextlib.suppress(ConnectionError):  # refused in the middle: the answer may be there all the same
            client.sendall(data)
        try:
            answer = receive(client, ANSWERS_WITHIN_S)
            if answer.startswith(CONTINUE):
                answer = answer.removeprefix(CONTINUE) or receive(client, ANSWERS_WITHIN_S)
        except ConnectionError:
            return "closed"
    if not answer:
        return "closed"
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def receive(client: socket.socket, within_s: float) -> bytes:
    """What comes in time; else what comes once nothing more is sent."""
    client.settimeout(within_s)
    try:
        return client.recv(64)
    except TimeoutError:
        client.settimeout(10)
        client.shutdown(socket.SHUT_WR)
        return client.recv(64)


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {
        "LORIKEET_LOGIN_RATE": "1000000/min",
        "LORIKEET_CONNECTIONS_PER_ADDRESS": "0",
        "LORIKEET_CONNECTIONS_MAX": "16384",
    }


def test_http_heads(web: WebProcess) -> None:
    assert web.process is not None
    found = fuzz(
        "http head",
        heads(web.tenants["acme"].key),
        lambda data: send(web.port, data),
        vary=changed,
        processes=[web.process.pid],
    )
    assert found.outcomes.keys() - {"closed"}, "nothing was answered at all"
    # What the server itself met; other threads of the process log their own troubles.
    assert "Exception in ASGI application" not in web.log.read_text(errors="replace")
    assert send(web.port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
