"""JSON as it goes to clients: compact, and text as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ENTRIES_AT_ONCE = 256


def encode_large(value: Any) -> str:
    """As ``encode``, for a thread of its own: in pieces, between which other threads have their turn."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for index, (name, item) in enumerate(value.items()):
            yield f"{',' if index else '{'}{encode(name)}:"
            yield from _pieces(item)
        yield "}" if value else "{}"
    elif isinstance(value, list) and len(value) > _ENTRIES_AT_ONCE:
        for start in range(0, len(value), _ENTRIES_AT_ONCE):
            yield ("," if start else "[") + encode(value[start : start + _ENTRIES_AT_ONCE])[1:-1]
        yield "]"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _pieces(item) if isinstance(item, dict) else (encode(item),)
        yield "]" if value else "[]"
    else:
        yield encode(value)
