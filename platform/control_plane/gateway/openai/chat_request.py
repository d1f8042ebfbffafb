"""The request body of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.chats import MAX_TEMPLATE_CHARS, MAX_TEMPLATE_KWARGS, MAX_TOOLS, ReasoningEffort
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.openai.parameters import MAX_LOGPROBS, Parameters
from control_plane.gateway.openai.tools import (
    MAX_CALLS,
    CallId,
    FunctionTool,
    ToolCall,
    ToolChoice,
    check_tools,
    choice_wire,
)
from control_plane.gateway.openai.unions import by_type, tag
from lora_engine.wire import engine_pb2 as pb

# Messages of one request: bounds the time of validation.
MAX_MESSAGES = 2048
# Content parts that one message may have.
MAX_PARTS = 1024


class ContentPartText(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text"]
    text: str


class ContentPartRefusal(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


ContentPart = Annotated[
    Annotated[ContentPartText, tag("text")] | Annotated[ContentPartRefusal, tag("refusal")],
    by_type("text", "refusal", default="text"),
]


class ChatMessage(BaseModel):
    """A message with text, tool calls, or a tool's result.

    Fields that SDKs add to an assistant's message are accepted when they are empty.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[ContentPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)] | None = (
        Field(
            default=None,
            description="Text of the message; required, except in an assistant's message with tool calls or a refusal.",
        )
    )
    name: str | None = Field(default=None, max_length=256)
    refusal: str | None = Field(default=None, description="Refusal that replaces `content`; only with role assistant.")
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None
    provider_specific_fields: dict[str, Any] | None = Field(
        default=None,
        max_length=16,
        description="Fields that LiteLLM adds to an answer and sends back with it; ignored.",
    )
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_CALLS, fail_fast=True)] | None = Field(
        default=None, description="Tool calls that the assistant made; only with role assistant."
    )
    tool_call_id: CallId | None = Field(
        default=None,
        description="Id of the tool call whose result the message is; only with role tool, which needs it.",
    )
    reasoning: str | None = Field(default=None, description="Reasoning before the answer; only with role assistant.")
    reasoning_content: str | None = Field(
        default=None, description="Older name of `reasoning`, which is used if both are sent."
    )

    @field_validator("content", mode="before")
    @classmethod
    def _text_only(cls, value: object) -> object:
        for part in value if isinstance(value, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind not in ("text", "refusal"):
                raise ValueError(f'parts of type "{kind[:40]}" are not supported; send text parts')
        return value

    @field_validator("role", mode="before")
    @classmethod
    def _no_function_role(cls, value: object) -> object:
        if value == "function":
            raise ValueError('the role "function" is not supported; send tool results with the role "tool"')
        return value

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls belong to role assistant, not to role {self.role}; leave tool_calls out")
        for name in ("reasoning", "reasoning_content", "refusal"):
            if getattr(self, name) and self.role != "assistant":
                raise ValueError(f"{name} belongs to role assistant, not to role {self.role}; leave {name} out")
        if self.role != "assistant" and any(isinstance(part, ContentPartRefusal) for part in self._parts):
            raise ValueError(f"refusal parts belong to role assistant, not to role {self.role}; send text parts")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("tool_call_id is missing, which a message of role tool needs; add the id of the call")
        if self.role != "tool" and self.tool_call_id is not None:
            raise ValueError(f"tool_call_id belongs to role tool, not to role {self.role}; leave tool_call_id out")
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("content is missing; add content, or with role assistant tool_calls")
        return self

    @property
    def _parts(self) -> Sequence[ContentPartText | ContentPartRefusal]:
        return self.content if isinstance(self.content, list) else ()

    @property
    def text(self) -> str:
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self._parts)
        return text or self.refusal or ""

    def wire(self) -> pb.ChatMessage:
        return pb.ChatMessage(
            # Chat templates know the role developer by its older name.
            role="system" if self.role == "developer" else self.role,
            content=self.text,
            name=self.name or "",
            tool_calls=[call.wire() for call in self.tool_calls or ()],
            tool_call_id=self.tool_call_id or "",
            reasoning=self.reasoning_content or self.reasoning or "",
        )


class ReasoningSwitch(BaseModel):
    """OpenRouter's ``reasoning``: an effort, or on or off."""

    model_config = ConfigDict(strict=True, extra="forbid")

    effort: ReasoningEffort | None = None
    enabled: bool | None = None


