"""LoRAX's endpoints, over the same generation as /v1: admission, limits, the ledger and errors are the same."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.billing.usage import request_ids
from control_plane.core.http.request_id import set_request_id
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.generation import begin
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.lorax.request import LoraxRequest, read_request
from control_plane.gateway.lorax.response_writers import TokenWriter, answer, error_body
from control_plane.gateway.openai.callers import admission_of
from control_plane.gateway.openai.parameters import read_json
from control_plane.gateway.openai.response_writers import gathered
from control_plane.gateway.openai.serving import endpoint, idempotent, stream, undispatched
from control_plane.gateway.recording.refusals import Undispatched


@endpoint("POST", body=error_body)
async def generate(request: HttpRequest) -> HttpResponseBase:
    return await _serve(request, streamed=False)


@endpoint("POST", body=error_body)
async def generate_stream(request: HttpRequest) -> HttpResponseBase:
    return await _serve(request, streamed=True)


@endpoint("POST", body=error_body)
async def either(request: HttpRequest) -> HttpResponseBase:
    """`POST /`: a stream if the body says so, else a list of one answer."""
    return await _serve(request, streamed=None)


async def _serve(request: HttpRequest, *, streamed: bool | None) -> HttpResponseBase:
    with undispatched(request, LoraxRequest.endpoint) as pending:
        with pending.reading():
            asked = read_request(read_json(request.body))
        listed = streamed is None
        asked.stream = asked.stream if streamed is None else streamed
        pending.model = asked.model
        admission = await admission_of(request, asked.model)
        return await idempotent(request, admission, partial(_answer, admission, asked, pending, listed=listed))


async def _answer(
    admission: Admission, asked: LoraxRequest, pending: Undispatched, *, listed: bool
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, asked.endpoint, streamed=asked.stream)
    set_request_id(request_id)
    generation = await begin(runtime(), admission, asked, streamed=asked.stream, request_id=request_id)
    pending.dispatched()
    if asked.stream:
        return await stream(generation, TokenWriter(asked, generation))
    async with generation:
        [choice] = await gathered(generation, 1)
        body = answer(asked, generation, choice)
        ascii_too = {"ensure_ascii": False}
        return JsonResponse(
            [body] if listed else body, safe=False, json_dumps_params=ascii_too, headers=generation.headers
        )
