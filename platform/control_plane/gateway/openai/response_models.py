"""The forms of what /v1 answers, for the API's schema. ``response_writers.py`` writes them; a test compares the two."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class PromptDetails(_Form):
    cached_tokens: int


class Usage(_Form):
    """The engine's own count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class TopToken(_Form):
    token: str
    logprob: float
    bytes: list[int]


class Token(TopToken):
    top_logprobs: list[TopToken]


class ChatLogprobs(_Form):
    content: list[Token]
    refusal: None


class AssistantMessage(_Form):
    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[Any] = Field(max_length=0)


class ChatChoice(_Form):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatAnswer(_Form):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str = Field(description="Changes when the base model does.")
    choices: list[ChatChoice]
    usage: Usage


class TextLogprobs(_Form):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(_Form):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]


class CompletionAnswer(_Form):
    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str = Field(description="Changes when the base model does.")
    choices: list[TextChoice]
    usage: Usage


class ModelAnswer(_Form):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["lorikeet", "tenant"] = Field(description="`tenant`: one of your adapters.")


class ModelsAnswer(_Form):
    object: Literal["list"]
    data: list[ModelAnswer]


class ErrorDetail(BaseModel):
    """What more there is to say of a limit stands beside: `limit`, `scope`, `allowed`, `used`, `requested`."""

    model_config = ConfigDict(strict=True, extra="allow")

    message: str = Field(description="What happened, and what to do: SDKs show nothing else.")
    type: str = Field(description="OpenAI's coarse class of error.")
    param: str | None
    code: str
    fix: str = Field(description="What to do.")


class ErrorAnswer(_Form):
    error: ErrorDetail
