"""The request body of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from control_plane.gateway.openai.parameters import MOST_LOGPROBS, Parameters
from control_plane.usage.models import ApiEndpoint
from lora_engine.wire import engine_pb2 as pb

MOST_MESSAGES = 2048
MOST_PARTS = 1024


class ContentPartText(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message of text. The fields that SDKs add to an assistant's message are taken when they are empty."""

    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[ContentPartText], Field(min_length=1, max_length=MOST_PARTS, fail_fast=True)]
    name: str | None = Field(default=None, max_length=256)
    refusal: None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None
    tool_calls: list[Any] | None = Field(default=None, max_length=0)

    @field_validator("content", mode="before")
    @classmethod
    def _text_only(cls, value: object) -> object:
        for part in value if isinstance(value, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise ValueError(f'parts of type "{kind[:40]}" are not supported; send text parts')
        return value

    @field_validator("role", mode="before")
    @classmethod
    def _no_tools(cls, value: object) -> object:
        if value in ("tool", "function"):
            raise ValueError("tool messages are not supported")
        return value

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)

    def wire(self) -> pb.ChatMessage:
        # Chat templates know the older name of the same role.
        role = "system" if self.role == "developer" else self.role
        return pb.ChatMessage(role=role, content=self.text, name=self.name or "")


class ChatCompletionRequest(Parameters):
    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.CHAT

    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        return self

    @property
    def prompt_only(self) -> bool:
        return self.max_tokens == 0 and self.max_completion_tokens is None

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.logprobs)

    def submits(self) -> list[pb.Submit]:
        """One, without id and identity."""
        limit = self.max_completion_tokens or self.max_tokens or 0
        sampling = self.sampling(max_tokens=limit, top_logprobs=(self.top_logprobs or 0) if self.logprobs else None)
        submit = self.submit(sampling)
        submit.chat.CopyFrom(pb.Chat(messages=[message.wire() for message in self.messages]))
        return [submit]
