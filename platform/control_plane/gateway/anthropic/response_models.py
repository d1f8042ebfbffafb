"""The shapes of Anthropic's answers, for the API schema."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from control_plane.gateway.openai.response_models import SchemaViolation


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class MessageUsage(_Shape):
    input_tokens: int = Field(
        description="Number of prompt tokens, without those that were read from the prefix cache."
    )
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageObject(_Shape):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]] = Field(description="Blocks of the answer: `thinking`, `text` and `tool_use`.")
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: MessageUsage
    schema_violations: list[SchemaViolation] | None = Field(
        default=None, description="Violations of keywords that no grammar enforces; absent: there are none."
    )


class MessageTokens(_Shape):
    input_tokens: int


class MessageErrorDetail(_Shape):
    type: str
    message: str
    code: str
    param: str | None
    fix: str


class MessageError(_Shape):
    type: Literal["error"]
    error: MessageErrorDetail
    request_id: str
