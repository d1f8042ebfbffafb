"""JSON for clients: compact, with text that is not escaped to ASCII."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# List entries that one call of the encoder writes: bounds how long it holds the GIL.
_ENTRIES_PER_CALL = 256


def encode_large(value: Any) -> str:
    """Encode like ``encode``, but in pieces, so that other threads run between them. For use on a worker thread."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for index, (name, item) in enumerate(value.items()):
            yield f"{',' if index else '{'}{encode(name)}:"
            yield from _pieces(item)
        yield "}" if value else "{}"
    elif isinstance(value, list) and len(value) > _ENTRIES_PER_CALL:
        for start in range(0, len(value), _ENTRIES_PER_CALL):
            yield ("," if start else "[") + encode(value[start : start + _ENTRIES_PER_CALL])[1:-1]
        yield "]"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield "," if index else "["
            yield from _pieces(item) if isinstance(item, dict) else (encode(item),)
        yield "]" if value else "[]"
    else:
        yield encode(value)
