"""Bounds of what a host may report about itself and about requests; other reports are refused as implausible.

A host whose credential was stolen can send anything. Its numbers and texts are stored in the database and summed with
those of other hosts, and one value that cannot be stored would block them.
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from control_plane.fleet.transport.errors import HostError
from lora_engine.wire import engine_pb2 as pb

MAX_UINT32 = (1 << 31) - 1
MAX_UINT64 = (1 << 63) - 1
MAX_FLOAT = 1e15
# Characters of a text whose field has no bound of its own.
MAX_TEXT = 20_000
# Largest values of one request. The columns that they are summed in cannot overflow with these.
_MAX_VALUES = {
    "device_us": 10**13,
    "prompt_tokens": 1 << 26,
    "cached_prompt_tokens": 1 << 26,
    "completion_tokens": 1 << 26,
    "drafted_tokens": 1 << 30,
    "accepted_tokens": 1 << 26,
}
# Output tokens of a request without a bound of its own.
_MAX_TOKENS = 1 << 17
# Bytes that a token and a log probability take in an answer at most.
_BYTES_PER_TOKEN, _BYTES_PER_LOGPROB = 256, 128
# Tokens that a chat template adds to a prompt at most.
_MAX_TEMPLATE_TOKENS = 1 << 16
# Maximum bytes of an answer besides its tokens, such as an embedding.
_MAX_OTHER_BYTES = 1 << 20
IMPLAUSIBLE = "engine_implausible"
# Maximum number of characters of texts, as long as their database columns.
_MAX_LENGTHS = {
    "boot_id": 64,
    "base_digest": 71,
    "digest": 71,
    "adapters_gone": 71,
    "ahead": 64,
    "behind": 64,
    "request_id": 64,
    "adapter_loaded_from": 8,
}
# Fields with text of models or prompts: they may contain any character, and the code that stores them removes NUL.
_MODEL_TEXT = frozenset({"prompt", "base_tokens", "adapter_tokens"})
_FINGERPRINTS = FieldDescriptor.TYPE_FIXED64  # any 64 bits


def require_plausible(host: str, message: Message) -> None:
    """Raise ``HostError`` if a message has numbers or texts that no working host reports or that cannot be stored."""
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
    """Return the values that decide for all: of many integers, of which there may be a million, the largest."""
    return (max(values),) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT32 else values


def _is_many(value: Any) -> bool:
    return not isinstance(value, str | bytes | int | float)


def _require(host: str, field: FieldDescriptor, value: Any) -> None:
    if isinstance(value, Message):
        require_plausible(host, value)
    elif isinstance(value, tuple):  # an item of a map
        for one in value:
            _require(host, field, one)
    elif not _is_plausible(field, value):
        raise implausible(host, f"{field.name} is {str(value)[:50]!r}")


def _is_plausible(field: FieldDescriptor, value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_LENGTHS.get(field.name, MAX_TEXT) and ("\0" not in value or field.name in _MODEL_TEXT)
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= MAX_FLOAT
    if field.enum_type is not None:
        return value in field.enum_type.values_by_number
    if isinstance(value, int):
        most = MAX_UINT64 if field.type == FieldDescriptor.TYPE_UINT64 else MAX_UINT32
        return value <= _MAX_VALUES.get(field.name, most)
    return True


def most_output_tokens(submit: pb.Submit) -> int:
    """Return the largest number of output tokens of all choices of a request."""
    return (submit.sampling.max_tokens or _MAX_TOKENS) * max(1, submit.sampling.n)


def most_prompt_tokens(submit: pb.Submit) -> int:
    """Return the largest number of prompt tokens: a token has at least a byte, and a chat template adds some."""
    return submit.ByteSize() + _MAX_TEMPLATE_TOKENS


def max_bytes(submit: pb.Submit) -> int:
    """Return the largest plausible size of all deltas of an answer, with everything that the request includes."""
    sampling = submit.sampling
    each = _BYTES_PER_TOKEN + (_BYTES_PER_LOGPROB * (1 + sampling.top_logprobs) if sampling.logprobs else 0)
    answer = most_output_tokens(submit) * each
    per_byte = _BYTES_PER_LOGPROB * (2 + submit.prompt_logprobs) if submit.HasField("prompt_logprobs") else 16
    return _MAX_OTHER_BYTES * (1 + len(submit.more_prompts)) + answer + submit.ByteSize() * per_byte


def implausible(host: str, what: str) -> HostError:
    return HostError(
        IMPLAUSIBLE,
        f"Engine host {host} sent a reply that no working engine sends.",
        "Send the request again. The operator should check that host, or revoke its credential.",
        retry_after_s=1.0,
        detail=what,
    )
