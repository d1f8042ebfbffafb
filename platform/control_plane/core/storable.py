"""Texts that every database can store. PostgreSQL rejects NUL and halves of surrogate pairs, which models, adapters'
files and hosts may contain.
"""

from __future__ import annotations

from typing import Any


def storable(value: Any) -> Any:
    """Return JSON with a replacement character for each NUL, and "?" for each half of a surrogate pair."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value
