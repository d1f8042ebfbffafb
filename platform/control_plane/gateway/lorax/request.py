"""The request body of LoRAX's endpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from control_plane.adapters.imports.hub_policy import HUB_PREFIX
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.gateway.dispatch.constraint_checks import RequestedConstraint
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai.parameters import MAX_STOPS, StopString, validate
from lora_engine.constraints import Constraint, Kind
from lora_engine.wire import engine_pb2 as pb

# Parameters of LoRAX that are not supported: refused unless they have one of these values, which change nothing.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "adapter_parameters": (),
    "api_token": (),
    "best_of": (1,),
    "decoder_input_details": (False,),
    "merged_adapters": (),
    "return_k_alternatives": (),
    "truncate": (),
    "typical_p": (),
    "watermark": (False,),
}


class LoraxFormat(BaseModel):
    """LoRAX's response format: JSON, or with ``schema``, JSON that matches the schema."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    schema_: dict[str, Any] | str | None = Field(default=None, alias="schema")

    def requested_constraint(self) -> RequestedConstraint | None:
        if self.type == "text":
            return None
        if self.schema_ is None:
            return RequestedConstraint(Constraint(Kind.JSON_OBJECT), "parameters.response_format")
        text = self.schema_ if isinstance(self.schema_, str) else json.dumps(self.schema_)
        return RequestedConstraint(Constraint(Kind.JSON_SCHEMA, text), "parameters.response_format.schema")


class LoraxParameters(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    adapter_id: str | None = Field(default=None, min_length=1, max_length=200)
    adapter_source: Literal["local", "hub"] | None = None
    do_sample: bool = False
    max_new_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    ignore_eos_token: bool = False
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    return_full_text: bool = False
    stop: Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] = []
    seed: int | None = Field(default=None, ge=0, lt=1 << 64)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_k: int | None = Field(default=None, ge=1, le=1_000_000)
    top_p: float | None = Field(default=None, gt=0, le=1)
    details: bool = False
    apply_chat_template: bool = False
    response_format: LoraxFormat | None = None

    @property
    def samples(self) -> bool:
        """True if tokens are sampled: LoRAX decodes greedily unless one of these parameters is set."""
        return self.do_sample or any(value is not None for value in (self.temperature, self.top_k, self.top_p))

    def sampling(self, *, logprobs: bool) -> pb.Sampling:
        sampling = pb.Sampling(
            max_tokens=self.max_new_tokens or 0,
            temperature=(1.0 if self.temperature is None else self.temperature) if self.samples else 0.0,
            top_p=self.top_p or 1.0,
            top_k=self.top_k or 0,
            repetition_penalty=self.repetition_penalty or 1.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            stop=self.stop,
            include_stop=True,
            n=1,
            logprobs=logprobs,
            ignore_eos=self.ignore_eos_token,
        )
        if self.seed is not None:
            sampling.seed = self.seed
        return sampling


class LoraxRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    endpoint: ClassVar[ApiEndpoint] = ApiEndpoint.COMPLETIONS
    choices: ClassVar[int] = 1
    ignored: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[Mapping[str, str]] = {}

    inputs: str = Field(min_length=1)
    parameters: LoraxParameters = LoraxParameters()
    stream: bool = False

    @property
    def model(self) -> str:
        """Name of the model, as /v1 writes it; "" is the base model. A Hub repository gets the Hub's prefix."""
        name = self.parameters.adapter_id or ""
        from_hub = name and self.parameters.adapter_source == "hub" and not name.startswith(HUB_PREFIX)
        return f"{HUB_PREFIX}{name}" if from_hub else name

    @property
    def requested_constraint(self) -> RequestedConstraint | None:
        response_format = self.parameters.response_format
        return None if response_format is None else response_format.requested_constraint()

    def submits(self) -> list[pb.Submit]:
        parameters = self.parameters
        # An event of a stream contains its token, which comes with the log-probabilities.
        sampling = parameters.sampling(logprobs=self.stream or parameters.details)
        if parameters.apply_chat_template:
            chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=self.inputs)])
            return [pb.Submit(chat=chat, sampling=sampling)]
        return [pb.Submit(text=self.inputs, sampling=sampling)]

    def finish_reason(self, text: str, reason: str | None) -> str:
        if reason == "length":
            return "length"
        return "stop_sequence" if any(text.endswith(stop) for stop in self.parameters.stop) else "eos_token"


def read_request(body: Mapping[str, Any]) -> LoraxRequest:
    """Check `body` strictly. Raises ``ApiError`` that names the parameter at fault."""
    values = {name: value for name, value in body.items() if value is not None}
    if isinstance(parameters := values.get("parameters"), dict):
        known = {name: value for name, value in parameters.items() if value is not None}
        for name in UNSUPPORTED.keys() & known.keys():
            if known.pop(name) not in UNSUPPORTED[name]:
                raise _unsupported(name)
        values["parameters"] = known
    return validate(LoraxRequest, values)


def _unsupported(name: str) -> ApiError:
    return ApiError(
        400,
        "unsupported_parameter",
        f"The parameter '{name}' is not supported by this server.",
        "Leave it out; adapters are called by their names in this tenant.",
        f"parameters.{name}",
    )
