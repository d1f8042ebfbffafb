"""The request body of ``/v1/completions``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from control_plane.gateway.openai.parameters import Parameters
from control_plane.usage.models import ApiEndpoint
from lora_engine.wire import engine_pb2 as pb

DEFAULT_MAX_TOKENS = 16
MOST_PROMPTS = 64
MOST_LOGPROBS = 20

TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
TokenPrompt = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]


class CompletionRequest(Parameters):
    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.COMPLETIONS

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
        | TokenPrompt
        | Annotated[list[TokenPrompt], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
    )
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)

    @model_validator(mode="after")
    def _echo_must_be_exact(self) -> Self:
        if self.echo and not all(isinstance(prompt, str) for prompt in self.prompts):
            raise ValueError("echo is only supported for text prompts, not for token arrays")
        if self.echo and self.logprobs is not None:
            raise ValueError("echo cannot be combined with logprobs")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt by itself."""
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

    def submits(self) -> list[pb.Submit]:
        """One for each prompt, without ids and identity."""
        sampling = self.sampling(max_tokens=self.max_tokens or DEFAULT_MAX_TOKENS, top_logprobs=self.logprobs)
        return [self._submit(prompt, sampling) for prompt in self.prompts]

    def echoes(self) -> list[str]:
        """What each choice's text begins with, by choice index."""
        return [str(prompt) if self.echo else "" for prompt in self.prompts for _ in range(self.choices)]

    @staticmethod
    def _submit(prompt: str | list[int], sampling: pb.Sampling) -> pb.Submit:
        if isinstance(prompt, str):
            return pb.Submit(text=prompt, sampling=sampling)
        return pb.Submit(token_ids=pb.TokenIds(ids=prompt), sampling=sampling)
