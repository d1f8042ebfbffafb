"""Conversion of wire messages to the JSON that host rows keep.

The fields are those of `engine.proto`. Of a host's status, those with the option `shown` are figures of the host pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from lora_engine.wire import engine_pb2 as pb

# Loads that bring an adapter one tier nearer to the device, from the nearest.
LOADS = tuple(field.name for field in pb.LoadTimes.DESCRIPTOR.fields)
# Added tokens that are stored of one tokenizer; an engine with more reports none.
MAX_ADDED_TOKENS = 2048
_SHOWN: Any = pb.shown
SHOWN = tuple(field for field in pb.HostStatus.DESCRIPTOR.fields if field.GetOptions().Extensions[_SHOWN])
# Adapters have rows (`host_adapters.py`); the rest is for the choice of a host only.
_NOT_STORED = frozenset(
    {
        *("boot_id", "adapters", "adapters_gone", "adapters_sum", "prefixes"),
        *("input_tokens", "output_tokens", "service", "first_token_s"),
    }
)


def message_json(message: Message, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return a message's fields by name, but for those ``without``; a message that is not set is None."""
    fields = [field for field in message.DESCRIPTOR.fields if field.name not in without]
    return {field.name: _value(message, field, without) for field in fields}


def description_json(description: pb.EngineDescription) -> dict[str, Any]:
    """Return an engine's description; adapters are validated against its ``geometry``."""
    data = message_json(description, frozenset({"boot_id"}))
    return {
        **data,
        "added_tokens": data["added_tokens"][:MAX_ADDED_TOKENS],
        "geometry": message_json(description.geometry),
    }


def status_json(status: pb.HostStatus) -> dict[str, Any]:
    """Return what the database keeps of a heartbeat."""
    return message_json(status, _NOT_STORED)


def shown_figures(status: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the host pages in a stored status, which is empty before the first heartbeat."""
    return {field.name: status.get(field.name, field.default_value) for field in SHOWN}


def _value(message: Message, field: Any, without: frozenset[str]) -> Any:
    value = getattr(message, field.name)
    if isinstance(value, Message):
        return message_json(value, without) if message.HasField(field.name) else None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        # A float has seven digits; those that its conversion to a double adds say nothing.
        return float(f"{value:.7g}") if field.type == FieldDescriptor.TYPE_FLOAT else value
    return [message_json(each, without) if isinstance(each, Message) else each for each in value]
