"""The request body of ``/v1/responses``, and its conversion to a chat request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_plane.core.chats import MAX_TOOLS, ReasoningEffort
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai import unknown_fields
from control_plane.gateway.openai.chat_request import MAX_MESSAGES, MAX_PARTS, ChatCompletionRequest
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.parameters import MAX_LOGPROBS, CacheSalt, checked, read_parameters
from control_plane.gateway.openai.tools import (
    MAX_CALLS,
    CallArguments,
    CalledName,
    CallId,
    functions_only,
)
from control_plane.gateway.openai.unions import WORD_OR_OBJECT, by_type, known_types, tag
from control_plane.gateway.openai.unknown_fields import RequestBody
from control_plane.gateway.responses.tools import AnyTool, custom_arguments, function_name, hosted, offered

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


class TextPart(BaseModel):
    """A part with text; a part of an earlier answer also has annotations and log-probabilities, which are ignored."""

    model_config = ConfigDict(strict=True)

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


_TEXTS = ("input_text", "output_text", "text")
Parts = Annotated[
    list[Annotated[TextPart, known_types("parts", *_TEXTS)]],
    Field(min_length=1, max_length=MAX_PARTS, fail_fast=True),
]
MessagePart = Annotated[
    Annotated[TextPart, tag("text")] | Annotated[RefusalPart, tag("refusal")],
    by_type("refusal", default="text"),
    known_types("parts", *_TEXTS, "refusal"),
]
MessageParts = Annotated[list[MessagePart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)]


class MessageItem(BaseModel):
    model_config = ConfigDict(strict=True)  # items of an answer that are sent back also have an id and a status

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | MessageParts

    @model_validator(mode="after")
    def _only_the_assistant_refuses(self) -> Self:
        if self.role != "assistant" and any(isinstance(part, RefusalPart) for part in self.content):
            raise ValueError(f"refusal parts belong to role assistant, not to role {self.role}; send text parts")
        return self


class FunctionCallItem(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["function_call"]
    call_id: CallId
    name: CalledName
    namespace: str | None = None
    arguments: CallArguments


class CustomToolCallItem(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["custom_tool_call"]
    call_id: CallId
    name: CalledName
    namespace: str | None = None
    input: str

    @property
    def arguments(self) -> str:
        return custom_arguments(self.input)


class FunctionCallOutputItem(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: str | Parts


class ReasoningText(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(BaseModel):
    """Reasoning of an earlier answer that is sent back: it precedes the message or call that follows it."""

    model_config = ConfigDict(strict=True)

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None


_ITEMS = (
    "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"
)  # fmt: skip
InputItem = Annotated[
    Annotated[MessageItem, tag("message")]
    | Annotated[FunctionCallItem, tag("function_call")]
    | Annotated[FunctionCallOutputItem, tag("function_call_output")]
    | Annotated[CustomToolCallItem, tag("custom_tool_call")]
    | Annotated[FunctionCallOutputItem, tag("custom_tool_call_output")]
    | Annotated[ReasoningItem, tag("reasoning")],
    by_type(*_ITEMS, default="message"),
    known_types("items", *_ITEMS),
]


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


class ResponsesRequest(RequestBody):
    model: ModelName = Field(min_length=1, max_length=LONGEST)
    input: str | Annotated[list[InputItem], Field(max_length=MAX_MESSAGES, fail_fast=True)]
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, min_length=1, max_length=64)
    store: bool | None = Field(default=None, description="True by default, unless the tenant stores none.")
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    background: Literal[False] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    tools: Annotated[list[AnyTool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = Field(
        default=None, max_length=32, description="Only `message.output_text.logprobs` has an effect."
    )
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    cache_salt: CacheSalt | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _input_is_not_empty(self) -> Self:
        if not self.input:
            raise ValueError("input is empty; send a text, or at least one item")
        return self

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def messages(self) -> list[Json]:
        """Return the input as chat messages."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return _messages(self.input)

    def chat(self, before: Sequence[Json]) -> ChatCompletionRequest:
        """Return the equivalent chat request, after the stored messages. Raises ``ApiError``."""
        instructions = [{"role": "developer", "content": self.instructions}] if self.instructions else []
        body: Json = {
            "model": self.model,
            "messages": [*instructions, *before, *self.messages()],
            "stream": self.stream,
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": self._response_format(),
            "logprobs": True if self.wants_logprobs else None,
            "top_logprobs": self.top_logprobs if self.wants_logprobs else None,
            "cache_salt": self.cache_salt,
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
        try:
            chat = read_parameters(ChatCompletionRequest, body)
        except ApiError as error:
            raise in_responses_terms(error) from None
        chat.note_ignored(self.ignored, refuses_unknown=self.refuses_unknown)
        chat.name_fields(_NAMES)
        return chat

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


def read_request(body: Json, *, refuse_unknown: bool = False) -> ResponsesRequest:
    """Check ``body``. Raises ``ApiError`` that names every parameter at fault."""
    return checked(ResponsesRequest, body, HARMLESS, refuse_unknown=refuse_unknown)


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


def _text(content: str | Sequence[TextPart | RefusalPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _messages(items: Sequence[InputItem]) -> list[Json]:
    """Return items as chat messages. Consecutive calls, and calls after an assistant's text, are merged into one
    message, as chat templates expect.
    """
    messages: list[Json] = []
    reasoning = ""
    for item in items:
        if isinstance(item, ReasoningItem):
            reasoning = "\n".join(part.text for part in item.content or ())
            continue
        if isinstance(item, MessageItem):
            message: Json = {"role": item.role, "content": _text(item.content)}
        elif isinstance(item, FunctionCallOutputItem):
            message = {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
        else:
            function = {"name": function_name(item.namespace, item.name), "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            last = messages[-1] if messages and messages[-1]["role"] == "assistant" and not reasoning else None
            if last is not None and len(calls := last.setdefault("tool_calls", [])) < MAX_CALLS:
                calls.append(call)
                continue
            message = {"role": "assistant", "tool_calls": [call]}
        if reasoning and message["role"] == "assistant":
            message["reasoning_content"] = reasoning
        reasoning = ""
        messages.append(message)
    return messages
