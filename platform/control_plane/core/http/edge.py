"""Checks that every request passes first, websockets included: host, client address, and characters."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.http.client_address import forwarded_client
from control_plane.core.http.connections import SLOT
from control_plane.core.http.errors import error_body
from control_plane.core.http.request_id import accept_or_make, begin_request, set_request_id
from control_plane.core.http.request_log import log_http
from control_plane.core.lifespan import AsgiApp, Receive, Scope, Send

ErrorBody = Callable[[LorikeetError], dict[str, Any]]


class Edge:
    """ASGI middleware around everything: /v1, the API, the console's pages, sockets."""

    def __init__(self, app: AsgiApp, bodies: Mapping[str, ErrorBody]) -> None:
        """Wrap `app`. bodies: the shape of an error below an address, where it is not the API's own."""
        self.app, self.bodies = app, bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._logged(scope, receive, _counting_refusals(scope, send))
        else:
            await self._checked(scope, receive, send)

    async def _logged(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request over HTTP, and log it at its end."""
        scope.setdefault("state", {})
        ids, began_s, status = begin_request(_offered(scope)), time.perf_counter(), 0

        async def noting(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._checked(scope, receive, noting)
        finally:
            log_http(scope, ids, status, began_s)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope = with_host(scope)
            check(scope)
        except LorikeetError as error:
            await self._refuse(scope, receive, send, error)
            return
        if current().trust_proxy and (client := forwarded_client(scope["headers"])):
            scope = {**scope, "client": (client, 0)}
        await self.app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: LorikeetError) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before it is accepted: the client sees 403
            return
        request_id = accept_or_make(_offered(scope))
        set_request_id(request_id)
        body_of = next((shape for prefix, shape in self.bodies.items() if scope["path"].startswith(prefix)), our_body)
        body = json.dumps(body_of(error)).encode() + b"\n"
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _counting_refusals(scope: Scope, send: Send) -> Send:
    slot = scope.get("state", {}).get(SLOT)

    async def counting(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            slot.refused()
        await send(message)

    return counting if slot is not None else send


def _offered(scope: Scope) -> str:
    return next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")


def our_body(error: LorikeetError) -> dict[str, Any]:
    return error_body(**error.body())


def with_host(scope: Scope) -> Scope:
    """Return the scope; an HTTP/1.0 request without a Host header, which it need not have, gets the server's name."""
    if scope.get("http_version") != "1.0" or any(name == b"host" for name, _ in scope["headers"]):
        return scope
    return {**scope, "headers": [*scope["headers"], (b"host", default_host(tuple(settings.ALLOWED_HOSTS)))]}


@lru_cache
def default_host(allowed: tuple[str, ...]) -> bytes:
    name = next((name.removeprefix(".") for name in allowed if name != "*"), "localhost")
    return name.encode("ascii", "ignore")


def check(scope: Scope) -> None:
    """Refuse a bad host or address. Raises LorikeetError (400)."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not is_ours(hosts[0], tuple(settings.ALLOWED_HOSTS)):
        raise LorikeetError(
            "bad_host",
            "The Host header names a host that this server does not serve.",
            "Use the server's own address, or have the operator add this name to LORIKEET_ALLOWED_HOSTS.",
        )
    if scope["query_string"].count(b"&") >= settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:
        raise LorikeetError(
            "bad_address", "The address holds more parameters than any endpoint accepts.", "Send fewer parameters."
        )
    # No database accepts it, and no name here contains it.
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise LorikeetError("bad_address", "The address holds a NUL character.", "Leave it out.")


@lru_cache(maxsize=1024)
def is_ours(host: bytes, allowed: tuple[str, ...]) -> bool:
    try:
        domain, _ = split_domain_port(host.decode("ascii"))
    except UnicodeDecodeError:
        return False
    return bool(domain) and validate_host(domain, allowed)
