"""The request body of ``/v1/messages``, and its conversion to a chat request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from control_plane.core.chats import MAX_TOOLS, ReasoningEffort
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai import unknown_fields
from control_plane.gateway.openai.chat_request import MAX_MESSAGES, MAX_PARTS, ChatCompletionRequest
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.parameters import MAX_STOPS, CacheSalt, StopString, read_parameters
from control_plane.gateway.openai.tools import CalledName, CallId, FunctionName, ToolParameters
from control_plane.gateway.openai.unions import by_type, known_types, tag
from control_plane.gateway.openai.unknown_fields import RequestBody

Json = dict[str, Any]
# Parameters accepted with any value and ignored. The context is edited by no rule, and no hosted container is used.
HARMLESS = unknown_fields.HARMLESS | {"betas", "container", "context_management", "inference_geo", "mcp_servers"}
# Hosted tools of one request, beside functions: a bound for validation.
MAX_HOSTED = 64
# Beginning of a block with which Claude Code describes itself. It differs in each session: no prefix would be shared.
_BILLING = "x-anthropic-billing-header"
# Parameters of a chat request, with their names in this request.
_NAMES = {
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "thinking",
    "response_format.json_schema": "output_config.format",
    "response_format": "output_config.format",
    "continue_final_message": "messages",
    "stop": "stop_sequences",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
_CHAT_NAMES = re.compile(
    rf"(?<![\w.])(?P<name>{'|'.join(map(re.escape, _NAMES))})\b(?!_)"
    r"|\b(?P<tool>tools\[\d+\])\.function(?P<schema>\.parameters)?\b"
)


class _StrictPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class TextBlock(_StrictPart):
    type: Literal["text"]
    text: str


ResultBlocks = Annotated[
    list[Annotated[TextBlock, known_types("blocks", "text")]], Field(max_length=MAX_PARTS, fail_fast=True)
]


class ToolResultBlock(_StrictPart):
    type: Literal["tool_result"]
    tool_use_id: CallId
    content: str | ResultBlocks | None = None
    is_error: bool | None = Field(
        default=None, description="Whether the call failed; ignored, as the model reads the content."
    )


class ToolUseBlock(_StrictPart):
    type: Literal["tool_use"]
    id: CallId
    name: CalledName
    input: Json


class ThinkingBlock(_StrictPart):
    """Reasoning of an earlier answer that is sent back."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(_StrictPart):
    """Encrypted reasoning of another server, which is left out."""

    type: Literal["redacted_thinking"]
    data: str


_BLOCKS = ("text", "tool_result", "tool_use", "thinking", "redacted_thinking")
Block = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolResultBlock, tag("tool_result")]
    | Annotated[ToolUseBlock, tag("tool_use")]
    | Annotated[ThinkingBlock, tag("thinking")]
    | Annotated[RedactedThinkingBlock, tag("redacted_thinking")],
    by_type(*_BLOCKS, default="text"),
    known_types("blocks", *_BLOCKS),
]
Blocks = Annotated[list[Block], Field(max_length=MAX_PARTS, fail_fast=True)]
TextBlocks = Annotated[
    list[Annotated[TextBlock, known_types("blocks", "text")]], Field(max_length=MAX_PARTS, fail_fast=True)
]


class InputMessage(_StrictPart):
    role: Literal["user", "assistant", "system"]
    content: str | Blocks


class MessagesTool(_StrictPart):
    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = None
    input_schema: ToolParameters
    strict: bool | None = None


class HostedMessagesTool(BaseModel):
    """A tool that Anthropic runs, or whose definition only its models know: left out and named."""

    model_config = ConfigDict(strict=True)

    type: Annotated[str, Field(min_length=1, max_length=64)]


Tool = Annotated[
    Annotated[MessagesTool, tag("custom")] | Annotated[HostedMessagesTool, tag("hosted")],
    by_type("custom", default="hosted", absent="custom"),
]


class MessagesToolChoice(_StrictPart):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(_StrictPart):
    type: Literal["enabled", "disabled", "adaptive"]


class OutputFormat(_StrictPart):
    type: Literal["json_schema"]
    schema_: Json = Field(alias="schema")


class OutputConfig(_StrictPart):
    effort: ReasoningEffort | None = None
    format: OutputFormat | None = None


