"""Django's ASGI handler as /v1 needs it: bounded bodies, and no middleware beyond request ids.

The site's middleware is for browsers (sessions, CSRF, static files). Some of it is synchronous and would hold a thread
for as long as an answer takes, and every request would pay for all of it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any, cast
from urllib.parse import quote

from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from control_plane.core import config, traces
from control_plane.core.errors import LorikeetError
from control_plane.core.http.body_budget import BodyReservation, budget
from control_plane.core.http.body_guard import MULTIPART_OVERHEAD, declared_length
from control_plane.core.http.connections import tenant_holder
from control_plane.core.http.content_encoding import require_plain_body
from control_plane.core.http.disconnects import until_disconnected
from control_plane.core.http.metrics import MeasuringMiddleware
from control_plane.core.http.middleware import AsyncNext, RequestIdMiddleware
from control_plane.core.http.parse_queue import wait_to_parse
from control_plane.core.http.request_id import current_request_id
from control_plane.core.http.request_log import TENANT
from control_plane.gateway.dispatch.errors import ApiError, too_large
from control_plane.gateway.openai import cors
from control_plane.gateway.openai.callers import Authentication, GatewayRequest, identify
from control_plane.gateway.openai.sse import EventStreamResponse, Send

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
PREFIX = "/v1/"
FILES = "/v1/files"
LORAX = ("/generate", "/generate_stream")
VLLM = ("/tokenize", "/detokenize")
# Addresses of clients whose base URL lacks `/v1`: answered with what to set.
WITHOUT_VERSION = ("/chat/completions", "/completions", "/embeddings", "/responses", "/messages")
# Addresses of Azure's clients: `/openai/deployments/{model}/chat/completions` and `/openai/v1/…`.
_AZURE = "/openai/"
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/(.+)")


class ApiHeadersMiddleware(RequestIdMiddleware):
    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Content-Type-Options"] = "nosniff"
        if isinstance(response, HttpResponse) and response.get("Content-Type") == "application/json":
            _end_line(response)
        response["request-id"] = current_request_id()  # the ledger's id, under the name that Anthropic's clients read
        if (state := getattr(request, "scope", {}).get("state")) is not None and isinstance(request, GatewayRequest):
            principal = request.authentication.principal
            state[TENANT] = principal.tenant.slug if principal else ""
        if isinstance(request, GatewayRequest):
            for name, value in request.cors_headers.items():
                response[name] = value
        return super().after(request, response)


def _end_line(response: HttpResponse) -> None:
    """End JSON with a new line, so that a terminal's prompt begins on a line of its own."""
    if response.content and not response.content.endswith(b"\n"):
        response.content += b"\n"
        if response.has_header("Content-Length"):
            response["Content-Length"] = str(len(response.content))


