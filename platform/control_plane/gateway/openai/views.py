"""``/v1``: what OpenAI's clients call. Plain asynchronous views; a client that goes away cancels them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.access.principal import Principal
from control_plane.adapters.resolve import ListedModel, ModelNotFoundError, list_models
from control_plane.db import run_db
from control_plane.fleet.coalescing import Chunk
from control_plane.gateway import errors
from control_plane.gateway.admission import Admission
from control_plane.gateway.errors import ApiError
from control_plane.gateway.generation import Generation, begin
from control_plane.gateway.idempotency_store import StoredAnswer
from control_plane.gateway.openai.callers import caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_json, read_parameters
from control_plane.gateway.openai.response_writers import ChatShape, ChunkWriter, CompletionShape, Shape, whole
from control_plane.gateway.openai.sse import EventStream, EventStreamResponse
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.runtime import runtime
from control_plane.http.access import Access, access, public
from control_plane.http.request_id import set_request_id
from control_plane.tenants.roles import Capability
from control_plane.usage import request_ids

View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
R = TypeVar("R", ChatCompletionRequest, CompletionRequest)


def endpoint(*methods: str) -> Callable[[View], View]:
    """Errors of every kind in OpenAI's shape."""

    def decorate(view: View) -> View:
        @wraps(view)
        async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    raise _wrong_method(request, methods)
                return await view(request, *args, **kwargs)
            except Exception as error:
                return errors.of(error).response()

        guarded.csrf_exempt = True  # type: ignore[attr-defined]  # authenticated by key, never by cookie
        return access(Access.KEY, Capability.INFER)(guarded)

    return decorate


def _wrong_method(request: HttpRequest, methods: tuple[str, ...]) -> ApiError:
    allowed = " or ".join(methods)
    return ApiError(
        405,
        "method_not_allowed",
        f"{request.method} is not allowed here.",
        f"Send {allowed}.",
        headers={"Allow": ", ".join(methods)},
    )


@endpoint("POST")
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    with _undispatched(request, ChatCompletionRequest) as pending:
        asked, admission = await _admit(request, ChatCompletionRequest, pending)
        shape = ChatShape(logprobs=asked.wants_logprobs)
        answer = partial(_answer, request, admission, asked, shape, asked.choices, pending)
        return await _idempotent(request, admission, answer)


@endpoint("POST")
async def completions(request: HttpRequest) -> HttpResponseBase:
    with _undispatched(request, CompletionRequest) as pending:
        asked, admission = await _admit(request, CompletionRequest, pending)
        echoes = asked.echoes()
        shape = CompletionShape(logprobs=asked.wants_logprobs, echoes=echoes)
        answer = partial(_answer, request, admission, asked, shape, len(echoes), pending)
        return await _idempotent(request, admission, answer)


@endpoint("GET")
async def models(request: HttpRequest) -> HttpResponseBase:
    listed = await run_db(list_models, caller_of(request).tenant)
    return JsonResponse({"object": "list", "data": [_model_json(model) for model in listed]})


@endpoint("GET")
async def model(request: HttpRequest, name: str) -> HttpResponseBase:
    return JsonResponse(await run_db(_retrieve, caller_of(request), name))


@public
async def not_found(request: HttpRequest) -> HttpResponseBase:
    """Anything else below /v1."""
    fix = "Lorikeet serves /v1/chat/completions, /v1/completions and /v1/models."
    return ApiError(404, "unknown_url", f"Invalid URL ({request.method} {request.path}).", fix).response()


def _retrieve(principal: Principal, name: str) -> dict[str, Any]:
    """By any name that a request may use."""
    for listed in list_models(principal.tenant):
        if name == listed.id or name in listed.aliases:
            return {**_model_json(listed), "id": name}
    raise ModelNotFoundError(name, [])


def _model_json(listed: ListedModel) -> dict[str, Any]:
    owner = "lorikeet" if listed.adapter is None else "tenant"
    return {"id": listed.id, "object": "model", "created": int(listed.created_at.timestamp()), "owned_by": owner}


def _undispatched(request: HttpRequest, kind: type[R]) -> Undispatched:
    return runtime().refusals.until_dispatched(caller_of(request), kind.endpoint)


async def _admit(request: HttpRequest, kind: type[R], pending: Undispatched) -> tuple[R, Admission]:
    """The checked body and who sent it. What is not understood is a refusal too, without a model."""
    with pending.reading():
        asked = read_parameters(kind, read_json(request.body))
    pending.model = asked.model
    return asked, await runtime().admission_cache.admission(caller_of(request), asked.model)


async def _idempotent(
    request: HttpRequest, admission: Admission, answer: Callable[[], Coroutine[Any, Any, HttpResponseBase]]
) -> HttpResponseBase:
    """The answer; with an ``Idempotency-Key`` that was used before, the one that was given then."""
    offered = request.headers.get("Idempotency-Key")
    if offered is None:
        return await answer()
    claim = await runtime().idempotency.claim(admission.principal, offered, request.path, request.body)
    if isinstance(claim, StoredAnswer):
        return HttpResponse(claim.body, content_type=claim.content_type, headers={"Idempotent-Replayed": "true"})
    try:
        response = await answer()
    except BaseException:
        claim.release()
        raise
    if isinstance(response, EventStreamResponse):
        response.events.keep_under(claim)
    elif isinstance(response, HttpResponse):
        claim.keep(response["Content-Type"], response.content)
    return response


async def _answer(
    request: HttpRequest,
    admission: Admission,
    asked: ChatCompletionRequest | CompletionRequest,
    shape: Shape,
    choices: int,
    pending: Undispatched,
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, asked.endpoint, streamed=asked.stream)
    set_request_id(request_id)
    generation = await begin(runtime(), admission, asked, streamed=asked.stream, request_id=request_id)
    pending.dispatched()
    if asked.stream:
        return await _stream(generation, ChunkWriter(generation, shape, include_usage=asked.include_usage))
    async with generation:
        body = await whole(generation, shape, choices)
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)


async def _stream(generation: Generation, writer: ChunkWriter) -> HttpResponseBase:
    """Waits for the first output, so that a request which the engine refuses gets the status of its error."""
    batches = aiter(generation)
    try:
        first: list[Chunk] = await anext(batches, [])
    except BaseException:
        generation.close()
        raise
    return EventStreamResponse(EventStream(generation, batches, writer, first))
