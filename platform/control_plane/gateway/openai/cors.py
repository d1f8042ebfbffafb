"""Calls from web pages of other origins (CORS), for origins that the caller's tenant allows.

A page sends its key itself: cookies are ignored here, and no answer allows credentials. A page of another origin may
send a request, but cannot read the answer without the CORS header; the request does no more than the key alone could
do.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from control_plane.gateway.dispatch.errors import ApiError, of
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.identity.access.principal import Principal
from control_plane.identity.origins.models import LONGEST_ORIGIN

logger = logging.getLogger(__name__)
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Seconds for which browsers may cache a preflight's answer.
MAX_AGE_S = 600
ALLOW_ORIGIN = "Access-Control-Allow-Origin"
EXPOSED = (
    "X-Request-Id, request-id, X-Lorikeet-Ignored, X-Lorikeet-Checked-At-End, Retry-After, retry-after-ms, "
    "Idempotent-Replayed, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    # "*" stands for every header except Authorization.
    (b"access-control-allow-headers", b"Authorization, *"),
    (b"access-control-max-age", str(MAX_AGE_S).encode()),
)


def origin_of(scope: Mapping[str, Any]) -> str:
    """Return the origin of a request from a page of another origin, else ""."""
    header = next((value for name, value in scope["headers"] if name == b"origin"), b"")
    return header.decode("latin-1") if len(header) <= LONGEST_ORIGIN else ""


def is_preflight(scope: Mapping[str, Any]) -> bool:
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


async def answer_preflight(scope: Mapping[str, Any], send: Send) -> None:
    """Answer a preflight. It carries no key, so any origin that some tenant allows passes; the caller's own answer
    decides.
    """
    origin = origin_of(scope)
    try:
        allowed = bool(origin) and await runtime().admission_cache.some_allow_origin(origin)
        error = None if allowed else _not_allowed()
    except Exception as failure:
        error = of(failure)
    vary = (b"vary", b"Origin")
    if error is None:
        headers = [(ALLOW_ORIGIN.lower().encode(), origin.encode("latin-1")), *_PREFLIGHT, vary]
        await _respond(send, 204, headers, b"")
    else:
        body = json.dumps(error.openai_body()).encode() + b"\n"
        await _respond(send, error.status, [(b"content-type", b"application/json"), vary], body)


async def headers_for(principal: Principal | None, origin: str) -> dict[str, str]:
    """Return the headers that let a page of `origin` read this caller's answer, if the tenant allows it."""
    if principal is None or not origin:
        return {}
    try:
        allowed = await runtime().admission_cache.allows_origin(principal.tenant, origin)
    except Exception as failure:
        logger.warning("An origin could not be checked, and was refused: %s", failure)
        allowed = False
    shared = {ALLOW_ORIGIN: origin, "Access-Control-Expose-Headers": EXPOSED} if allowed else {}
    return {**shared, "Vary": "Origin"}


def _not_allowed() -> ApiError:
    return ApiError(
        403,
        "origin_not_allowed",
        "No tenant allows calls from pages of this origin.",
        "Ask an owner of the tenant to add the origin: PUT /api/tenants/{tenant}/origins.",
    )


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    if body:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
