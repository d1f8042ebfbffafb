"""``/v1``: what OpenAI's clients call. Plain asynchronous views; a client that goes away cancels them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.access.principal import Principal
from control_plane.adapters.imports.hub_policy import listed_under
from control_plane.adapters.resolve import ListedModel, ModelNotFoundError, find_models, list_models
from control_plane.db import run_db
from control_plane.gateway.admission import Admission
from control_plane.gateway.errors import ApiError
from control_plane.gateway.generation import begin
from control_plane.gateway.json_encoding import encode_large
from control_plane.gateway.openai.callers import admission_of, caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_json, read_parameters
from control_plane.gateway.openai.response_writers import ChunkWriter, whole
from control_plane.gateway.openai.serving import endpoint, idempotent, shape_of, stream, undispatched
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.runtime import runtime
from control_plane.http.access import public
from control_plane.http.request_id import set_request_id
from control_plane.usage import request_ids

R = TypeVar("R", ChatCompletionRequest, CompletionRequest)


@endpoint("POST")
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        asked, admission = await _admit(request, ChatCompletionRequest, pending)
        answer = partial(_answer, request, admission, asked, pending)
        return await idempotent(request, admission, answer)


@endpoint("POST")
async def completions(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, CompletionRequest.endpoint) as pending:
        asked, admission = await _admit(request, CompletionRequest, pending)
        answer = partial(_answer, request, admission, asked, pending)
        return await idempotent(request, admission, answer)


@endpoint("GET")
async def models(request: HttpRequest) -> HttpResponseBase:
    return JsonResponse({"object": "list", "data": await run_db(_list, caller_of(request))})


@endpoint("GET")
async def model(request: HttpRequest, name: str) -> HttpResponseBase:
    return JsonResponse(await run_db(_retrieve, caller_of(request), name))


@public
async def not_found(request: HttpRequest) -> HttpResponseBase:
    """Anything else below /v1."""
    served = "chat/completions, completions, responses, embeddings, models, files and batches"
    fix = f"Lorikeet serves, below /v1: {served}."
    return ApiError(404, "unknown_url", f"Invalid URL ({request.method} {request.path}).", fix).response()


def _list(principal: Principal) -> list[dict[str, Any]]:
    return [_model_json(listed) for listed in list_models(principal.tenant)]


def _retrieve(principal: Principal, name: str) -> dict[str, Any]:
    """By any name that a request may use."""
    for listed in find_models(principal.tenant, search=listed_under(name))[0]:
        if name == listed.id or name in listed.aliases:
            return {**_model_json(listed), "id": name}
    raise ModelNotFoundError(name, [])


def _model_json(listed: ListedModel) -> dict[str, Any]:
    of_tenant, base = listed.adapter is not None, listed.base
    return {
        "id": listed.id,
        "object": "model",
        "created": int(listed.created_at.timestamp()),
        "owned_by": "tenant" if of_tenant else "lorikeet",
        "root": f"{listed.adapter}@v{listed.version}" if of_tenant else listed.id,
        "parent": base.name if of_tenant and base else None,
        "max_model_len": base.max_context if base else None,
    }


async def _admit(request: HttpRequest, kind: type[R], pending: Undispatched) -> tuple[R, Admission]:
    """The checked body and who sent it. What is not understood is a refusal too, without a model."""
    with pending.reading():
        asked = read_parameters(kind, read_json(request.body))
    pending.model = asked.model
    return asked, await admission_of(request, asked.model)


async def _answer(
    request: HttpRequest,
    admission: Admission,
    asked: ChatCompletionRequest | CompletionRequest,
    pending: Undispatched,
) -> HttpResponseBase:
    prompts = asked.prompt_parts()
    shape = shape_of(asked, prompts)
    request_id = request_ids.make(admission.principal, asked.endpoint, streamed=asked.stream)
    set_request_id(request_id)
    generation = await begin(runtime(), admission, asked, streamed=asked.stream, request_id=request_id)
    pending.dispatched()
    if asked.stream:
        return await stream(generation, ChunkWriter(generation, shape, asked, prompts))
    async with generation:
        body = await whole(generation, shape, asked, prompts)
        if asked.scored is not None:
            content = await asyncio.to_thread(encode_large, body)
            return HttpResponse(content, content_type="application/json", headers=generation.headers)
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
