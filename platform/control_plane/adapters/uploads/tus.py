"""Resumable uploads, tus 1.0: `/api/tenants/{tenant}/uploads/resumable[/{id}]`.

A plain ASGI application in front of Django, whose handler would read a whole body before any view runs. The caller is
authenticated from the headers alone; then bytes go from the socket to the artifact file system in pieces of a MiB, so
that memory stays constant, and the socket is not read faster than the disk writes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.core.exceptions import RequestAborted

from control_plane.adapters.registry.upload_bounds import UploadBound, UploadTooLargeError, largest_upload
from control_plane.adapters.uploads import resumable, spool, tus_headers
from control_plane.adapters.uploads.actions import UploadEndedError
from control_plane.adapters.uploads.authorization import authorize_upload
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.partial_file import Transfer, acknowledged
from control_plane.adapters.uploads.spool import on_disk
from control_plane.adapters.uploads.tus_headers import Checksum, Metadata, TusError
from control_plane.core.cancellation import to_completion
from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.http.body_guard import (
    DRAIN_BYTES,
    MULTIPART_OVERHEAD,
    declared_length,
    send_refusal,
)
from control_plane.core.http.content_encoding import require_plain_body
from control_plane.core.http.request_id import accept_or_make, set_request_id
from control_plane.core.lifespan import AsgiApp, Receive, Scope, Send
from control_plane.core.storage_errors import telling_storage_errors
from control_plane.core.unavailable import telling_unavailable
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

PATH = re.compile(
    r"^/api/tenants/(?P<tenant>[-a-zA-Z0-9_]+)/uploads/resumable(?:/(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))?/?$"
)
# Seconds of silence after which a connection counts as lost, so that its client can continue over another.
SILENCE_S = 30.0


class ChecksumMismatchError(TusError):
    def __init__(self) -> None:
        super().__init__(
            "checksum_mismatch",
            "The bytes of this request do not match Upload-Checksum; they were dropped.",
            "Send them again from the same offset.",
            status=460,
        )


class OffsetConflictError(TusError):
    def __init__(self, offset: int) -> None:
        super().__init__(
            "offset_conflict",
            f"{offset} bytes of this upload have arrived, so the next ones must begin there.",
            "Request Upload-Offset with HEAD and continue from it.",
            status=409,
        )
        self.offset = offset


class BeyondLengthError(TusError):
    def __init__(self, length: int) -> None:
        super().__init__(
            "beyond_length",
            f"The upload was announced with {length} bytes, but more arrived.",
            "Upload again.",
            status=413,
        )


class WrongMethodError(TusError):
    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(
            "method_not_allowed", f"{method} is not allowed here.", f"Send {', '.join(allowed)}.", status=405
        )
        self.allowed = ", ".join(allowed)


@dataclass(frozen=True)
class Call:
    """A request to a resumable upload: its caller, headers and ASGI channels."""

    principal: Principal
    tenant: str
    upload_id: UUID | None
    headers: dict[str, str]
    receive: Receive
    send: Send
    request_id: str

    async def answer(self, status: int, **headers: str | int) -> None:
        """Answer without a body; `upload_offset=3` is the header Upload-Offset."""
        await _send_empty(self.send, status, self.request_id, headers)


class ResumableUploads:
    """ASGI middleware that serves the addresses of `PATH`, and passes the others to `app`."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched = PATH.match(scope["path"])
        if matched is None:
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = accept_or_make(headers.get("x-request-id", ""))
        set_request_id(request_id)
        method = str(headers.get("x-http-method-override") or scope["method"]).upper()
        upload_id = UUID(matched["id"]) if matched["id"] else None
        try:
            if method == "OPTIONS":
                with telling_unavailable():
                    await _send_empty(send, 204, request_id, _abilities(await run_db(largest_upload)))
                return
            handler = _handler(method, upload_id)
            with telling_unavailable(), telling_storage_errors():
                principal = await run_db(authorize_upload, {**scope, "method": method}, matched["tenant"])
                tus_headers.require_version(headers)
                require_plain_body(dict(scope["headers"]))
                await handler(Call(principal, matched["tenant"], upload_id, headers, receive, send, request_id))
        except LorikeetError as error:
            await _refuse(scope, send, error, request_id)


async def _refuse(scope: Scope, send: Send, error: LorikeetError, request_id: str) -> None:
    declared = declared_length(dict(scope["headers"]))
    extra = {"tus_version": tus_headers.VERSION} if error.status == 412 else {}
    if isinstance(error, OffsetConflictError):
        extra = {"upload_offset": str(error.offset)}
    if isinstance(error, WrongMethodError):
        extra = {"allow": error.allowed}
    close = scope["method"] in ("POST", "PATCH") and (declared is None or declared > DRAIN_BYTES)
    await send_refusal(send, error, request_id, close=close, headers=_encoded(extra))


def _handler(method: str, upload_id: UUID | None) -> Callable[[Call], Awaitable[None]]:
    handlers = {"POST": _create} if upload_id is None else {"HEAD": _head, "PATCH": _patch, "DELETE": _delete}
    if method not in handlers:
        raise WrongMethodError(method, (*handlers, "OPTIONS"))
    return handlers[method]