class _Conversation(RequestBody):
    """Fields that a request and a count of its tokens share."""

    model: ModelName = Field(min_length=1, max_length=LONGEST)
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    system: str | TextBlocks | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS + MAX_HOSTED, fail_fast=True)] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: Thinking | None = Field(
        default=None,
        description="Whether the model reasons; left out: it does not, unless its chat template always reasons.",
    )
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = Field(default=None, description="Older form of `output_config.format`.")

    def _conversation(self) -> Json:
        """Return the parameters of the chat request that determine the prompt, and note what is left out."""
        functions = [tool for tool in self.tools or () if isinstance(tool, MessagesTool)]
        hosted = [tool for tool in self.tools or () if isinstance(tool, HostedMessagesTool)]
        self.note_ignored(f"tools[{tool.type}]"[: unknown_fields.LONGEST_IGNORED] for tool in hosted)
        messages = _system_first(
            [*self._system(), *(chat for message in self.messages for chat in _chat_messages(message))]
        )
        body: Json = {"model": self.model, "messages": messages, "reasoning_effort": self._effort()}
        if functions:
            body["tools"] = [_chat_tool(tool) for tool in functions]
            body["tool_choice"] = _chat_choice(self.tool_choice)
            if self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use:
                body["parallel_tool_calls"] = False
        elif self.tool_choice is not None and self.tool_choice.type in ("any", "tool"):
            body["tool_choice"] = _chat_choice(self.tool_choice)  # refused, with the reason: there are no tools
        last = messages[-1]
        if last["role"] == "assistant" and not last.get("tool_calls"):
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    def _system(self) -> list[Json]:
        if isinstance(self.system, str):
            return [{"role": "system", "content": self.system}] if self.system else []
        texts = [block.text for block in self.system or ()]
        kept = [text for text in texts if not text.startswith(_BILLING)]
        if len(kept) < len(texts):
            self.note_ignored([f"system[{_BILLING}]"])
        return [{"role": "system", "content": "\n".join(kept)}] if kept else []

    def _effort(self) -> str:
        if self.thinking is None or self.thinking.type == "disabled":
            return "none"
        return (self.output_config.effort if self.output_config else None) or "medium"

    def _chat(self, body: Json) -> ChatCompletionRequest:
        try:
            chat = read_parameters(ChatCompletionRequest, body)
        except ApiError as error:
            raise in_anthropic_terms(error) from None
        chat.note_ignored(self.ignored, refuses_unknown=self.refuses_unknown)
        chat.name_fields({"reasoning_effort": "thinking"})
        return chat


class CountTokensRequest(_Conversation):
    """The body of ``/v1/messages/count_tokens``."""

    def chat(self) -> ChatCompletionRequest:
        """Return the chat request whose prompt is counted. Raises ``ApiError``."""
        return self._chat(self._conversation())


class MessagesRequest(_Conversation):
    max_tokens: int = Field(ge=1, le=1_000_000)
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    cache_salt: CacheSalt | None = None

    def chat(self) -> ChatCompletionRequest:
        """Return the equivalent chat request. Raises ``ApiError``.

        The stop sequence stays in the text, from which the answer's writer learns which one it was.
        """
        body = self._conversation() | {
            "stream": self.stream,
            "max_completion_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
            "include_stop_str_in_output": bool(self.stop_sequences) or None,
            "cache_salt": self.cache_salt,
            "response_format": self._response_format(),
        }
        return self._chat(body)

    def _response_format(self) -> Json | None:
        chosen = (self.output_config.format if self.output_config else None) or self.output_format
        if chosen is None:
            return None
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": chosen.schema_, "strict": True}}


R = TypeVar("R", bound=RequestBody)


def read_request(kind: type[R], body: Json, *, refuse_unknown: bool = False) -> R:
    """Check ``body``. Raises ``ApiError`` that names every parameter at fault."""
    return read_parameters(kind, body, HARMLESS, refuse_unknown=refuse_unknown)


def in_anthropic_terms(error: ApiError) -> ApiError:
    """Return an error of the chat request with this request's parameter names."""
    return ApiError(
        error.status,
        error.code,
        _CHAT_NAMES.sub(_anthropic_name, error.message),
        _CHAT_NAMES.sub(_anthropic_name, error.fix),
        error.param and _CHAT_NAMES.sub(_anthropic_name, error.param),
        error.retry_after_s,
        error.headers,
        error.details,
    )


def _anthropic_name(match: re.Match[str]) -> str:
    if match["tool"]:
        return match["tool"] + (".input_schema" if match["schema"] else "")
    return _NAMES[match["name"]]


def _chat_messages(message: InputMessage) -> Iterator[Json]:
    """Yield the chat messages of one message: results of tools are messages of their own there."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
    elif message.role == "assistant":
        yield _assistant_message(message.content)
    else:
        texts: list[str] = []
        has_results = False
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                if texts:
                    yield {"role": message.role, "content": "\n".join(texts)}
                    texts = []
                has_results = True
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _text(block.content)}
            elif isinstance(block, TextBlock):
                texts.append(block.text)
        if texts or not has_results:
            yield {"role": message.role, "content": "\n".join(texts)}


def _system_first(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with later ones of role system in the user's: many chat templates have that role only at the
    beginning, and no two messages of the user in a row. The marks are those that Claude Code puts around such texts.
    """
    made: list[Json] = []
    begun = was_system = False
    for message in messages:
        begun = begun or message["role"] != "system"
        is_later = begun and message["role"] == "system"
        if is_later:
            text = f"<system-reminder>\n{message['content']}\n</system-reminder>"
            message = {"role": "user", "content": text}
        is_user = message["role"] == "user" and bool(made) and made[-1]["role"] == "user"
        if is_user and (is_later or was_system):
            made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n{message['content']}"}
        else:
            made.append(message)
        was_system = is_later
    return made


def _assistant_message(blocks: Sequence[Block]) -> Json:
    message: Json = {
        "role": "assistant",
        "content": "\n".join(block.text for block in blocks if isinstance(block, TextBlock)),
    }
    if thoughts := [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls := [block for block in blocks if isinstance(block, ToolUseBlock)]:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.input)}}
            for call in calls
        ]
    return message


def _text(content: str | Sequence[TextBlock] | None) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content or ())


def _chat_tool(tool: MessagesTool) -> Json:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _chat_choice(choice: MessagesToolChoice | None) -> Json | str | None:
    if choice is None:
        return None
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name or ""}}
    return {"any": "required"}.get(choice.type, choice.type)
