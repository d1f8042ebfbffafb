"""Ids of inference requests: unique, with the caller, the endpoint and the mode encoded in them.

The engine keeps usage by this id. If the web process dies before it stored the usage, the record in the engine's
journal can still be charged to the right key or member. The id is signed with its tenant, so that no host can make up
requests.

``req_<11 random bytes, 5 of the signature><k|u><key or user><c|t|e><s|w|b>``: key or member; chat, text or embeddings;
streamed, whole or of a batch. A second or third attempt of the request, on another host, has ``.2`` or ``.3`` behind
that.
"""

from __future__ import annotations

import base64
import re
import secrets
import uuid
from dataclasses import dataclass

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.secrets.signatures import is_signed, sign
from control_plane.identity.access.principal import Principal

_ENDPOINTS = {ApiEndpoint.CHAT: "c", ApiEndpoint.COMPLETIONS: "t", ApiEndpoint.EMBEDDINGS: "e"}
_BY_LETTER = {letter: endpoint for endpoint, letter in _ENDPOINTS.items()}
_DRAWN = 11  # of 16 bytes
_PURPOSE = b"usage: ids of requests"
_FORM = re.compile(r"req_[\w-]{22}([ku])([\w-]{22})([cte])([swb])(?:\.[2-9])?", re.ASCII)


@dataclass(frozen=True)
class RequestOrigin:
    """The origin that an id encodes. One of ``key_id`` and ``user_id`` is set."""

    endpoint: ApiEndpoint
    streamed: bool
    batch: bool = False
    key_id: uuid.UUID | None = None
    user_id: uuid.UUID | None = None


def make(principal: Principal, endpoint: ApiEndpoint, *, streamed: bool, batch: bool = False) -> str:
    origin = principal.api_key or principal.user
    assert origin is not None
    who = ("k" if principal.api_key is not None else "u") + _short(origin.pk.bytes)
    rest = f"{who}{_ENDPOINTS[endpoint]}{'b' if batch else 's' if streamed else 'w'}"
    drawn = secrets.token_bytes(_DRAWN)
    return f"req_{_short(drawn + _start(sign(_PURPOSE, _message(drawn, rest, str(principal.tenant.pk)))))}{rest}"


def is_of(request_id: str, tenant: str) -> bool:
    """Return whether this installation made the id for a request of the tenant, which is given by its id in engines."""
    if _FORM.fullmatch(request_id) is None:
        return False
    first, rest = request_id[4:26], of_request(request_id)[26:]
    drawn, signature = (known := base64.urlsafe_b64decode(first + "=="))[:_DRAWN], known[_DRAWN:]
    # The canonical spelling only: else one request could be counted several times.
    return is_signed(_PURPOSE, _message(drawn, rest, tenant), signature, _start) and _short(known) == first


def _message(drawn: bytes, rest: str, tenant: str) -> bytes:
    return f"{drawn.hex()} {rest} {tenant}".encode()


def _start(signature: bytes) -> bytes:
    return signature[: 16 - _DRAWN]


def parse(request_id: str) -> RequestOrigin | None:
    """Return an id's origin; None for an id that this installation did not make."""
    match = _FORM.fullmatch(request_id)
    if match is None:
        return None
    kind, who, endpoint, mode = match.groups()
    origin = uuid.UUID(bytes=base64.urlsafe_b64decode(who + "=="))
    ids = {"key_id": origin} if kind == "k" else {"user_id": origin}
    return RequestOrigin(_BY_LETTER[endpoint], mode == "s", mode == "b", **ids)


def of_attempt(request_id: str, number: int) -> str:
    """Return the id of a request's attempt on an engine; attempts are numbered from 1."""
    return request_id if number == 1 else f"{request_id}.{number}"


def of_request(engine_id: str) -> str:
    """Return the id of the request that an engine id is an attempt of."""
    return engine_id.partition(".")[0]


def public_part(request_id: str) -> str:
    """Return the random part, for ids of completions."""
    return request_id[4:26]


def _short(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
