"""Conversion of the engine's data classes into the wire's messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from google.protobuf.message import Message

from lora_engine.adapters.dtypes import content_of
from lora_engine.errors import RequestError, StageError
from lora_engine.memory import PageMap
from lora_engine.request import PromptLogprobs, RequestUsage, TokenDelta, TokenLogprob
from lora_engine.scheduling.scheduler_stats import WaitingRequest
from lora_engine.text import Tokenizer
from lora_engine.wire import engine_pb2 as pb

M = TypeVar("M", bound=Message)


def fill(message: M, source: object) -> M:
    """Set a message's fields from the attributes of ``source`` with the same names, or from its items if it is a
    mapping, and return the message.

    Fields that the source lacks, or has as None, stay unset. Objects become messages in the same way, and enum members
    the values of the same name.
    """
    for field in message.DESCRIPTOR.fields:
        name = field.name
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is None:
            continue
        target = getattr(message, name)
        if field.message_type is not None and field.is_repeated:
            for item in value:
                fill(target.add(), item)
        elif field.message_type is not None:
            target.SetInParent()
            fill(target, value)
        elif field.is_repeated:
            target.extend(value)
        elif field.enum_type is not None and isinstance(value, Enum):
            setattr(message, name, field.enum_type.values_by_name[value.name].number)
        else:
            setattr(message, name, value)
    return message


def delta_message(delta: TokenDelta, echo_token_ids: bool, tokenizer: Tokenizer) -> pb.Delta:
    message = pb.Delta(
        request_id=delta.request_id,
        choice=delta.choice,
        text=delta.text,
        num_tokens=len(delta.token_ids),
        token_ids=delta.token_ids if echo_token_ids else (),
        logprobs=[_logprob(entry, tokenizer) for entry in delta.logprobs],
        finish_reason=delta.finish_reason,
    )
    if isinstance(delta.of_prompt, PromptLogprobs):
        message.prompt_logprobs.CopyFrom(_prompt_logprobs(delta.of_prompt, tokenizer))
    elif delta.of_prompt is not None:
        message.embedding = delta.of_prompt.values
    return message


def _prompt_logprobs(scores: PromptLogprobs, tokenizer: Tokenizer) -> pb.PromptLogprobs:
    top_ids = [token_id for ids in scores.top_ids for token_id in ids]
    return pb.PromptLogprobs(
        token_ids=scores.token_ids,
        logprobs=scores.logprobs,
        ranks=scores.ranks,
        num_top=max(map(len, scores.top_ids), default=0),
        top_ids=top_ids,
        top_logprobs=[logprob for logprobs in scores.top_logprobs for logprob in logprobs],
        token_bytes={token_id: tokenizer.token_bytes(token_id) for token_id in {*scores.token_ids, *top_ids}},
    )


def _logprob(entry: TokenLogprob, tokenizer: Tokenizer) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token_id=entry.token_id,
        token=tokenizer.token_text(entry.token_id),
        token_bytes=tokenizer.token_bytes(entry.token_id),
        logprob=entry.logprob,
        top=[
            pb.TopLogprob(
                token_id=token_id,
                token=tokenizer.token_text(token_id),
                token_bytes=tokenizer.token_bytes(token_id),
                logprob=logprob,
            )
            for token_id, logprob in entry.top
        ],
    )


def usage_message(usage: RequestUsage, error: RequestError | None) -> pb.UsageRecord:
    return fill(pb.UsageRecord(error_code=error.code if error else ""), usage)


def error_message(error: RequestError | StageError) -> pb.EngineError:
    return fill(pb.EngineError(), error)


def page_map_message(pages: PageMap, boot_id: str) -> pb.PageMap:
    message = fill(pb.PageMap(boot_id=boot_id, unix_time=time.time()), pages)
    for owner in message.owners:
        owner.adapter_digest = content_of(owner.adapter_digest)
    return message


def waiting_message(request: WaitingRequest) -> pb.WaitingRequest:
    return pb.WaitingRequest(
        request_id=request.request_id,
        tenant=request.tenant,
        adapter_digest=content_of(request.adapter_digest),
        waited_ms=round(request.waited_s * 1000),
        predicted_ms=max(1, round(request.predicted_s * 1000)) if request.predicted_s is not None else 0,
        reason=request.reason.code,
        text=request.reason.text,
    )
