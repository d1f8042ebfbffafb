"""The JSON reader for everything from outside: REST, /v1 and websocket messages.

It is stricter than `json.loads`, which accepts NaN, duplicate keys, halves of surrogate pairs and any depth. A value
that passes can be hashed, encoded and echoed, and is small enough to be checked on the event loop.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any, NoReturn

from control_plane.core.errors import LorikeetError

DEPTH = 64  # levels of nesting
# Values of one body: room for the token ids of several full contexts.
VALUES = 1 << 19
# Objects and arrays of one body.
CONTAINERS = 1 << 14
# Members of all objects together. Creating them takes ten milliseconds, in which the event loop serves nothing else.
MEMBERS = 1 << 14
# Members that one object may have.
KEYS = 2048
# Quotation marks that are split at once. An even number, so that each batch begins outside of strings.
QUOTES_AT_ONCE = 1 << 13

_LONG_NUMBER = re.compile(r"[0-9]{19}")


class JsonError(LorikeetError):
    """A body that is not acceptable JSON. `message` completes "The body …"."""

    def __init__(self, message: str, fix: str = "Send one JSON object.") -> None:
        super().__init__("malformed_json", f"The body {message}.", fix)


def read_object(body: bytes | str, *, nul: bool = False) -> dict[str, Any]:
    """Return the body's JSON object. Raises JsonError.

    nul: allow NUL characters in strings, which PostgreSQL rejects: for text that goes to an engine only.
    """
    value = read_value(body, nul=nul)
    if not isinstance(value, dict):
        raise JsonError(f"is a JSON {_NAMES.get(type(value), 'value')}, not an object")
    return value


def read_value(body: bytes | str, *, nul: bool = False) -> Any:
    """Return the body's JSON value of any type. Raises JsonError."""
    if isinstance(body, bytes):
        body = _decode(body)
    if not body.strip():
        raise JsonError("is empty")
    _bound(body)
    try:
        value = (_CAREFUL if _LONG_NUMBER.search(body) else _DECODER).decode(body)
    except RecursionError:
        _too_deep()
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise JsonError(f"is not valid JSON: {syntax_problem(error)} at {place}") from None
    if body.count("[") + body.count("{") > DEPTH:
        _bound_depth(value)
    # Half pairs and NUL can only come as escapes: unescaped they are not valid UTF-8 and JSON.
    if "\\" in body and _SUSPECT.search(body):
        _check_strings(value, nul=nul)
    return value


# Python's messages of JSON errors, and what they mean.
_PROBLEMS = {
    "Expecting value": "a value is expected",
    "Expecting property name enclosed in double quotes": "a name in double quotes is expected",
    "Expecting ':' delimiter": "a colon is expected",
    "Expecting ',' delimiter": "a comma or an end is expected",
    "Extra data": "more follows after the end",
    "Illegal trailing comma before end of array": "a comma stands before the end of an array",
    "Illegal trailing comma before end of object": "a comma stands before the end of an object",
    "Invalid \\escape": "there is an unknown escape",
    "Invalid \\uXXXX escape": "there is an incomplete escape",
    "Invalid control character at": "there is a control character in a string",
    "Unterminated string starting at": "there is a string without end",
}


def syntax_problem(error: json.JSONDecodeError) -> str:
    """Return the end of a sentence about text that is not JSON, instead of Python's words."""
    return next((text for start, text in _PROBLEMS.items() if error.msg.startswith(start)), "there is a syntax error")


_SUSPECT = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_NAMES = {list: "array", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def _decode(body: bytes) -> str:
    if body.startswith(BOM_UTF8):
        raise JsonError("begins with a byte order mark", "Send UTF-8 without one.")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise JsonError("is not UTF-8", "Encode it as UTF-8.") from None


def _bound(text: str) -> None:
    """Raise JsonError, before the values are created, for more of them than any endpoint accepts."""
    # Prose and code may hold as many commas and braces as they like.
    if _holds_too_much(text) and _holds_too_much_outside_strings(text):
        raise JsonError(
            f"holds more than {VALUES} values, {MEMBERS} of objects, or {CONTAINERS} objects and arrays",
            "Send it as several requests.",
        )


def _holds_too_much_outside_strings(text: str) -> bool:
    """Return True as soon as the limits are exceeded outside of strings. The result is undefined for invalid JSON."""
    if "\\" in text:  # pairs first: a backslash that remains after them escapes the next character
        text = text.replace("\\\\", "").replace('\\"', "")
    outside = ""
    while text and not _holds_too_much(outside):
        parts = text.split('"', QUOTES_AT_ONCE)
        text = parts.pop() if len(parts) > QUOTES_AT_ONCE else ""
        outside += "".join(parts[::2])
    return _holds_too_much(outside)


def _holds_too_much(text: str) -> bool:
    return text.count(",") > VALUES or text.count(":") > MEMBERS or text.count("[") + text.count("{") > CONTAINERS


def _bound_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else _items(container))
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    _too_deep()


def _items(container: object) -> Sequence[object]:
    return container if isinstance(container, list) else ()


def _too_deep() -> NoReturn:
    raise JsonError(f"is nested more than {DEPTH} levels deep", "Send a flatter object.") from None


def _check_strings(value: object, *, nul: bool) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _check_string(item, nul=nul)
        elif isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item


def _check_string(text: str, *, nul: bool) -> None:
    if "\0" in text and not nul:
        raise JsonError("holds a NUL character", "Leave it out.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonError(
            "holds half of a surrogate pair, which is no character",
            "Escape a character beyond U+FFFF as both halves of its pair, or send it as UTF-8.",
        ) from None


def _whole_number(digits: str) -> int:
    # No number of 64 bits has more than 20 characters, and JSON has no leading zeros.
    if len(digits) > 20 or not -(1 << 63) <= (number := int(digits)) < 1 << 64:
        raise JsonError(f"holds the number {digits[:24]}…, beyond 64 bits", "Send a smaller number.")
    return number


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError(f"holds the number {text[:24]}, which is too large", "Send a smaller number.")
    return number


def _constant(name: str) -> NoReturn:
    raise JsonError(f"holds {name}, which is not JSON", "Send a number, or leave it out.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > KEYS:
        raise JsonError(f"holds an object with more than {KEYS} keys", "Send fewer keys.")
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonError(f"names {json.dumps(twice)[:60]} twice in one object", "Name it once.")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
# Calls a function for each number, so it is used only where a number may be too long.
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole_number, parse_float=_number, parse_constant=_constant
)
