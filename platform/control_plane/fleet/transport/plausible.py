"""What a host may say of itself and of requests: whatever else it says is not believed.

Hosts are machines of their own, and one whose credential was stolen says what it likes. Its numbers and texts are
written to the database, and summed there with those of others: a row that cannot be stored would hold up theirs.
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from control_plane.fleet.transport.errors import HostError
from lora_engine.wire import engine_pb2 as pb

LARGEST_UINT32 = (1 << 31) - 1
LARGEST_UINT64 = (1 << 63) - 1
LARGEST_FLOAT = 1e15
LONGEST_TEXT = 20_000
# Of one request; what they are added up in holds more of them than there will be.
_LARGEST = {
    "device_us": 10**13,
    "prompt_tokens": 1 << 26,
    "cached_prompt_tokens": 1 << 26,
    "completion_tokens": 1 << 26,
}
_MOST_TOKENS = 1 << 17  # where a request names no bound
_BYTES_PER_TOKEN, _BYTES_PER_LOGPROB = 256, 128
_MOST_OF_TEMPLATE = 1 << 16
_MOST_BESIDE = 1 << 20
IMPLAUSIBLE = "engine_implausible"
# As long as the columns that hold them.
_LONGEST = {
    "boot_id": 64,
    "base_digest": 71,
    "digest": 71,
    "adapters_gone": 71,
    "ahead": 64,
    "behind": 64,
    "request_id": 64,
    "adapter_loaded_from": 8,
}
# What a model wrote or was asked: every character may be in it, and whoever stores it takes NUL out.
_OF_MODELS = frozenset({"prompt", "base_tokens", "adapter_tokens"})
_FINGERPRINTS = FieldDescriptor.TYPE_FIXED64  # any 64 bits


def require_plausible(host: str, message: Message) -> None:
    """Raises ``HostError`` for numbers and texts that nothing which counts and is stored can be."""
    for field, value in message.ListFields():
        if field.type == _FINGERPRINTS:
            continue
        if isinstance(value, Message):
            require_plausible(host, value)
        elif _is_many(value):
            for one in value.items() if hasattr(value, "items") else _extremes(field, value):
                _require(host, field, one)
        else:
            _require(host, field, value)


def _extremes(field: FieldDescriptor, values: Any) -> Any:
    """Of many numbers, of which there may be a million, those that decide for all."""
    return (max(values),) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT32 else values


def _is_many(value: Any) -> bool:
    return not isinstance(value, str | bytes | int | float)


def _require(host: str, field: FieldDescriptor, value: Any) -> None:
    if isinstance(value, Message):
        require_plausible(host, value)
    elif isinstance(value, tuple):  # of a map
        for one in value:
            _require(host, field, one)
    elif not _is_plausible(field, value):
        raise implausible(host, f"{field.name} is {str(value)[:50]!r}")


def _is_plausible(field: FieldDescriptor, value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST.get(field.name, LONGEST_TEXT) and ("\0" not in value or field.name in _OF_MODELS)
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= LARGEST_FLOAT
    if field.enum_type is not None:
        return value in field.enum_type.values_by_number
    if isinstance(value, int):
        most = LARGEST_UINT64 if field.type == FieldDescriptor.TYPE_UINT64 else LARGEST_UINT32
        return value <= _LARGEST.get(field.name, most)
    return True


def most_output_tokens(submit: pb.Submit) -> int:
    """Of all its choices."""
    return (submit.sampling.max_tokens or _MOST_TOKENS) * max(1, submit.sampling.n)


def most_prompt_tokens(submit: pb.Submit) -> int:
    """A token is a byte at least; a chat template adds words of its own."""
    return submit.ByteSize() + _MOST_OF_TEMPLATE


def most_bytes(submit: pb.Submit) -> int:
    """That deltas of an answer have together, with all that the request asks for beside it: generously counted."""
    sampling = submit.sampling
    each = _BYTES_PER_TOKEN + (_BYTES_PER_LOGPROB * (1 + sampling.top_logprobs) if sampling.logprobs else 0)
    answer = most_output_tokens(submit) * each
    told = _BYTES_PER_LOGPROB * (2 + submit.prompt_logprobs) if submit.HasField("prompt_logprobs") else 16
    return _MOST_BESIDE * (1 + len(submit.more_prompts)) + answer + submit.ByteSize() * told


def implausible(host: str, what: str) -> HostError:
    return HostError(
        IMPLAUSIBLE,
        f"Engine host {host} answered what no engine answers.",
        "Send the request again. The operator should see whether that host is as it should be, or revoke it.",
        retry_after_s=1.0,
        detail=what,
    )
