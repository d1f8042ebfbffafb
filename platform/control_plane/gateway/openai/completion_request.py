"""The request body of ``/v1/completions``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.gateway.openai.parameters import MAX_LOGPROBS, Parameters
from control_plane.gateway.openai.unions import TEXTS_OR_TOKENS, tag
from lora_engine.wire import engine_pb2 as pb

# Output tokens of a request without `max_tokens`, as in OpenAI's API.
DEFAULT_MAX_TOKENS = 16
# Maximum number of prompts of one request; each is a separate engine request.
MAX_PROMPTS = 64

TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
TokenPrompt = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]


Prompt = Annotated[
    Annotated[str, tag("text")]
    | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True), tag("texts")]
    | Annotated[TokenPrompt, tag("tokens")]
    | Annotated[list[TokenPrompt], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True), tag("token_lists")],
    TEXTS_OR_TOKENS,
]


class CompletionRequest(Parameters):
    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.COMPLETIONS

    prompt: Prompt
    suffix: str | None = Field(
        default=None, description="Text behind the answer; only for models whose tokenizer has tokens for that."
    )
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @model_validator(mode="after")
    def _no_echo_of_a_middle(self) -> Self:
        if self.suffix and self.echo:
            raise ValueError("suffix excludes echo: the answer lies between prompt and suffix; leave one of them out")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)

    @property
    def total_choices(self) -> int:
        return len(self.prompts) * self.choices

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None

    @property
    def echoed(self) -> int | None:
        """Number of alternatives in the log-probabilities of an echoed prompt; None if they were not requested."""
        return self.logprobs if self.echo else None

    @property
    def scored(self) -> int | None:
        return max((top for top in (self.echoed, self.prompt_logprobs) if top is not None), default=None)

    def submits(self) -> list[pb.Submit]:
        """Return one engine request for each prompt, without ids and tenant."""
        limit = 0 if self.prompt_only else self.max_tokens or DEFAULT_MAX_TOKENS
        sampling = self.sampling(max_tokens=limit, top_logprobs=self.logprobs)
        return [self._submit(prompt, sampling) for prompt in self.prompts]

    def echoes(self) -> list[str | None]:
        """Return the text that each choice begins with, by choice index; None where the engine must decode it from
        token ids.
        """
        texts = [prompt if isinstance(prompt, str) else None for prompt in self.prompts]
        return [text if self.echo else "" for text in texts for _ in range(self.choices)]

    def _submit(self, prompt: str | list[int], sampling: pb.Sampling) -> pb.Submit:
        submit = self.submit(sampling)
        if isinstance(prompt, str):
            submit.text = prompt
        else:
            submit.token_ids.ids.extend(prompt)
            submit.describe_prompt |= bool(self.echo)
        submit.suffix = self.suffix or ""
        return submit
