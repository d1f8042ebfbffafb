"""``/v1/responses``: create, read and delete."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.billing.usage import request_ids
from control_plane.core.db import run_db
from control_plane.core.http.json_body import read_object
from control_plane.core.http.request_id import set_request_id
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.conversations import actions as conversations
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import begin
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import admission_of, caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.response_writers import Choice, gathered
from control_plane.gateway.openai.serving import endpoint, idempotent, stream, undispatched
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.responses.request import ResponsesRequest, in_responses_terms, read_request
from control_plane.gateway.responses.response_writers import ResponseEvents, ResponseWriter
from control_plane.gateway.responses.truncation import fitting
from control_plane.identity.tenants.models import Tenant

Json = dict[str, Any]


@endpoint("POST")
async def responses(request: HttpRequest) -> HttpResponseBase:
    principal = caller_of(request)
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        settings = await runtime().admission_cache.api_settings(principal.tenant)
        with pending.reading():
            body = read_object(request.body, nul=True)
            params = read_request(body, refuse_unknown=settings.refuse_unknown_fields)
        if params.store and settings.never_store_responses:
            params.note_ignored(["store"])
        params.store = params.store is not False and not settings.never_store_responses
        before = await _previous_messages(principal.tenant, params)
        with pending.reading():
            chat = params.chat(before)
        pending.model = params.model
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as answer:
            return answer.stored or answer.keep(await _answer(admission, params, chat, before, pending))


# A stored response is always returned whole, so there is nothing to include.
@endpoint("GET", "DELETE", query=("include", "include[]"))
async def response(request: HttpRequest, name: str) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "DELETE":
        await run_db(conversations.delete_response, acting=principal, name=name)
        return JsonResponse({"id": name, "object": "response", "deleted": True})
    stored = await run_db(conversations.get_response, principal.tenant, name)
    return HttpResponse(stored.body, content_type="application/json")


async def _previous_messages(tenant: Tenant, params: ResponsesRequest) -> list[Json]:
    """Return the conversation that the request continues. Raises NoSuchResponseError (404)."""
    if params.previous_response_id is None:
        return []
    name = params.previous_response_id
    stored = await run_db(conversations.get_response, tenant, name, "previous_response_id")
    messages: list[Json] = json.loads(stored.messages)
    return messages


async def _answer(
    admission: Admission,
    params: ResponsesRequest,
    chat: ChatCompletionRequest,
    before: list[Json],
    pending: Undispatched,
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, chat.endpoint, streamed=params.stream)
    set_request_id(request_id)
    try:
        if params.truncation == "auto":
            chat.messages = await fitting(admission, chat)
        generation = await begin(runtime(), admission, chat, streamed=params.stream, request_id=request_id)
        pending.dispatched()
        writer = ResponseWriter(params, generation)
        keep = partial(_keep, admission.principal.tenant, params, before)
        if params.stream:
            return await stream(generation, ResponseEvents(writer, keep))
        async with generation:
            [choice] = await gathered(generation, 1)
            body = writer.whole(choice)
            await keep(body, choice)
            return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
    except (ApiError, HostError) as error:
        raise in_responses_terms(errors.of(error)) from error


async def _keep(tenant: Tenant, params: ResponsesRequest, before: list[Json], body: Json, choice: Choice) -> None:
    """Store the response, unless its request or its tenant excludes that."""
    if not params.store:
        return
    answer: Json = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        answer["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        answer["tool_calls"] = choice.tool_calls
    messages = [*before, *params.messages(), answer]
    texts = {"messages": json.dumps(messages), "body": json.dumps(body)}
    await run_db(conversations.store, tenant, body["id"], **texts)
