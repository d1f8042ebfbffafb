"""The request bodies of ``/v1/responses`` and of the addresses below it, and their conversion to a chat request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_plane.core.chats import MAX_TOOLS, ReasoningEffort
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai import unknown_fields
from control_plane.gateway.openai.chat_request import MAX_MESSAGES, ChatCompletionRequest
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.parameters import MAX_LOGPROBS, CacheSalt, read_parameters
from control_plane.gateway.openai.tools import CalledName, functions_only
from control_plane.gateway.openai.unions import WORD_OR_OBJECT, tag
from control_plane.gateway.openai.unknown_fields import RequestBody
from control_plane.gateway.responses.items import InputItem, Item, MessageItem, messages_of
from control_plane.gateway.responses.tools import AnyTool, function_name, hosted, offered

Json = dict[str, Any]
# Parameters accepted with any value and ignored; `max_tool_calls` limits hosted tools, which are not supported.
HARMLESS = unknown_fields.HARMLESS | {"max_tool_calls"}
LOGPROBS = "message.output_text.logprobs"
# Parameters of a chat request, with their names in this request.
_NAMES = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


# "messages" and "prompt" are also ordinary words: as parameters they are in quotes, or are the whole text.
_CHAT_NAMES = re.compile(
    rf"\b(?P<name>{'|'.join(map(re.escape, _NAMES))})\b"
    r"|(?P<input>(?:^|(?<=['\"]))(?:messages|prompt)(?=$|['\"\[.]))"
    r"|(?P<tool>\btools\[\d+\])\.function\b"
)


class _StrictItem(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class NamedResponseTool(_StrictItem):
    type: Literal["function", "custom"]
    name: CalledName
    namespace: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_types(cls, value: object) -> object:
        is_custom = isinstance(value, dict) and value.get("type") == "custom"
        return value if is_custom else functions_only(value, "choices")


ResponseToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], tag("word")] | Annotated[NamedResponseTool, tag("object")],
    WORD_OR_OBJECT,
]


class TextFormat(_StrictItem):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Json | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(_StrictItem):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(_StrictItem):
    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseStreamOptions(_StrictItem):
    include_obfuscation: bool = False


class ConversationRequest(RequestBody):
    """Fields of every request with a conversation."""

    model: ModelName = Field(min_length=1, max_length=LONGEST)
    input: str | Annotated[list[InputItem], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, min_length=1, max_length=64)
    cache_salt: CacheSalt | None = None

    @model_validator(mode="after")
    def _input_is_not_empty(self) -> Self:
        if not self.input and (self.input is not None or self.previous_response_id is None):
            raise ValueError("input is empty; send a text, or at least one item")
        return self

    def input_items(self) -> list[InputItem]:
        """Return the input as items."""
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return self.input or []

    def chat(self, items: Sequence[Item]) -> ChatCompletionRequest:
        """Return the equivalent chat request about these items, without references. Raises ``ApiError``."""
        try:
            chat = read_parameters(ChatCompletionRequest, self._chat_body(items))
        except ApiError as error:
            raise in_responses_terms(error) from None
        chat.note_ignored(self.ignored, refuses_unknown=self.refuses_unknown)
        chat.name_fields(_NAMES)
        return chat

    def _chat_body(self, items: Sequence[Item]) -> Json:
        instructions = [{"role": "developer", "content": self.instructions}] if self.instructions else []
        messages = [*instructions, *messages_of(items)]
        return {"model": self.model, "messages": messages, "cache_salt": self.cache_salt}


class CompactRequest(ConversationRequest):
    """The body of ``/v1/responses/compact``."""


class InputTokensRequest(ConversationRequest):
    """The body of ``/v1/responses/input_tokens``: the fields of a request that its prompt depends on."""

    truncation: Literal["auto", "disabled"] | None = None
    tools: Annotated[list[AnyTool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None

    def _chat_body(self, items: Sequence[Item]) -> Json:
        body = super()._chat_body(items) | {
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": self._response_format(),
        }
        tools = offered(self.tools)
        self.note_ignored(hosted(self.tools))
        if tools:
            body["tools"] = [{"type": "function", "function": tool.definition()} for tool in tools]
        if isinstance(self.tool_choice, NamedResponseTool):
            name = function_name(self.tool_choice.namespace, self.tool_choice.name)
            body["tool_choice"] = {"type": "function", "function": {"name": name}}
        else:
            body["tool_choice"] = self.tool_choice
        return body

    def _response_format(self) -> Json | None:
        text_format = self.text.format if self.text else None
        if text_format is None or text_format.type == "text":
            return None
        if text_format.type == "json_object":
            return {"type": "json_object"}
        schema: Json = {
            "name": text_format.name or "answer",
            "schema": text_format.schema_,
            "strict": text_format.strict,
        }
        return {"type": "json_schema", "json_schema": {n: value for n, value in schema.items() if value is not None}}


class ResponsesRequest(InputTokensRequest):
    """The body of ``/v1/responses``."""

    input: str | Annotated[list[InputItem], Field(max_length=MAX_MESSAGES, fail_fast=True)]
    store: bool | None = Field(
        default=None, description="Whether the response is stored; left out: it is, unless the tenant stores none."
    )
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    background: Literal[False] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    include: list[str] | None = Field(
        default=None,
        max_length=32,
        description="Names of further output; only `message.output_text.logprobs` has an effect.",
    )
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
        ]
        | None
    ) = None

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def _chat_body(self, items: Sequence[Item]) -> Json:
        return super()._chat_body(items) | {
            "stream": self.stream,
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "logprobs": True if self.wants_logprobs else None,
            "top_logprobs": self.top_logprobs if self.wants_logprobs else None,
        }


R = TypeVar("R", bound=ConversationRequest)


def read_request(kind: type[R], body: Json, *, refuse_unknown: bool = False) -> R:
    """Check ``body``. Raises ``ApiError`` that names every parameter at fault.

    Fields that only ``/v1/responses`` has are left out and named at other addresses, whose clients send the body of
    the request that they are about to send.
    """
    others = set(ResponsesRequest.model_fields) - set(kind.model_fields)
    served = {name: value for name, value in body.items() if name not in others}
    params = read_parameters(kind, served, HARMLESS, refuse_unknown=refuse_unknown)
    params.note_ignored(name for name in body if name in others)
    return params


def in_responses_terms(error: ApiError) -> ApiError:
    """Return an error of the chat request with this request's parameter names."""
    problems = [
        {name: value and _in_responses_terms(value) for name, value in problem.items()}
        for problem in (error.details or {}).get("problems", ())
    ]
    return replace(
        error,
        message=_in_responses_terms(error.message),
        fix=_in_responses_terms(error.fix),
        param=error.param and _in_responses_terms(error.param),
        details={**error.details, "problems": problems} if error.details and problems else error.details,
    )


def _in_responses_terms(text: str) -> str:
    return _CHAT_NAMES.sub(_responses_name, text)


def _responses_name(match: re.Match[str]) -> str:
    if match["input"]:
        return "input"
    return match["tool"] or _NAMES[match["name"]]
