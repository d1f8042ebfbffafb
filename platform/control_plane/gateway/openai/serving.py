"""Code that every endpoint of the gateway shares: methods and errors, idempotency, streaming."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.http.access import Access, access
from control_plane.core.http.known_names import require_known
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.idempotency import Claim
from control_plane.gateway.dispatch.idempotency_store import StoredAnswer
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.prompt_parts import PromptParts
from control_plane.gateway.openai.response_writers import ChatShape, CompletionShape, Shape
from control_plane.gateway.openai.sse import EventStreamResponse, EventWriter
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.identity.tenants.roles import Capability

View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
ErrorBody = Callable[[ApiError], dict[str, Any]]


# Query parameters that every path of /v1 ignores: OpenAI's Azure client always sends this one.
ANYWHERE = frozenset({"api-version"})


def endpoint(
    *methods: str,
    body: ErrorBody = ApiError.openai_body,
    query: Collection[str] = (),
    ignored_query: Collection[str] = (),
) -> Callable[[View], View]:
    """Decorate a view so that errors of every kind have OpenAI's shape, or the one that `body` writes.

    query: the parameters that a GET accepts. ignored_query: those that every method accepts, without effect. Others are
    refused by name.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    raise _wrong_method(request, methods)
                if request.GET:
                    caller_of(request)  # raises: a missing key is reported before unknown parameters
                    known = {*(query if request.method == "GET" else ()), *ignored_query, *ANYWHERE}
                    require_known(request.GET, known, "query parameter")
                return await view(request, *args, **kwargs)
            except Exception as error:
                return errors.of(error).response(body)

        guarded.csrf_exempt = True  # type: ignore[attr-defined]  # authenticated by key, never by cookie
        guarded.query = frozenset(query)  # type: ignore[attr-defined]
        return access(Access.KEY, Capability.INFER)(guarded)

    return decorate


GenerationBody = ChatCompletionRequest | CompletionRequest


def shape_of(params: GenerationBody, prompts: PromptParts) -> Shape:
    """Return the format of the answer to a request."""
    if isinstance(params, ChatCompletionRequest):
        return ChatShape(logprobs=params.wants_logprobs, as_ids=bool(params.return_tokens_as_token_ids))
    return CompletionShape(params, prompts)


def _wrong_method(request: HttpRequest, methods: tuple[str, ...]) -> ApiError:
    allowed = " or ".join(methods)
    return ApiError(
        405,
        "method_not_allowed",
        f"{request.method} is not allowed here.",
        f"Send {allowed}.",
        headers={"Allow": ", ".join(methods)},
    )


def undispatched(request: HttpRequest, endpoint: ApiEndpoint) -> Undispatched:
    """Return a context that counts a refusal of the request for the caller's tenant."""
    return runtime().refusals.until_dispatched(caller_of(request), endpoint)


async def refuses_unknown(request: HttpRequest) -> bool:
    """Return whether the caller's tenant refuses requests with unknown fields. Raises as ``caller_of`` does."""
    return (await runtime().admission_cache.api_settings(caller_of(request).tenant)).refuse_unknown_fields


class IdempotentAnswer:
    """The answer to a request with an ``Idempotency-Key``, or without one: ``stored`` if it was kept before."""

    def __init__(self, claim: Claim | None = None, stored: HttpResponse | None = None) -> None:
        self._claim, self.stored = claim, stored

    def keep(self, response: HttpResponseBase) -> HttpResponseBase:
        """Keep the response under the key, and return it."""
        if self._claim is not None and isinstance(response, EventStreamResponse):
            response.keep_under(self._claim)
        elif self._claim is not None and isinstance(response, HttpResponse):
            self._claim.keep(response["Content-Type"], response.content)
        return response


@asynccontextmanager
async def idempotent(request: HttpRequest, admission: Admission) -> AsyncIterator[IdempotentAnswer]:
    """Claim the request's ``Idempotency-Key``, if it has one; an error in the block frees it."""
    idempotency_key = request.headers.get("Idempotency-Key")
    if idempotency_key is None:
        yield IdempotentAnswer()
        return
    claim = await runtime().idempotency.claim(admission.principal, idempotency_key, request.path, request.body)
    if isinstance(claim, StoredAnswer):
        headers = {"Idempotent-Replayed": "true"}
        yield IdempotentAnswer(stored=HttpResponse(claim.body, content_type=claim.content_type, headers=headers))
        return
    try:
        yield IdempotentAnswer(claim)
    except BaseException:
        claim.release()
        raise


async def stream(generation: Generation, writer: EventWriter) -> HttpResponseBase:
    """Return the stream once output has arrived, so that a request that the engine refuses gets its error's status."""
    batches = aiter(generation)
    try:
        first: list[Chunk] = await anext(batches, [])
    except BaseException:
        generation.close()
        raise
    return EventStreamResponse(generation, batches, writer, first)
