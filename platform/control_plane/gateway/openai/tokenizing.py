"""``/tokenize`` and ``/detokenize``, in vLLM's shapes: the tokens of a prompt, and the text of tokens.

Each counts as a request against its caller's limits, and as no tokens; neither is recorded in the ledger.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self, TypeVar

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_plane.billing.usage import request_ids
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.http.json_body import read_object
from control_plane.core.http.request_id import set_request_id
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.generation import apply_adapter_template, ignored_header, reserve
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.callers import caller_of
from control_plane.gateway.openai.chat_request import MAX_MESSAGES, ChatMessage
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.openai.prompt_parts import text_of
from control_plane.gateway.openai.serving import endpoint, refuses_unknown, undispatched
from control_plane.gateway.openai.unknown_fields import RequestBody
from control_plane.gateway.recording.refusals import Undispatched
from lora_engine.wire import engine_pb2 as pb

# Maximum number of token ids of one request to /detokenize.
MAX_TOKENS = 1_000_000

R = TypeVar("R", bound="_OfModel")


class _OfModel(RequestBody):
    """A body with an optional ``model``, as in vLLM: without it, the base model."""

    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.COMPLETIONS  # refusals are counted under this endpoint

    model: ModelName = Field(default="", max_length=LONGEST)


class TokenizeRequest(_OfModel):
    """The body of /tokenize: either a ``prompt`` or ``messages``."""

    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] | None = Field(
        default=None, min_length=1, max_length=MAX_MESSAGES
    )
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either prompt or messages is needed, not both; send one of them")
        if self.continue_final_message and self.add_generation_prompt is not False:
            raise ValueError("continue_final_message excludes a generation prompt; set add_generation_prompt to false")
        return self

    def submit(self) -> pb.Submit:
        submit = pb.Submit()
        if self.prompt is not None:
            submit.text = self.prompt
        else:
            submit.chat.no_generation_prompt = self.add_generation_prompt is False
            submit.chat.continue_final_message = bool(self.continue_final_message)
            submit.chat.messages.extend(message.wire() for message in self.messages or ())
        if self.add_special_tokens is not None:
            submit.add_special_tokens = self.add_special_tokens
        return submit


class DetokenizeRequest(_OfModel):
    tokens: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 32)]], Field(fail_fast=True, max_length=MAX_TOKENS)]


class TokenizeResponse(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    count: int
    max_model_len: int = Field(description="Maximum number of tokens of prompt and output together.")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="Text of each token; null without `return_token_strs`.")


class DetokenizeResponse(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    prompt: str = Field(description="Text of the tokens, special tokens included.")


@endpoint("POST")
async def tokenize(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, TokenizeRequest.endpoint) as pending:
        params = await _read(TokenizeRequest, request, pending)
        admission = await counted(request, params.model)
        submit = params.submit()
        apply_adapter_template(submit, admission.model)
        reply = await _query(admission, lambda client: client.tokenize(submit))
    _raise_for(reply)
    texts = [text_of(reply.token_bytes[token]) for token in reply.token_ids] if params.return_token_strs else None
    return JsonResponse(
        {
            "count": len(reply.token_ids),
            "max_model_len": reply.max_context,
            "tokens": list(reply.token_ids),
            "token_strs": texts,
        },
        json_dumps_params={"ensure_ascii": False},
        headers=ignored_header(params.ignored),
    )


@endpoint("POST")
async def detokenize(request: HttpRequest) -> HttpResponseBase:
    with undispatched(request, DetokenizeRequest.endpoint) as pending:
        params = await _read(DetokenizeRequest, request, pending)
        admission = await counted(request, params.model)
        reply = await _query(admission, lambda client: client.detokenize(pb.TokenIds(ids=params.tokens)))
    _raise_for(reply)
    return JsonResponse(
        {"prompt": reply.text}, json_dumps_params={"ensure_ascii": False}, headers=ignored_header(params.ignored)
    )


async def _read(kind: type[R], request: HttpRequest, pending: Undispatched) -> R:
    refuse_unknown = await refuses_unknown(request)
    with pending.reading():
        params = read_parameters(kind, read_object(request.body, nul=True), refuse_unknown=refuse_unknown)
    pending.model = params.model
    return params


async def count_tokens(admission: Admission, submit: pb.Submit) -> tuple[int, int]:
    """Return the tokens of a prompt, and the most that prompt and output may have together. Raises ``HostError``."""
    apply_adapter_template(submit, admission.model)
    reply = await _query(admission, lambda client: client.tokenize(submit))
    _raise_for(reply)
    return len(reply.token_ids), reply.max_context


async def counted(request: HttpRequest, model: str) -> Admission:
    """Admit a request and count it. Raises ``ApiError`` (429) if the caller's request limit is reached."""
    admission = await runtime().admission_cache.admission(caller_of(request), model)
    request_id = request_ids.make(admission.principal, ApiEndpoint.COMPLETIONS, streamed=False)
    set_request_id(request_id)
    runtime().sent(await reserve(runtime(), admission, request_id, []))  # no engine request follows: settle at once
    return admission


async def _query(admission: Admission, query: Any) -> Any:
    return await runtime().fleet.first_reply(
        admission.hosts, admission.base_digest, admission.model.display_name, query
    )


def _raise_for(reply: pb.TokenizeReply | pb.DetokenizeReply) -> None:
    if reply.HasField("error"):
        raise HostError.from_wire(reply.error)