class ThinkingSwitch(BaseModel):
    """The switch of DeepSeek's and other models' APIs."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["enabled", "disabled", "adaptive"]


class ChatCompletionRequest(Parameters):
    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.CHAT

    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    tools: Annotated[list[FunctionTool], Field(fail_fast=True)] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    reasoning: ReasoningSwitch | None = Field(
        default=None, description="Reasoning effort in OpenRouter's form; ignored if `reasoning_effort` is sent."
    )
    enable_thinking: bool | None = Field(
        default=None,
        description="Whether the model reasons, with the effort `medium`; ignored if a field above it is sent.",
    )
    thinking: ThinkingSwitch | None = Field(
        default=None,
        description="Whether the model reasons, in the form of DeepSeek's API; ignored if a field above it is sent.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None, max_length=MAX_TEMPLATE_KWARGS, description="Further variables of the model's chat template."
    )

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    _sent_as: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("chat_template_kwargs")
    @classmethod
    def _bounded(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value and (size := len(encode(value))) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"it is {size} characters long; send at most {MAX_TEMPLATE_CHARS}")
        return value

    @model_validator(mode="after")
    def _tools_agree(self) -> Self:
        check_tools(self.tools or [], self.tool_choice)
        return self

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs; set logprobs to true, or leave top_logprobs out")
        return self

    @model_validator(mode="after")
    def _one_way_to_end_the_prompt(self) -> Self:
        if not self.continue_final_message:
            return self
        if self.add_generation_prompt is not False:
            raise ValueError("continue_final_message excludes a generation prompt; set add_generation_prompt to false")
        return self

    @property
    def prompt_only(self) -> bool:
        return self.max_tokens == 0 and self.max_completion_tokens is None

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.logprobs)

    @property
    def _effort(self) -> tuple[str, str]:
        """The field that sets the reasoning effort, and the effort; "" if none does."""
        if self.reasoning_effort is not None:
            return "reasoning_effort", self.reasoning_effort
        if self.reasoning is not None and self.reasoning.effort is not None:
            return "reasoning.effort", self.reasoning.effort
        switches = {
            "reasoning.enabled": self.reasoning.enabled if self.reasoning else None,
            "enable_thinking": self.enable_thinking,
            "thinking": self.thinking.type != "disabled" if self.thinking else None,
        }
        name, on = next(((name, on) for name, on in switches.items() if on is not None), ("", None))
        return (name, "") if on is None else (name, "medium" if on else "none")

    @property
    def optional(self) -> Mapping[str, str]:
        if self.refuses_unknown:
            return {}
        names = {"chat_template_kwargs.enable_thinking": "chat_template_kwargs.enable_thinking"}
        name, _ = self._effort
        return {**names, "reasoning_effort": self._sent_as.get(name, name)} if name else names

    def in_sent_terms(self, error: ApiError) -> ApiError:
        theirs, ours = self._effort[0], "reasoning_effort"
        if error.param != ours or not theirs:
            return error
        message, fix = (text.replace(f"'{ours}'", f"'{theirs}'") for text in (error.message, error.fix))
        return replace(error, param=theirs, message=message, fix=fix)

    def name_fields(self, sent_as: Mapping[str, str]) -> None:
        """Set the names of fields in the request of another form, from which this one was made."""
        self._sent_as = sent_as

    def submits(self) -> list[pb.Submit]:
        """Return one engine request, without id and tenant."""
        limit = self.max_completion_tokens or self.max_tokens or 0
        sampling = self.sampling(max_tokens=limit, top_logprobs=(self.top_logprobs or 0) if self.logprobs else None)
        submit = self.submit(sampling)
        chat = submit.chat
        chat.messages.extend([message.wire() for message in self.messages])
        chat.reasoning_effort = self._effort[1]
        chat.no_generation_prompt = self.add_generation_prompt is False
        chat.continue_final_message = bool(self.continue_final_message)
        if self.tools:
            chat.tools.extend(tool.wire() for tool in self.tools)
            chat.tool_choice.CopyFrom(choice_wire(self.tool_choice))
            chat.single_tool_call = self.parallel_tool_calls is False
        if self.chat_template_kwargs:
            chat.template_kwargs = encode(self.chat_template_kwargs)
        return [submit]
