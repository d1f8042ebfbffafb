"""``/v1/responses``: create, read and delete."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.billing.usage import request_ids
from control_plane.core.db import run_db
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
from control_plane.gateway.openai.parameters import read_json
from control_plane.gateway.openai.response_writers import Choice, gathered
from control_plane.gateway.openai.serving import endpoint, idempotent, stream, undispatched
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.responses.request import ResponsesRequest, in_our_words, read_request
from control_plane.gateway.responses.response_writers import ResponseEvents, ResponseWriter
from control_plane.identity.tenants.models import Tenant

Json = dict[str, Any]


@endpoint("POST")
async def responses(request: HttpRequest) -> HttpResponseBase:
    principal = caller_of(request)
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        with pending.reading():
            asked = read_request(read_json(request.body))
        before = await _before(principal.tenant, asked)
        with pending.reading():
            chat = asked.chat(before)
        pending.model = asked.model
        admission = await admission_of(request, asked.model)
        return await idempotent(request, admission, partial(_answer, admission, asked, chat, before, pending))


# A stored response has all that it ever had, so nothing is left to include.
@endpoint("GET", "DELETE", query=("include", "include[]"))
async def response(request: HttpRequest, name: str) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "DELETE":
        await run_db(conversations.delete_response, acting=principal, name=name)
        return JsonResponse({"id": name, "object": "response", "deleted": True})
    found = await run_db(conversations.get_response, principal.tenant, name)
    return HttpResponse(found.body, content_type="application/json")


async def _before(tenant: Tenant, asked: ResponsesRequest) -> list[Json]:
    """The conversation that the request goes on with. Raises ResponseNotFoundError (404)."""
    if asked.previous_response_id is None:
        return []
    name = asked.previous_response_id
    found = await run_db(conversations.get_response, tenant, name, "previous_response_id")
    messages: list[Json] = json.loads(found.messages)
    return messages


async def _answer(
    admission: Admission,
    asked: ResponsesRequest,
    chat: ChatCompletionRequest,
    before: list[Json],
    pending: Undispatched,
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, chat.endpoint, streamed=asked.stream)
    set_request_id(request_id)
    try:
        generation = await begin(runtime(), admission, chat, streamed=asked.stream, request_id=request_id)
        pending.dispatched()
        writer = ResponseWriter(asked, generation)
        keep = partial(_keep, admission.principal.tenant, asked, before)
        if asked.stream:
            return await stream(generation, ResponseEvents(writer, keep))
        async with generation:
            [choice] = await gathered(generation, 1)
            body = writer.whole(choice)
            await keep(body, choice)
            return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
    except (ApiError, HostError) as error:
        raise in_our_words(errors.of(error)) from error


async def _keep(tenant: Tenant, asked: ResponsesRequest, before: list[Json], body: Json, choice: Choice) -> None:
    """Only what the request itself asked to have stored."""
    if not asked.store:
        return
    said: Json = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        said["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        said["tool_calls"] = choice.tool_calls
    messages = [*before, *asked.messages(), said]
    texts = {"messages": json.dumps(messages), "body": json.dumps(body)}
    await run_db(conversations.store, tenant, body["id"], **texts)
