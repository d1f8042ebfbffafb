"""Checks before a request's body is read.

Django's ASGI handler reads a whole body before any view runs, so an unknown sender could fill the disk. This guard
runs before it: it authenticates the caller of an upload from the headers alone, and it counts bytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.http.body_budget import BodyReservation, budget
from control_plane.core.http.client_address import network_of
from control_plane.core.http.content_encoding import require_plain_body
from control_plane.core.http.errors import error_body, headers_of
from control_plane.core.http.request_id import accept_or_make, set_request_id
from control_plane.core.lifespan import AsgiApp, Receive, Scope, Send
from control_plane.core.storage_errors import telling_storage_errors
from control_plane.core.unavailable import telling_unavailable
from control_plane.identity.tenants.roles import Capability

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UploadAddress:
    """An address that accepts files, or a text of that size."""

    path: re.Pattern[str]
    needs: Capability
    # Bytes of its files; None: those of the largest adapter.
    most: Callable[[], int] | None
    fix: str
    # True for JSON, which is read into memory whole and counts in the budget of bodies.
    in_memory: bool = False


def _below_tenant(name: str) -> re.Pattern[str]:
    return re.compile(rf"^/api/tenants/(?P<tenant>[-a-zA-Z0-9_]+)/{name}/?$")


ADAPTERS = UploadAddress(
    _below_tenant("uploads"),
    Capability.WRITE_ADAPTERS,
    None,
    "Save the adapter in 16 bits, train it with a lower rank or fewer target modules, or ask the operator to raise "
    "LORIKEET_UPLOAD_MAX_BYTES, if it is set.",
)
BATCHES = UploadAddress(
    _below_tenant("batches"),
    Capability.INFER,
    lambda: current().batch_file_max_bytes,
    "Send the requests as several files.",
)
EVALUATION_SETS = UploadAddress(
    _below_tenant("evaluation-sets"),
    Capability.WRITE_ADAPTERS,
    lambda: current().evaluation_max_bytes,
    "Send fewer or shorter items, or ask the operator to raise LORIKEET_EVALUATION_MAX_BYTES.",
)
PREFIXES = UploadAddress(
    _below_tenant("pinned-prefixes"),
    Capability.WRITE_ADAPTERS,
    lambda: current().request_max_bytes,
    "Pin a shorter beginning: a request that begins with it would be refused too.",
    in_memory=True,
)
UPLOADS = (ADAPTERS, BATCHES, EVALUATION_SETS, PREFIXES)
MULTIPART_OVERHEAD = 1 << 20  # bytes of headers and boundaries around an upload's files
# Maximum bytes of a body at every other address: no form or call of the API needs nearly as many.
BODY_MAX_BYTES = 64 << 10
# Bytes of a refused body that are read and dropped, so that the client sees the answer. A longer body is cut off.
DRAIN_BYTES = 64 << 20
Headers = Sequence[tuple[bytes, bytes]]


class BodyTooLargeError(LorikeetError):
    def __init__(self, limit: int, fix: str = "Send a smaller body.") -> None:
        message = f"The body is larger than the {limit} bytes that this address accepts."
        super().__init__("body_too_large", message, fix, status=413)
        self.limit = limit


class BodyGuard:
    """ASGI middleware around Django's handler."""

    def __init__(
        self,
        app: AsgiApp,
        authorize_upload: Callable[[Scope, str, Capability], object],
        require_room: Callable[[int], None],
        adapter_bytes: Callable[[], int],
    ) -> None:
        """Wrap the ASGI application `app`.

        Two callables raise LorikeetError: `authorize_upload` for a caller who lacks the capability in the tenant of
        that short name, `require_room` where the disk has no room for that many bytes. `adapter_bytes` returns the
        bytes of the largest adapter, from the database.
        """
        self.app, self._authorize_upload, self._require_room = app, authorize_upload, require_room
        self._adapter_bytes = adapter_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = accept_or_make(headers.get(b"x-request-id", b"").decode("latin-1"))
        set_request_id(request_id)
        upload, tenant = _upload_at(scope)
        in_memory = upload is None or upload.in_memory
        too_large = BodyTooLargeError(BODY_MAX_BYTES)
        declared = declared_length(headers)
        try:
            require_plain_body(headers)
            if upload:
                with telling_unavailable():
                    await run_db(self._authorize_upload, scope, tenant, upload.needs)
                    most = upload.most() if upload.most else await run_db(self._adapter_bytes)
                    too_large = BodyTooLargeError(most + (0 if in_memory else MULTIPART_OVERHEAD), upload.fix)
            if declared is not None and declared > too_large.limit:
                raise too_large
            with (
                BodyReservation(budget, _holder(scope)) as reservation,
                telling_storage_errors() if upload else nullcontext(),
            ):
                if upload:
                    await asyncio.to_thread(self._require_room, declared or 0)
                await self.app(scope, _counted(receive, too_large, reservation if in_memory else None), send)
        except LorikeetError as error:
            close = declared is None or declared > DRAIN_BYTES
            await send_refusal(send, error, request_id, close=close)


def _upload_at(scope: Scope) -> tuple[UploadAddress | None, str]:
    """Return the upload address of the request, if it is one, and the short name of its tenant."""
    if scope["method"] == "POST":
        for upload in UPLOADS:
            if match := upload.path.match(scope["path"]):
                return upload, match["tenant"]
    return None, ""


def declared_length(headers: dict[bytes, bytes]) -> int | None:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else None


def _holder(scope: Scope) -> str:
    client = scope.get("client")
    return network_of(client[0]) if client else ""


def _counted(receive: Receive, too_large: BodyTooLargeError, reservation: BodyReservation | None) -> Receive:
    """Return a `receive` that raises `too_large` when more bytes came than its limit, whatever was declared.
    `reservation` is None for an upload, which goes to the disk and does not count in the budget.
    """
    seen = 0

    async def counted() -> Mapping[str, Any]:
        nonlocal seen
        message = await receive()
        count = len(message.get("body", b""))
        seen += count
        if seen > too_large.limit:
            raise too_large
        if reservation is not None:
            reservation.grow(count)
        return message

    return counted


async def send_refusal(
    send: Send, error: LorikeetError, request_id: str, *, close: bool, headers: Headers = ()
) -> None:
    """Answer with the error. `close` cuts off a body that is not worth reading to its end."""
    logger.info("Refused before the body: %s", error.code)
    body = json.dumps(error_body(**error.body())).encode() + b"\n"
    sent = [
        *headers,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    sent += [(name.lower().encode(), value.encode()) for name, value in headers_of(error).items()]
    if close:
        sent.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": sent})
    await send({"type": "http.response.body", "body": body})
