"""``/v1``: the endpoints of OpenAI's clients. Asynchronous views that are cancelled when the client disconnects."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.adapters.imports.hub_models import find_hub_model
from control_plane.adapters.imports.hub_policy import HUB_PREFIX
from control_plane.adapters.registry.resolve import ModelNotFoundError, list_models, resolve_model
from control_plane.adapters.registry.versions import label_of
from control_plane.core.db import run_db
from control_plane.core.http.access import public
from control_plane.core.http.json_body import read_object
from control_plane.fleet.base_models.base_model import ServedBase, served_bases
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.admission import base_of
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation, begin
from control_plane.gateway.dispatch.json_encoding import encode_large
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import admission_of, caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.openai.response_writers import ChunkWriter, whole
from control_plane.gateway.openai.serving import (
    View,
    endpoint,
    idempotent,
    refuses_unknown,
    shape_of,
    stream,
    undispatched,
)
from control_plane.identity.access.principal import Principal


def _generation(kind: type[ChatCompletionRequest | CompletionRequest]) -> View:
    """Return the endpoint that answers bodies of one kind. An invalid body counts as a refusal without a model."""

    @endpoint("POST")
    async def generate(request: HttpRequest) -> HttpResponseBase:
        with undispatched(request, kind.endpoint) as pending:
            refuse_unknown = await refuses_unknown(request)
            with pending.reading():
                params = read_parameters(kind, read_object(request.body, nul=True), refuse_unknown=refuse_unknown)
            pending.model = params.model
            admission = await admission_of(request, params.model)
            async with idempotent(request, admission) as answer:
                if answer.stored is not None:
                    return answer.stored
                try:
                    generation = await begin(runtime(), admission, params, streamed=params.stream, pending=pending)
                    return answer.keep(await _response(generation, params))
                except HostError as failure:
                    raise params.in_sent_terms(errors.from_failure(failure)) from failure

    return generate


chat_completions, completions = _generation(ChatCompletionRequest), _generation(CompletionRequest)


@endpoint("GET")
async def models(request: HttpRequest) -> HttpResponseBase:
    return JsonResponse({"object": "list", "data": await run_db(_list, caller_of(request))})


@endpoint("GET")
async def model(request: HttpRequest, name: str) -> HttpResponseBase:
    return JsonResponse(await run_db(_retrieve, caller_of(request), name))


@public
async def not_found(request: HttpRequest) -> HttpResponseBase:
    """Answer any other path below /v1 with 404."""
    served = "chat/completions, completions, responses, embeddings, models, files and batches"
    fix = f"Lorikeet serves, below /v1: {served}."
    return ApiError(404, "unknown_url", f"Invalid URL ({request.method} {request.path}).", fix).response()


@public
async def without_version(request: HttpRequest) -> HttpResponseBase:
    """Answer an address of the API that lacks `/v1` with 404, and where to go."""
    base = "the server's address itself" if request.path == "/messages" else "the server's address followed by /v1"
    fix = f"Send it to /v1{request.path}: set the client's base URL to {base}."
    return ApiError(404, "unknown_url", f"Invalid URL ({request.method} {request.path}).", fix).response()


@public
async def unknown_azure_url(request: HttpRequest, rest: str) -> HttpResponseBase:
    """Answer any other address below /openai with 404."""
    fix = "Served are /openai/v1/… and /openai/deployments/{model}/chat/completions, /completions and /embeddings."
    return ApiError(404, "unknown_url", f"Invalid URL ({request.method} {request.path}).", fix).response()


def _list(principal: Principal) -> list[dict[str, Any]]:
    return [
        _model_json(
            listed.id,
            listed.created_at,
            f"{listed.adapter}@v{listed.version}" if listed.adapter is not None else "",
            listed.base,
        )
        for listed in list_models(principal.tenant)
    ]


def _retrieve(principal: Principal, name: str) -> dict[str, Any]:
    """Return a model by any name that a request may use. Raises LorikeetError as requests do."""
    tenant, bases = principal.tenant, served_bases()
    is_of_hub = name.startswith(HUB_PREFIX)
    model = find_hub_model(tenant, name) if is_of_hub else resolve_model(tenant, name)[0]
    base = base_of(model, bases)
    if not model.versions:
        if base is None:  # withdrawn a moment ago
            raise ModelNotFoundError(name, [])
        return _model_json(name, base.decided_at, "", base)
    created_at = max(version.adapter.created_at for version in model.versions)
    root = model.recorded_name if model.parts else label_of(model.versions[0])
    return _model_json(name, created_at, root, base)


def _model_json(name: str, created_at: datetime, root: str, base: ServedBase | None) -> dict[str, Any]:
    """Return OpenAI's model object. root: the versions that answer; "" for a base model."""
    return {
        "id": name,
        "object": "model",
        "created": int(created_at.timestamp()),
        "owned_by": "tenant" if root else "lorikeet",
        "root": root or name,
        "parent": base.name if root and base else None,
        "max_model_len": base.max_context if base else None,
    }


async def _response(generation: Generation, params: ChatCompletionRequest | CompletionRequest) -> HttpResponseBase:
    """Return the stream, or the whole answer at its end. Raises the ``HostError`` that ended the generation."""
    prompts = params.prompt_parts()
    shape = shape_of(params, prompts)
    if params.stream:
        return await stream(generation, ChunkWriter(generation, shape, params, prompts))
    async with generation:
        body = await whole(generation, shape, params, prompts)
        if params.scored is not None:
            content = await asyncio.to_thread(encode_large, body)
            return HttpResponse(content, content_type="application/json", headers=generation.headers)
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
