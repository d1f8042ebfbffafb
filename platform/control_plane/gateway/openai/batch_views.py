"""`/v1/files` and `/v1/batches`."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field

from control_plane.core.cancellation import to_completion
from control_plane.core.db import run_db
from control_plane.core.http.json_body import read_object
from control_plane.core.http.known_names import require_known
from control_plane.core.storage_errors import telling_storage_errors
from control_plane.gateway.batches import actions, files
from control_plane.gateway.batches.models import ENDPOINTS, Batch, StoredFile
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.openai.callers import caller_of
from control_plane.gateway.openai.paging import PAGE, ListPage, list_json, read_page, unknown_after
from control_plane.gateway.openai.parameters import validate
from control_plane.gateway.openai.serving import endpoint
from control_plane.identity.access.principal import Principal
from control_plane.identity.tenants.models import Tenant

Json = dict[str, Any]
EXPIRY_ANCHOR, EXPIRY_SECONDS = "expires_after[anchor]", "expires_after[seconds]"
FORM_FIELDS = ("purpose", "file", EXPIRY_ANCHOR, EXPIRY_SECONDS)
# Bounds of a file's expiry in seconds, as in OpenAI's API: an hour to thirty days.
EXPIRY_BOUNDS_S = (3600, 2_592_000)


class NewBatch(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    input_file_id: str = Field(min_length=1, max_length=64)
    endpoint: str = Field(min_length=1, max_length=64)
    completion_window: Literal["24h"]
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
        ]
        | None
    ) = None


@endpoint("GET", "POST", query=(*PAGE, "purpose"))
async def file_list(request: HttpRequest) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "POST":
        return await _upload(request, principal)
    purpose = request.GET.get("purpose", "")
    rows = StoredFile.objects.for_tenant(principal.tenant).filter(expires_at__gt=timezone.now())
    return await _listed(request, rows.filter(purpose=purpose) if purpose else rows, "file-", file_json)


@endpoint("GET", "DELETE")
async def file(request: HttpRequest, name: str) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "DELETE":
        await run_db(files.delete_file, acting=principal, name=name)
        return JsonResponse({"id": name, "object": "file", "deleted": True})
    return JsonResponse(file_json(await run_db(files.get_file, principal.tenant, name)))


@endpoint("GET")
async def file_content(request: HttpRequest, name: str) -> HttpResponseBase:
    stored = await run_db(files.get_file, caller_of(request).tenant, name)
    response = StreamingHttpResponse(files.parts_of(stored), content_type="application/octet-stream")
    response["Content-Length"] = str(stored.bytes)
    response["Cache-Control"] = "no-store"
    return response


async def _upload(request: HttpRequest, principal: Principal) -> HttpResponseBase:
    with telling_storage_errors():
        # The thread reads the request's body, which is closed when this returns.
        fields, sent = await to_completion(asyncio.to_thread(_form, request))
        try:
            if "purpose" not in fields:
                raise invalid("The form holds no purpose.", "Send batch as the field purpose.", "purpose")
            if fields["purpose"] != "batch":
                raise invalid("Only files for batches are stored here.", "Send batch as the field purpose.", "purpose")
            keep_s = _expires_after(fields)
            if sent is None:
                raise invalid("The form holds no file.", "Send the JSON Lines file as the field file.", "file")
            name, content, size = sent.name or "file.jsonl", sent.chunks(), sent.size or 0
            upload = run_db(files.upload_file, acting=principal, name=name, content=content, size=size, keep_s=keep_s)
            made = await to_completion(upload)  # a cancelled upload must end before its file is closed
        finally:
            if sent is not None:
                await asyncio.to_thread(sent.close)
    return JsonResponse(file_json(made))


def _form(request: HttpRequest) -> tuple[dict[str, str], UploadedFile[Any] | None]:
    """Return the text fields and the file. Raises ApiError or LorikeetError (400, 415), also for an unknown field."""
    if request.content_type != "multipart/form-data":
        raise ApiError(
            415,
            "unsupported_media_type",
            "A file is sent as multipart/form-data.",
            "Set Content-Type, with the boundary.",
        )
    try:
        texts, sent = request.POST, request.FILES
    except (MultiPartParserError, SuspiciousOperation, BadRequest):
        raise invalid("The form could not be read.", "Send multipart/form-data with purpose and file.") from None
    require_known([*texts, *sent], FORM_FIELDS, "form field")
    for form in (texts, sent):
        for name in form:
            if (count := len(form.getlist(name))) > 1:
                raise invalid(f"The form holds {name} {count} times.", "Send it once.", name)
    for name in sent:
        if name != "file":
            raise invalid(f"{name} came as a file.", "Send it as text: a part without a filename.", name)
    if "file" in texts:
        raise invalid("file came as text.", "Send it as a file: a part with a filename.", "file")
    return texts.dict(), sent.get("file")


def _expires_after(fields: dict[str, str]) -> int | None:
    """Return the seconds to keep the file, None for the setting's default. Raises ApiError (400)."""
    anchor, seconds = fields.get(EXPIRY_ANCHOR), fields.get(EXPIRY_SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise invalid(
            "expires_after[anchor] must be created_at.", "Send it with expires_after[seconds].", EXPIRY_ANCHOR
        )
    least, most = EXPIRY_BOUNDS_S
    if seconds is None or not re.fullmatch("[0-9]{1,9}", seconds, re.ASCII) or not least <= int(seconds) <= most:
        raise invalid(
            f"{EXPIRY_SECONDS} must be a whole number from {least} to {most}.",
            "Send the number of seconds to keep the file.",
            EXPIRY_SECONDS,
        )
    return int(seconds)


@endpoint("GET", "POST", query=PAGE)
async def batch_list(request: HttpRequest) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "POST":
        return JsonResponse(await run_db(_create, principal, _read_batch(request)))
    rows = Batch.objects.for_tenant(principal.tenant)
    return await _listed(request, rows, "batch_", batch_json)


@endpoint("GET")
async def batch(request: HttpRequest, name: str) -> HttpResponseBase:
    return JsonResponse(await run_db(_read, caller_of(request).tenant, name))


@endpoint("POST")
async def batch_cancel(request: HttpRequest, name: str) -> HttpResponseBase:
    return JsonResponse(await run_db(_cancel, caller_of(request), name))


def _read_batch(request: HttpRequest) -> NewBatch:
    body = {name: value for name, value in read_object(request.body, nul=True).items() if value is not None}
    params = validate(NewBatch, body)
    if params.endpoint not in ENDPOINTS:
        raise invalid(f"endpoint must be one of {', '.join(ENDPOINTS)}.", "Choose one of them.", "endpoint")
    return params


def _create(principal: Principal, params: NewBatch) -> Json:
    assert principal.api_key is not None
    made = actions.create_batch(
        acting=principal,
        api_key=principal.api_key,
        input_file=params.input_file_id,
        endpoint=ENDPOINTS[params.endpoint],
        metadata=params.metadata,
    )
    return batch_json(made)


def _read(tenant: Tenant, name: str) -> Json:
    return batch_json(actions.get_batch(tenant, name))


def _cancel(principal: Principal, name: str) -> Json:
    return batch_json(actions.cancel_batch(acting=principal, name=name))


async def _listed(request: HttpRequest, rows: Any, prefix: str, shown: Any) -> HttpResponseBase:
    """Return one page of rows."""
    page = read_page(request)
    data, more = await run_db(_page, rows, prefix, page, shown)
    return JsonResponse(list_json(data, more=more))


def _page(rows: Any, prefix: str, page: ListPage, shown: Any) -> tuple[list[Json], bool]:
    order = ("created_at", "pk") if page.ascending else ("-created_at", "-pk")
    if page.after:
        last = rows.filter(pk__in=files.ids(page.after, prefix)).first()
        if last is None:
            raise unknown_after()
        if page.ascending:
            rows = rows.filter(created_at__gte=last.created_at).exclude(created_at=last.created_at, pk__lte=last.pk)
        else:
            rows = rows.filter(created_at__lte=last.created_at).exclude(created_at=last.created_at, pk__gte=last.pk)
    page_rows = list(rows.order_by(*order)[: page.limit + 1])
    return [shown(row) for row in page_rows[: page.limit]], len(page_rows) > page.limit


def file_json(stored: StoredFile) -> Json:
    return {
        "id": str(stored),
        "object": "file",
        "bytes": stored.bytes,
        "created_at": _seconds(stored.created_at),
        "expires_at": _seconds(stored.expires_at),
        "filename": stored.name,
        "purpose": stored.purpose,
        "status": "processed",
        "status_details": None,
    }


_STEPS = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def batch_json(row: Batch) -> Json:
    names = row.file_names
    return {
        "id": str(row),
        "object": "batch",
        "endpoint": row.url,
        "errors": {"object": "list", "data": row.errors} if row.errors else None,
        "input_file_id": names.get("input"),
        "completion_window": "24h",
        "status": row.state,
        "output_file_id": names.get("output"),
        "error_file_id": names.get("error"),
        "created_at": _seconds(row.created_at),
        "expires_at": _seconds(row.expires_at),
        **{f"{step}_at": row.times.get(step) for step in _STEPS},
        "request_counts": actions.counts_of(row),
        "metadata": row.metadata,
    }


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
