"""Untrusted JSON is parsed with a bounded depth, no duplicate keys, no NaN, and only one exception."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

# Levels to which JSON may be nested.
MAX_DEPTH = 64


class StrictJsonError(Exception):
    """The bytes are not JSON, or not JSON that every reader understands alike."""


def load_strict(data: bytes) -> Any:
    """Parse UTF-8 JSON. Raises ``StrictJsonError`` and nothing else."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except StrictJsonError:
        raise
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise StrictJsonError("it is nested too deeply") from None
    except ValueError:  # an integer of more than 4300 digits
        raise StrictJsonError("it holds a number that is too long") from None
    # The parser's stack may allow more levels than code that prints or copies the value.
    if _is_deeper(value, MAX_DEPTH):
        raise StrictJsonError("it is nested too deeply")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise StrictJsonError(f"the key {key[:80]!r} appears twice")
        result[key] = value
    return result


def _refuse_constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is not a JSON number")
