"""LoRAX's endpoints, over the same generation as /v1: admission, limits, the ledger and errors are the same."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.core.http.json_body import read_object
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.generation import begin
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.lorax.request import LoraxRequest, read_request
from control_plane.gateway.lorax.response_writers import TokenWriter, answer, error_body
from control_plane.gateway.openai.callers import admission_of
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
    """Serve `POST /`: a stream if the body says so, else a list of one answer."""
    return await _serve(request, streamed=None)


async def _serve(request: HttpRequest, *, streamed: bool | None) -> HttpResponseBase:
    with undispatched(request, LoraxRequest.endpoint) as pending:
        with pending.reading():
            params = read_request(read_object(request.body, nul=True))
        listed = streamed is None
        params.stream = params.stream if streamed is None else streamed
        pending.model = params.model
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as kept:
            return kept.stored or kept.keep(await _answer(admission, params, pending, listed=listed))


async def _answer(
    admission: Admission, params: LoraxRequest, pending: Undispatched, *, listed: bool
) -> HttpResponseBase:
    generation = await begin(runtime(), admission, params, streamed=params.stream, pending=pending)
    if params.stream:
        return await stream(generation, TokenWriter(params, generation))
    async with generation:
        [choice] = await gathered(generation, 1)
        body = answer(params, generation, choice)
        json_params = {"ensure_ascii": False}
        return JsonResponse(
            [body] if listed else body, safe=False, json_dumps_params=json_params, headers=generation.headers
        )