class GatewayHandler(ASGIHandler):
    """An ASGI application that serves the project's URLs below /v1."""

    request_class = GatewayRequest

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        view = convert_exception_to_response(self._get_response_async)  # type: ignore[attr-defined]
        self._middleware_chain = MeasuringMiddleware(cast(AsyncNext, ApiHeadersMiddleware(cast(AsyncNext, view))))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or abort it when the client disconnects.

        Django's own version also sends its request signals, for the ORM's state per thread. The gateway's database work
        runs on separate threads, and each signal would cost a request two thread switches.
        """
        set_script_prefix(get_script_prefix(scope))
        scope, deployment = _from_azure(scope)
        if traces.is_on():
            traces.set_parent(dict(scope["headers"]).get(b"traceparent", b"").decode("latin-1"))
        if cors.is_preflight(scope):
            await cors.answer_preflight(scope, send)
            return
        authentication = await identify(scope)
        # Without a caller the body is not read: the view raises the authentication error first.
        owner = tenant_holder(authentication.principal.tenant.pk) if authentication.principal else None
        with BodyReservation(budget, owner) as reservation:
            body = BytesIO()
            try:
                if owner is not None:
                    headers = dict(scope["headers"])
                    require_plain_body(headers)
                    body = await self.read_body(receive, reservation, declared_length(headers), body_limit(scope))
                    if deployment:
                        body = _with_model(body, deployment)
            except RequestAborted:
                return
            except (ApiError, LorikeetError) as error:
                authentication = Authentication(error=error)
            request, refusal = self.create_request(scope, body)
            if request is None:
                await self.send_response(refusal or HttpResponseBadRequest(), send)
                return
            assert isinstance(request, GatewayRequest)
            request.authentication = authentication
            if origin := cors.origin_of(scope):
                request.cors_headers = await cors.headers_for(authentication.principal, origin)
            await wait_to_parse(body.getbuffer().nbytes)
            # Cancelling ends the view or the stream; both abort what runs on the engine.
            await until_disconnected(self._answer(request, send), receive)

    async def _answer(self, request: ASGIRequest, send: Send) -> None:
        response = await self.get_response_async(request)
        # A server may refuse to send because the client has disconnected; then the stream has not started.
        with contextlib.suppress(OSError):
            await self.send_response(response, send)

    async def send_response(self, response: HttpResponseBase, send: Send) -> None:
        """Send a response. A stream is closed however it ends, so that the engine stops generating."""
        if not isinstance(response, EventStreamResponse):
            await super().send_response(response, send)
            return
        try:
            await response.send(send)
        finally:
            await response.aclose()

    async def read_body(  # type: ignore[override]
        self, receive: Receive, reservation: BodyReservation, declared: int | None, limit: int
    ) -> BytesIO:
        """Read the body; its size is counted, not taken from a header. Raises ApiError (413), BodiesInFlightError."""
        body = BytesIO()
        if declared is not None and declared > limit:
            raise too_large(limit)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestAborted
            piece = message.get("body", b"")
            if body.tell() + len(piece) > limit:
                raise too_large(limit)
            reservation.grow(len(piece))
            body.write(piece)
            if not message.get("more_body", False):
                break
        body.seek(0)
        return body


def _from_azure(scope: Scope) -> tuple[Scope, str]:
    """Return the request with the address of /v1 in place of Azure's, and the model that Azure's address names."""
    path = scope["path"]
    if match := _DEPLOYMENT.fullmatch(path):
        deployment, rest = match.groups()
    elif path.startswith("/openai/v1/"):
        deployment, rest = "", path.removeprefix("/openai/v1/")
    else:
        return scope, ""
    rewritten = PREFIX + rest
    return {**scope, "path": rewritten, "raw_path": quote(rewritten).encode()}, deployment


def _with_model(body: BytesIO, model: str) -> BytesIO:
    """Return a body with ``model``, unless it names one; a body that is no JSON object is refused later."""
    try:
        fields = json.loads(body.getvalue())
    except (ValueError, RecursionError):
        return body
    if not isinstance(fields, dict) or fields.get("model"):
        return body
    return BytesIO(json.dumps({**fields, "model": model}).encode())


def body_limit(scope: Scope) -> int:
    """Return the largest body in bytes: an upload of a batch file may be larger than a request."""
    if scope["method"] == "POST" and scope["path"] == FILES:
        return config.current().batch_file_max_bytes + MULTIPART_OVERHEAD
    return config.current().request_max_bytes


class PathRouter:
    """An ASGI application that routes inference to the gateway and everything else to the site."""

    def __init__(self, gateway: Any, site: Any) -> None:
        self._gateway, self._site = gateway, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._gateway if is_inference(scope) else self._site
        await chosen(scope, receive, send)


def is_inference(scope: Scope) -> bool:
    """Return whether a request is for /v1, vLLM's or LoRAX's API. LoRAX's `POST /` has the path of the console."""
    path = scope["path"]
    if path.startswith((PREFIX, _AZURE)) or path in LORAX or path in VLLM:
        return True
    return bool(scope["method"] == "POST" and (path == "/" or path in WITHOUT_VERSION))
