"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from control_plane.core.http.json_body import read_object
from control_plane.gateway.anthropic.request import CountTokensRequest, MessagesRequest, read_request
from control_plane.gateway.anthropic.response_writers import MessageEvents, MessageWriter, error_body
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.generation import begin, ignored_header
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import admission_of
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.response_writers import gathered
from control_plane.gateway.openai.serving import endpoint, idempotent, refuses_unknown, stream, undispatched
from control_plane.gateway.openai.tokenizing import count_tokens, counted
from control_plane.gateway.recording.refusals import Undispatched

# Query parameters that Anthropic's clients add to their requests.
QUERY = frozenset({"beta"})


@endpoint("POST", body=error_body, ignored_query=QUERY)
async def messages(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        refuse_unknown = await refuses_unknown(request)
        with pending.reading():
            body = read_object(request.body, nul=True)
            params = read_request(MessagesRequest, body, refuse_unknown=refuse_unknown)
            chat = params.chat()
        pending.model = params.model
        admission = await admission_of(request, params.model)
        async with idempotent(request, admission) as answer:
            return answer.stored or answer.keep(await _answer(admission, params, chat, pending))


@endpoint("POST", body=error_body, ignored_query=QUERY)
async def message_tokens(request: HttpRequest) -> HttpResponseBase:
    """Count the tokens of a prompt. It counts as a request, and is not in the ledger."""
    with undispatched(request, ChatCompletionRequest.endpoint) as pending:
        refuse_unknown = await refuses_unknown(request)
        with pending.reading():
            body = read_object(request.body, nul=True)
            # Clients count by the body of the request that they are about to send.
            answer_only = set(MessagesRequest.model_fields) - set(CountTokensRequest.model_fields)
            conversation = {name: value for name, value in body.items() if name not in answer_only}
            params = read_request(CountTokensRequest, conversation, refuse_unknown=refuse_unknown)
            [submit] = params.chat().submits()
        pending.model = params.model
        admission = await counted(request, params.model)
        submit.chat.reasoning_effort = "" if submit.chat.reasoning_effort != "none" else "none"
        tokens, _ = await count_tokens(admission, submit)
    return JsonResponse({"input_tokens": tokens}, headers=ignored_header(params.ignored))


async def _answer(
    admission: Admission, params: MessagesRequest, chat: ChatCompletionRequest, pending: Undispatched
) -> HttpResponseBase:
    generation = await begin(runtime(), admission, chat, streamed=params.stream, pending=pending)
    writer = MessageWriter(generation, params.stop_sequences or ())
    if params.stream:
        return await stream(generation, MessageEvents(writer))
    async with generation:
        [choice] = await gathered(generation, 1)
        body = writer.whole(choice)
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False}, headers=generation.headers)
