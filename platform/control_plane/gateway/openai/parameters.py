"""Parameters of request bodies: which exist, which are refused by name, and how they are sent to the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from control_plane.core import config
from control_plane.core.http.known_names import unknown_texts
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.openai.model_names import LONGEST, ModelName
from control_plane.gateway.openai.prompt_parts import MAX_PROMPT_LOGPROBS, MAX_STREAMED, PromptParts
from control_plane.gateway.openai.structured_outputs import ConstraintParameters
from control_plane.gateway.openai.unknown_fields import (
    HARMLESS,
    OF_OTHER_SERVERS,
    STRICT_INSIDE,
    RequestBody,
    UnknownField,
    meant_name,
    names_of,
    take_unknown,
)
from control_plane.gateway.openai.validation_texts import is_type_fault, texts
from lora_engine.wire import engine_pb2 as pb

# Parameters of OpenAI or vLLM that are not supported: refused unless they have one of these values, which change
# nothing.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "access_programs": ([],),
    "add_generation_prompt": (False,),
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "cache_salt": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "context_management": ([],),
    "conversation": (),
    "documents": ([],),
    "ec_transfer_params": (),
    "echo": (False,),
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "image": (),
    "include_reasoning": (True,),
    "kv_transfer_params": (),
    "length_penalty": (1,),
    "logprob_token_ids": (),
    "media_io_kwargs": ({},),
    "messages": (),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "normalize": (True,),
    "padding": ("do_not_pad",),
    "parallel_tool_calls": (True, False),
    "priority": (0,),
    "prompt": (),
    "prompt_embeds": (),
    "reasoning_effort": ("none",),
    "repetition_detection": (),
    "request_id": (),
    "return_mm_kwargs": (True, False),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "return_tokens_as_token_ids": (False,),
    "routed_experts_prompt_start": (0,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "thinking_token_budget": (-1,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "truncation_side": ("left", "right"),
    "use_activation": (True,),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
    "watermarking": (False,),
    "web_search_options": (),
}
_REFUSED = {**UNSUPPORTED, **OF_OTHER_SERVERS}
# Successors of parameters that OpenAI has deprecated.
_REPLACED = {"functions": "tools", "function_call": "tool_choice"}
# Smallest top_p sent to the engine, where 0 means "not set".
SMALLEST_TOP_P = 1e-6
MAX_STOPS = 16
# Largest `top_logprobs`, as in OpenAI's API.
MAX_LOGPROBS = 20

# Maximum number of characters of a parameter's path in an error.
LONGEST_PARAM = 100
# Maximum number of problems that one error lists.
MAX_PROBLEMS = 16

CacheSalt = Annotated[str, Field(min_length=1, max_length=256)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]
B = TypeVar("B", bound=RequestBody)
M = TypeVar("M", bound=BaseModel)


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False  # padding against traffic analysis; accepted, never added


class Parameters(ConstraintParameters):
    """Parameters that chat and completions share; parameters that OpenAI lacks have vLLM's form.

    A list is refused at its first fault: reporting a million faults would take seconds.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    model: ModelName = Field(min_length=1, max_length=LONGEST)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=0, le=1_000_000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    seed: int | None = Field(default=None, ge=-(1 << 63), lt=1 << 64)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 32)]], Field(fail_fast=True)] | None = Field(
        default=None, max_length=64
    )
    n: int | None = Field(default=None, ge=1, le=128)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(default=None, max_length=1024)
    ignore_eos: bool | None = None
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    min_tokens: int | None = Field(default=None, ge=0, le=1_000_000)
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = Field(
        default=None, description="Whether tokens in `logprobs` are written as `token_id:…` instead of their text."
    )
    priority: int | None = Field(default=None, ge=-1_000_000, le=1_000_000)
    cache_salt: CacheSalt | None = None

    @field_validator("model")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("it holds characters that no model name has; send a name that GET /v1/models lists")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for key in value or {}:
            if not (key.isdecimal() and int(key) < 1 << 32):
                raise ValueError(f'"{key[:20]}" is not a token id; send token ids as names')
        return value

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true; set stream to true, or leave it out")
        return self

    @model_validator(mode="after")
    def _counts_come_at_the_end_too(self) -> Self:
        if self.continuous_usage and not self.include_usage:
            raise ValueError("stream_options.continuous_usage_stats needs include_usage; set include_usage to true")
        return self

    @model_validator(mode="after")
    def _room_for_the_least_answer(self) -> Self:
        if self.min_tokens and self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens is larger than max_tokens; set min_tokens to at most max_tokens")
        return self

    @model_validator(mode="after")
    def _no_stream_of_prompt_logprobs(self) -> Self:
        if self.prompt_logprobs is not None and self.stream:
            raise ValueError("prompt_logprobs come with the whole answer only; leave stream out")
        return self

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def prompt_only(self) -> bool:
        """True if the request generates nothing."""
        return self.max_tokens == 0

    @property
    def scored(self) -> int | None:
        """Number of alternatives requested with each token of the prompt; None if the prompt is not scored."""
        return self.prompt_logprobs

    @property
    def total_choices(self) -> int:
        """Number of choices of all prompts together."""
        return self.choices

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def require_served_size(self) -> None:
        most = config.current().request_max_choices
        if self.total_choices > most:
            raise invalid(
                f"The request has {self.total_choices} choices (n for each prompt); the limit is {most}.",
                "Set a smaller n, or send several requests.",
                "n",
                "too_many_choices",
            )

    def prompt_parts(self) -> PromptParts:
        """Return an empty collector of what the engine reports about the prompts."""
        return PromptParts(self.total_choices // self.choices, self.choices, scored=self.scored is not None)

    def submit(self, sampling: pb.Sampling) -> pb.Submit:
        """Return an engine request without a prompt."""
        submit = pb.Submit(
            sampling=sampling,
            prompt_only=self.prompt_only,
            echo_token_ids=bool(self.return_token_ids),
            describe_prompt=bool(self.return_token_ids) or self.continuous_usage,
            # vLLM serves smaller numbers first; the engine serves larger ones first.
            slo=pb.Slo(priority=-(self.priority or 0)),
            cache_salt=self.cache_salt or "",
        )
        if self.add_special_tokens is not None:
            submit.add_special_tokens = self.add_special_tokens
        if self.scored is not None:
            submit.prompt_logprobs = self.scored
            most = MAX_STREAMED if self.stream else MAX_PROMPT_LOGPROBS
            submit.most_prompt_logprobs = max(1, most // self.total_choices)
        return submit

    def sampling(self, *, max_tokens: int, top_logprobs: int | None) -> pb.Sampling:
        """Return the engine's sampling parameters.

        ``max_tokens`` 0 means up to the context limit; ``top_logprobs`` None means no log-probabilities.
        """
        sampling = pb.Sampling(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            # On the wire 0 means "not set"; a client's 0 means greedy decoding.
            top_p=1.0 if self.top_p is None else max(self.top_p, SMALLEST_TOP_P),
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            stop=self.stops,
            stop_token_ids=self.stop_token_ids or [],
            n=self.choices,
            logprobs=top_logprobs is not None and not self.prompt_only,
            top_logprobs=top_logprobs or 0,
            ignore_eos=bool(self.ignore_eos),
            include_stop=bool(self.include_stop_str_in_output),
            min_tokens=self.min_tokens or 0,
            keep_special_tokens=self.skip_special_tokens is False,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
        )
        if self.seed is not None:
            sampling.seed = self.seed % (1 << 64)
        return sampling


def read_parameters(
    kind: type[B], body: Mapping[str, Any], harmless: frozenset[str] = HARMLESS, *, refuse_unknown: bool = False
) -> B:
    """Validate ``body``, without harmless parameters. Raises ``ApiError`` that names every parameter at fault.

    Other unknown fields are left out, or with ``refuse_unknown`` refused.
    """
    body = {name: value for name, value in body.items() if value is not None}
    others = [name for name in body if (name in harmless or name in _REFUSED) and name not in kind.model_fields]
    ignored = [name for name in others if name in harmless]
    problems = [_unsupported(name) for name in others if name not in harmless and body[name] not in _REFUSED[name]]
    for name in others:
        del body[name]
    try:
        params = kind.model_validate(body)
    except ValidationError as error:
        if refuse_unknown or not any(item["type"] == "extra_forbidden" for item in _items(error)):
            raise together(problems + problems_of(error, body) + _contradictions(kind, body, error)) from None
        params, unknown = _without_unknown(kind, body, error, problems)
        ignored += unknown
    if problems:
        raise together(problems)
    params.note_ignored(ignored, refuses_unknown=refuse_unknown)
    params.require_served_size()
    return params


def _without_unknown(
    kind: type[B], body: Mapping[str, Any], error: ValidationError, problems: Sequence[ApiError]
) -> tuple[B, list[str]]:
    """Validate a body again without its unknown fields, and return their names too.

    Raises ``ApiError`` if unknown fields must be refused, or if there are other problems.
    """
    try:
        params = kind.model_validate(body, extra="allow")
    except ValidationError as others:
        names = names_of(kind)
        unknown = [UnknownField(name, "", "", names) for name in body if name not in names]
        strict = [p for p in problems_of(error, body) if _is_strictly_unknown(p)]
        refused = [problem for field in unknown if (problem := _unknown(field)) is not None]
        raise together([*problems, *refused, *strict, *problems_of(others, body)]) from None
    fields = take_unknown(params)
    refused = [problem for field in fields if (problem := _unknown(field)) is not None]
    if refused:
        raise together([*problems, *refused])
    return params, [field.shown for field in fields]


def _is_strictly_unknown(problem: ApiError) -> bool:
    root, inside = re.match(r"([^.\[]*)(.*)", problem.param or "", re.DOTALL).groups()  # type: ignore[union-attr]
    return problem.code == "unknown_parameter" and bool(inside) and root in STRICT_INSIDE


def _unknown(field: UnknownField) -> ApiError | None:
    """Return the refusal of an unknown field; None if it may be left out."""
    meant = meant_name(field.name, field.known)
    param = field.param[:LONGEST_PARAM]
    if meant is not None:
        return invalid(
            f"Unknown parameter: '{param}'. Did you mean '{meant}'?",
            f"Send '{meant}', or leave '{param}' out.",
            param,
            "unknown_parameter",
        )
    if field.is_strict:
        message, fix = unknown_texts([param], "parameter", "The API guide lists the known parameters.")
        return invalid(message, fix, param, "unknown_parameter")
    return None


def _contradictions(kind: type[BaseModel], body: Mapping[str, Any], error: ValidationError) -> list[ApiError]:
    """Return contradictions between parameters when the only other faults are unknown ones, which would hide them."""
    items = _items(error)
    unknown = {item["loc"] for item in items if item["type"] == "extra_forbidden" and len(item["loc"]) == 1}
    if len(unknown) < len(items):
        return []
    body = {name: value for name, value in body.items() if (name,) not in unknown}
    try:
        kind.model_validate(body)
    except ValidationError as more:
        return problems_of(more, body)
    return []


def _items(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def _unsupported(name: str) -> ApiError:
    return ApiError(
        400,
        "unsupported_parameter",
        f"Unsupported parameter: '{name}' is not supported with this model.",
        f"Send '{_REPLACED[name]}' instead." if name in _REPLACED else f"Leave '{name}' out.",
        name,
    )


def validate(kind: type[M], body: Mapping[str, Any]) -> M:
    """Validate ``body`` without regard to the rules for unsupported parameters. Raises ``ApiError``."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise together(problems_of(error, body)) from None


def together(problems: Sequence[ApiError]) -> ApiError:
    """Return one error that lists all problems; ``code`` and ``param`` are the first one's."""
    first = problems[0]
    if len(problems) == 1:
        return first
    listed = problems[:MAX_PROBLEMS]
    more = f" And {len(problems) - len(listed)} more." if len(problems) > len(listed) else ""
    return ApiError(
        first.status,
        first.code,
        " ".join(problem.message for problem in listed) + more,
        " ".join(dict.fromkeys(problem.fix for problem in listed)),
        first.param,
        details={"problems": [{"param": p.param, "code": p.code, "message": p.message} for p in listed]},
    )


def problems_of(error: ValidationError, body: Mapping[str, Any]) -> list[ApiError]:
    """Return the problems of ``body``, unknown parameters first.

    For a value of a union, each member reports an error. The most specific one is kept: what is wrong with a value of
    the right type, then what is wrong deepest inside. If no member has the value's type, one problem names all types.
    """
    by_param: dict[str, list[ErrorDetails]] = {}
    items = error.errors(include_url=False)
    for item in sorted(items, key=lambda item: (item["type"] != "extra_forbidden", is_type_fault(item))):
        by_param.setdefault(path(item, body)[:LONGEST_PARAM], []).append(item)
    less_specific = _less_specific({param: is_type_fault(items[0]) for param, items in by_param.items()})
    return [_problem(items, param) for param, items in by_param.items() if param not in less_specific]


def _less_specific(faults: Mapping[str, bool]) -> set[str]:
    """Return the parameters for which another one names the problem better; ``faults``: whether its type is wrong.

    The time is proportional to the number of parameters, as a body may have thousands of faults.
    """
    worse: set[str] = set()
    for param, is_fault in faults.items():
        for outer in (param[:end] for end, character in enumerate(param) if character in ".["):
            if outer not in faults:
                continue
            if faults[outer] or not is_fault:
                worse.add(outer)
            if is_fault and not faults[outer]:
                worse.add(param)
    return worse


def _problem(items: Sequence[ErrorDetails], param: str) -> ApiError:
    item = items[0]
    if item["type"] == "extra_forbidden":
        message, fix = unknown_texts([param], "parameter", "The API guide lists the known parameters.")
        return invalid(message, fix, param, "unknown_parameter")
    if item["type"] == "missing":
        return invalid(
            f"Missing required parameter: '{param}'.", f"Add '{param}'.", param, "missing_required_parameter"
        )
    what, fix = texts(items, f"the names in '{param}'" if _is_about_key(item) else f"'{param}'")
    if _is_about_key(item):
        return invalid(f"Invalid name in '{param}': {what}.", fix, param)
    if param:
        return invalid(f"Invalid value for '{param}': {what}.", fix, param)
    first = what.split(maxsplit=1)[0]  # by convention, the parameter that contradicts the others
    at_fault = first if first.partition(".")[0] in _parameter_names() else None
    return invalid(f"Invalid request: {what}.", fix, at_fault)


def path(item: ErrorDetails, body: object) -> str:
    """Write the location ``("messages", 0, "content", "str")`` of a fault in ``body`` as ``messages[0].content``.

    Names of union members, which are no keys of ``body``, are left out.
    """
    text, value = "", body
    for part in item["loc"][:-2] if _is_about_key(item) else item["loc"]:
        if value is item["input"] and item["type"] != "missing":  # the rest are names of union members
            break
        if (isinstance(value, list) and isinstance(part, int)) or (isinstance(value, Mapping) and part in value):
            value = value[part]  # type: ignore[index]
            text += _step(part, at_top=not text)
    is_absent_name = item["type"] == "missing" and isinstance(value, Mapping)
    return text + (_step(item["loc"][-1], at_top=not text) if is_absent_name else "")


def _step(part: int | str, *, at_top: bool) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if part.isidentifier() or (at_top and part.isprintable()):
        return part if at_top else f".{part}"
    return f"[{json.dumps(part, ensure_ascii=False)}]"


def _is_about_key(item: ErrorDetails) -> bool:
    """Return whether the fault is a key of an object, which precedes pydantic's mark in the location."""
    return item["loc"][-1:] == ("[key]",)


@cache
def _models() -> tuple[type[BaseModel], ...]:
    """Return the models of all bodies and their parts."""
    models: list[type[BaseModel]] = []
    left: list[type[BaseModel]] = [BaseModel]
    while left:
        subclasses = left.pop().__subclasses__()
        left += subclasses
        models += [model for model in subclasses if model.__module__.startswith("control_plane.gateway.")]
    return tuple(models)


@cache
def _parameter_names() -> frozenset[str]:
    return frozenset(name for model in _models() for name in model.model_fields)
