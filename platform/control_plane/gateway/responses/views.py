"""``/v1/responses``: create, read and delete; its input items, a count of tokens, and compaction."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.billing.usage import request_ids
from control_plane.core.db import run_db
from control_plane.core.http.json_body import read_object
from control_plane.core.http.request_id import set_request_id
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.api_settings.models import ApiSettings
from control_plane.gateway.conversations import actions as conversations
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import begin, ignored_header
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import admission_of, caller_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.paging import PAGE, list_json, read_page
from control_plane.gateway.openai.response_writers import Choice, gathered
from control_plane.gateway.openai.serving import endpoint, idempotent, stream, undispatched
from control_plane.gateway.openai.tokenizing import count_tokens, counted
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.gateway.responses.compaction import SUMMARY_TOKENS, compacted, summary_request
from control_plane.gateway.responses.conversation import Conversation, page_of, read_conversation
from control_plane.gateway.responses.request import (
    CompactRequest,
    ConversationRequest,
    InputTokensRequest,
    ResponsesRequest,
    in_responses_terms,
    read_request,
)
from control_plane.gateway.responses.response_writers import ResponseEvents, ResponseWriter
from control_plane.gateway.responses.truncation import count_chat, fitting
from control_plane.identity.tenants.models import Tenant

Json = dict[str, Any]


# A stored response is always returned whole, so there is nothing to include.
INCLUDE = ("include", "include[]")
R = TypeVar("R", bound=ConversationRequest)


@endpoint("POST")
async def responses(request: HttpRequest) -> HttpResponseBase:
    principal = caller_of(request)
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        settings = await runtime().admission_cache.api_settings(principal.tenant)
        params = _read(ResponsesRequest, request, settings, pending)
        if params.store and settings.never_store_responses:
            params.note_ignored(["store"])
        params.store = params.store is not False and not settings.never_store_responses
        conversation = await read_conversation(principal.tenant, params)
        with pending.reading():
            chat = params.chat(conversation.items)
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as answer:
            return answer.stored or answer.keep(await _answer(admission, params, chat, conversation, pending))


@endpoint("GET", "DELETE", query=INCLUDE)
async def response(request: HttpRequest, name: str) -> HttpResponseBase:
    principal = caller_of(request)
    if request.method == "DELETE":
        await run_db(conversations.delete_response, acting=principal, name=name)
        return JsonResponse({"id": name, "object": "response", "deleted": True})
    stored = await run_db(conversations.get_response, principal.tenant, name)
    return HttpResponse(stored.body, content_type="application/json")


@endpoint("GET", query=(*PAGE, *INCLUDE))
async def input_items(request: HttpRequest, name: str) -> HttpResponseBase:
    page = read_page(request)
    data, more = await run_db(page_of, caller_of(request).tenant, name, page)
    return JsonResponse(list_json(data, more=more), json_dumps_params={"ensure_ascii": False})


@endpoint("POST")
async def input_tokens(request: HttpRequest) -> HttpResponseBase:
    """Count the tokens of a prompt. It counts as a request, and is not in the ledger."""
    principal = caller_of(request)
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        params = _read(
            InputTokensRequest, request, await runtime().admission_cache.api_settings(principal.tenant), pending
        )
        conversation = await read_conversation(principal.tenant, params)
        with pending.reading():
            chat = params.chat(conversation.items)
        admission = await counted(request, params.model)
        try:
            if params.truncation == "auto":
                chat.messages = await fitting(admission, chat)
            [submit] = chat.submits()
            submit.chat.reasoning_effort = "" if submit.chat.reasoning_effort != "none" else "none"
            tokens, _ = await count_tokens(admission, submit)
        except (ApiError, HostError) as error:
            raise in_responses_terms(errors.of(error)) from error
    body = {"object": "response.input_tokens", "input_tokens": tokens}
    return JsonResponse(body, headers=ignored_header(params.ignored))


@endpoint("POST")
async def compact(request: HttpRequest) -> HttpResponseBase:
    """Replace a conversation by its instructions, the user's messages, and a summary that the model writes."""
    principal = caller_of(request)
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        params = _read(CompactRequest, request, await runtime().admission_cache.api_settings(principal.tenant), pending)
        conversation = await read_conversation(principal.tenant, params)
        with pending.reading():
            chat = summary_request(params.chat(conversation.items))
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as answer:
            return answer.stored or answer.keep(await _compact(admission, chat, conversation, pending))


def _read(kind: type[R], request: HttpRequest, settings: ApiSettings, pending: Undispatched) -> R:
    with pending.reading():
        body = read_object(request.body, nul=True)
        params = read_request(kind, body, refuse_unknown=settings.refuse_unknown_fields)
    pending.model = params.model
    return params


async def _answer(
    admission: Admission,
    params: ResponsesRequest,
    chat: ChatCompletionRequest,
    conversation: Conversation,
    pending: Undispatched,
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, chat.endpoint, streamed=params.stream)
    set_request_id(request_id)
    try:
        if params.truncation == "auto":
            chat.messages = await fitting(admission, chat)
        generation = await begin(
            runtime(), admission, chat, streamed=params.stream, request_id=request_id, pending=pending
        )
        writer = ResponseWriter(params, generation)
        keep = partial(_keep, admission.principal.tenant, params, conversation, request_ids.public_part(request_id))
        if params.stream:
            return await stream(generation, ResponseEvents(writer, keep))
        async with generation:
            [choice] = await gathered(generation, 1)
            body = writer.whole(choice)
            await keep(body, choice)
            return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
    except (ApiError, HostError) as error:
        raise in_responses_terms(errors.of(error)) from error


async def _keep(
    tenant: Tenant, params: ResponsesRequest, conversation: Conversation, response_id: str, body: Json, _: Choice
) -> None:
    """Store the response, unless its request or its tenant excludes that."""
    if not params.store:
        return
    texts = {"input_items": json.dumps(conversation.listed(response_id)), "body": json.dumps(body)}
    await run_db(conversations.store, tenant, body["id"], **texts)


async def _compact(
    admission: Admission, chat: ChatCompletionRequest, conversation: Conversation, pending: Undispatched
) -> HttpResponseBase:
    request_id = request_ids.make(admission.principal, chat.endpoint, streamed=False)
    set_request_id(request_id)
    try:
        chat.messages = await fitting(admission, chat)
        tokens, context = await count_chat(admission, chat)
        most = min(SUMMARY_TOKENS, admission.limits.max_output_tokens or SUMMARY_TOKENS, context - tokens)
        chat.max_completion_tokens = max(1, most)
        generation = await begin(runtime(), admission, chat, streamed=False, request_id=request_id, pending=pending)
        async with generation:
            [choice] = await gathered(generation, 1)
            body = compacted(generation, conversation, choice)
            return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
    except (ApiError, HostError) as error:
        raise in_responses_terms(errors.of(error)) from error