async def _create(call: Call) -> None:
    tus_headers.refuse_unserved(call.headers)
    length = tus_headers.number(call.headers, "Upload-Length")
    if length == 0:
        raise TusError("empty_upload", "An upload cannot have 0 bytes.", "Send the archive's size in Upload-Length.")
    with_body = "content-type" in call.headers and call.headers.get("content-length") != "0"
    if with_body:
        tus_headers.require_body_type(call.headers)
    checksum, metadata = Checksum.read(call.headers), Metadata.read(call.headers)
    if length > (largest := await run_db(largest_upload)).bytes + MULTIPART_OVERHEAD:
        raise UploadTooLargeError(largest)
    await on_disk(spool.require_room, length)
    upload = await run_db(
        resumable.begin_resumable,
        acting=call.principal,
        name=metadata.adapter,
        description=metadata.description,
        file_name=metadata.filename,
        size=length,
        sha256=metadata.sha256,
        base_model=metadata.base_model,
    )
    offset = await _take_first(call, upload, checksum) if with_body else 0
    if offset is not None:
        location = f"/api/tenants/{call.tenant}/uploads/resumable/{upload.pk}"
        await call.answer(201, location=location, upload_offset=offset, upload_expires=_expires())


async def _head(call: Call) -> None:
    upload = await run_db(_upload_of, call)
    arriving = upload.state == UploadState.ARRIVING
    offset = await on_disk(acknowledged, Path(upload.folder)) if arriving else upload.bytes
    if arriving and offset == upload.bytes:
        await run_db(resumable.finish_resumable, upload)
    await call.answer(
        200, cache_control="no-store", upload_offset=offset, upload_length=upload.bytes, upload_expires=_expires()
    )


async def _patch(call: Call) -> None:
    tus_headers.require_body_type(call.headers)
    start, checksum = tus_headers.number(call.headers, "Upload-Offset"), Checksum.read(call.headers)
    upload = await run_db(_upload_of, call)
    if upload.state != UploadState.ARRIVING:
        raise UploadEndedError(upload)
    offset = await _take(call, upload, start, checksum)
    if offset is not None:
        await call.answer(204, upload_offset=offset, upload_expires=_expires())


async def _delete(call: Call) -> None:
    assert call.upload_id is not None
    await run_db(resumable.cancel_resumable, acting=call.principal, upload_id=call.upload_id)
    await call.answer(204)


def _upload_of(call: Call) -> Upload:
    assert call.upload_id is not None
    return resumable.get_resumable(call.principal.tenant, call.upload_id)


async def _take_first(call: Call, upload: Upload, checksum: Checksum | None) -> int | None:
    """Receive the body that came with the creation. If the disk refuses it, the upload ends: its address is unknown."""
    try:
        return await _take(call, upload, 0, checksum)
    except OSError:
        await run_db(resumable.abandon_resumable, upload)
        raise


async def _take(call: Call, upload: Upload, start: int, checksum: Checksum | None) -> int | None:
    """Receive the body from `start` on. Returns the new offset, or None if the client disconnected."""
    # Opening takes the upload's lock, which a transfer keeps until it is closed.
    transfer = await to_completion(on_disk(Transfer, Path(upload.folder)), undo=_close)
    try:
        # Under the lock no other request can end it, but it may have ended just before.
        upload = await run_db(resumable.get_resumable, upload.tenant, upload.pk)
        if upload.state != UploadState.ARRIVING:
            raise UploadEndedError(upload)
        if transfer.offset != start:
            raise OffsetConflictError(transfer.offset)
        hasher, whole = checksum.hasher() if checksum else None, True
        try:
            async for parts in spool.batches(call.receive, SILENCE_S):
                if transfer.end + sum(map(len, parts)) > upload.bytes:
                    raise BeyondLengthError(upload.bytes)
                await on_disk(transfer.write, parts, hasher)
        except RequestAborted:
            whole = False  # the bytes before count
        except OSError:
            if hasher is None:  # the bytes that the disk accepted count
                with suppress(OSError):
                    await on_disk(transfer.keep)
            raise
        if checksum and hasher and not (whole and hasher.digest() == checksum.digest):
            transfer.drop()
            if whole:
                raise ChecksumMismatchError
        await on_disk(transfer.keep)
        if transfer.offset == upload.bytes:
            await run_db(resumable.finish_resumable, upload)
        return transfer.offset if whole else None
    finally:
        await _close(transfer)


async def _close(transfer: Transfer) -> None:
    await on_disk(transfer.close)


def _abilities(largest: UploadBound) -> dict[str, str | int]:
    return {
        "tus_version": tus_headers.VERSION,
        "tus_extension": tus_headers.EXTENSIONS,
        "tus_max_size": largest.bytes + MULTIPART_OVERHEAD,
        "tus_checksum_algorithm": ",".join(tus_headers.ALGORITHMS),
    }


def _expires() -> str:
    return formatdate(time() + current().upload_expire_s, usegmt=True)


async def _send_empty(send: Send, status: int, request_id: str, headers: dict[str, str | int]) -> None:
    sent = [
        (b"tus-resumable", tus_headers.VERSION.encode()),
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        *_encoded(headers),
    ]
    if status != 204:
        sent.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": b""})


def _encoded(headers: dict[str, str | int] | dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), str(value).encode("latin-1")) for name, value in headers.items()]
