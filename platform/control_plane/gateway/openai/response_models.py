"""Responses of /v1 as the API schema describes them. ``response_writers.py`` writes them; a test compares the two."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class SchemaViolation(_StrictModel):
    """A place of the answer that its schema forbids by a keyword that is checked at the end."""

    path: str = Field(
        description="Path of the value in the answer: `items[0].name`; in a call, `tool_calls[0].function.arguments.a`."
    )
    keyword: str = Field(description="Path of the violated keyword in the schema.")
    message: str


_VIOLATIONS = Field(
    default=None, description="Violations of keywords that no grammar enforces; absent: there are none."
)


class PromptTokensDetails(_StrictModel):
    cached_tokens: int


class CompletionUsage(_StrictModel):
    """Token counts by the engine."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(_StrictModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(_StrictModel):
    content: list[TokenLogprob]
    refusal: None


class PromptLogprob(_StrictModel):
    """A log-probability in vLLM's form. Ranks begin with 1, the most likely token."""

    logprob: float
    rank: int
    decoded_token: str


_TOKEN_IDS = "Ids of the tokens; present with `return_token_ids`."
PromptLogprobs = list[dict[str, PromptLogprob] | None]
_OF_PROMPT = (
    "Log-probabilities of the prompt, present with `prompt_logprobs`: for each token, itself and the most likely ones "
    "by id; null for the first."
)


class AnsweredFunction(_StrictModel):
    name: str
    arguments: str = Field(description="Arguments of the call: a JSON object as text.")


class AnsweredToolCall(_StrictModel):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AssistantMessage(_StrictModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any] = Field(max_length=0)
    reasoning: str | None = Field(default=None, description="Reasoning before the answer; absent: there is none.")
    reasoning_content: str | None = Field(default=None, description="Older name of `reasoning`, with the same text.")
    tool_calls: list[AnsweredToolCall] | None = Field(
        default=None, description="Tool calls of the answer; absent: there are none."
    )


class ChatCompletionChoice(_StrictModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    schema_violations: list[SchemaViolation] | None = _VIOLATIONS
    token_ids: list[int] | None = Field(default=None, description=_TOKEN_IDS)


class ChatCompletionResponse(_StrictModel):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Time of the response, in seconds since 1970.")
    model: str
    system_fingerprint: str = Field(
        description="Fingerprint of the base model, which changes when the base model does."
    )
    choices: list[ChatCompletionChoice]
    usage: CompletionUsage
    prompt_token_ids: list[int] | None = Field(default=None, description=_TOKEN_IDS)
    prompt_logprobs: PromptLogprobs | None = Field(default=None, description=_OF_PROMPT)


class CompletionLogprobs(_StrictModel):
    tokens: list[str] = Field(
        description="Text of each token; a token that is a part of a character is `bytes:` and `\\x…`."
    )
    token_logprobs: list[float | None] = Field(
        description="Log-probability of each token; null for the first token of an echoed prompt."
    )
    top_logprobs: list[dict[str, float] | None] = Field(
        description="Log-probabilities of the most likely tokens and the token itself, by their text. Further tokens "
        "with the same text are `token_id:…`."
    )
    text_offset: list[int]


class CompletionChoice(_StrictModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    schema_violations: list[SchemaViolation] | None = _VIOLATIONS
    token_ids: list[int] | None = Field(default=None, description=_TOKEN_IDS)
    prompt_token_ids: list[int] | None = Field(default=None, description=_TOKEN_IDS)
    prompt_logprobs: PromptLogprobs | None = Field(default=None, description=_OF_PROMPT)


class CompletionResponse(_StrictModel):
    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Time of the response, in seconds since 1970.")
    model: str
    system_fingerprint: str = Field(
        description="Fingerprint of the base model, which changes when the base model does."
    )
    choices: list[CompletionChoice]
    usage: CompletionUsage


class ModelCard(_StrictModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["lorikeet", "tenant"] = Field(
        description="Owner of the model: `tenant` for an adapter of the tenant."
    )
    root: str = Field(description="Name of the version that answers; for a base model, its own name.")
    parent: str | None = Field(
        description="Base model of the adapter; null: the model is a base model, or its base model is not served."
    )
    max_model_len: int | None = Field(
        description="Maximum number of tokens of prompt and output together; null: its base model is not served."
    )


class ModelList(_StrictModel):
    object: Literal["list"]
    data: list[ModelCard]


class ResponseTokenDetails(_StrictModel):
    cached_tokens: int


class ResponseOutputDetails(_StrictModel):
    reasoning_tokens: int


class ResponseUsage(_StrictModel):
    """Token counts by the engine. Reasoning is not counted separately."""

    input_tokens: int
    input_tokens_details: ResponseTokenDetails
    output_tokens: int
    output_tokens_details: ResponseOutputDetails
    total_tokens: int


class ResponseFailure(_StrictModel):
    code: str
    message: str


class ResponseObject(_StrictModel):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[dict[str, Any]] = Field(
        description="Items of the answer: reasoning, message, function_call, custom_tool_call."
    )
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, Any]
    service_tier: str
    store: bool = Field(description="Whether the response is stored, so that it can be read and continued later.")
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: None
    metadata: dict[str, str]
    schema_violations: list[SchemaViolation] | None = _VIOLATIONS


class InputItemList(_StrictModel):
    object: Literal["list"]
    data: list[dict[str, Any]] = Field(description="Items, each with an id: messages, calls, their outputs, reasoning.")
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(_StrictModel):
    object: Literal["response.input_tokens"]
    input_tokens: int


class CompactedResponse(_StrictModel):
    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[dict[str, Any]] = Field(
        description="Items that replace the conversation as input: instructions and messages of the user, and one of "
        "type compaction with the model's summary of the rest."
    )
    usage: ResponseUsage


class DeletedResponse(_StrictModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class FileObject(_StrictModel):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    status_details: None


class FileList(_StrictModel):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(_StrictModel):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class BatchError(_StrictModel):
    code: str
    message: str
    line: int
    param: str | None


class BatchErrors(_StrictModel):
    object: Literal["list"]
    data: list[BatchError]


class BatchRequestCounts(_StrictModel):
    total: int
    completed: int
    failed: int


class BatchObject(_StrictModel):
    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str | None
    completion_window: Literal["24h"]
    status: Literal[
        "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchRequestCounts
    metadata: dict[str, str] | None


class BatchList(_StrictModel):
    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ErrorDetail(BaseModel):
    """An error. One about a limit also has `limit`, `scope`, `allowed`, `used` and `requested`."""

    model_config = ConfigDict(strict=True, extra="allow")

    message: str = Field(description="Sentences that say what happened and what to do, because SDKs show only this.")
    type: str = Field(description="Coarse class of the error, as in OpenAI's API.")
    param: str | None
    code: str
    fix: str = Field(description="Sentence that says what to do.")


class ErrorResponse(_StrictModel):
    error: ErrorDetail
