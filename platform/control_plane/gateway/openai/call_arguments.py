"""Arguments of tool calls in requests, including calls that the end of an answer cut off."""

from __future__ import annotations

import json
import re
from typing import Any

from control_plane.core.http.json_body import DEPTH

# The incomplete start of a member or an item, after the last position at which the text could have been closed.
_LITERAL = r"(?:-?\d*(?:\.\d*)?(?:[eE][-+]?\d*)?|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?)"
_STRING = r'"(?:[^"\\]|\\.)*+'
_BEGUN = {
    "}": re.compile(rf'\s*(?:,\s*)?(?:{_STRING}(?:\\|"\s*(?::\s*{_LITERAL})?)?)?', re.DOTALL),
    "]": re.compile(rf"\s*(?:,\s*)?{_LITERAL}"),
}
_TOKENS = re.compile(rf'{_STRING}(?P<end>"|\\?\Z)|[{{}}\[\],]', re.DOTALL)
# A string up to its last whole character: without half an escape, or half a surrogate pair.
_WHOLE_CHARACTERS = re.compile(
    r'"(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+',
    re.DOTALL,
)
_CLOSING = {"{": "}", "[": "]"}


def complete_arguments(text: str) -> str | None:
    """Return the text of a JSON object: ``text`` itself, or the complete part of an object that ``text`` cuts off.

    Some clients send an empty text for no arguments. Returns None if ``text`` is not the beginning of a JSON object.
    """
    if not text.strip():
        return "{}"
    if _object(text, strict=True) is not None:
        return text.strip()
    value = _object(text)
    if value is None:
        value = _cut_object(text)
    return None if value is None else json.dumps(value)


def _cut_object(text: str) -> dict[str, Any] | None:
    """Parse a cut object with its open string, lists and objects closed; a member without a value is left out."""
    open_: list[str] = []
    safe, string = 0, -1  # the last position at which the text could be closed; where an unclosed string begins
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in _CLOSING:
            open_.append(_CLOSING[token])
            safe = match.end()
            if len(open_) > DEPTH:
                return None
        elif token in ("}", "]"):
            if not open_ or open_.pop() != token:
                return None
            safe = match.end()
        elif token == ",":
            safe = match.start()
        elif match["end"] != '"':
            string = match.start()
    closing = "".join(reversed(open_))
    if not closing:
        return None
    whole = _WHOLE_CHARACTERS.match(text, string) if string >= 0 else None
    value = _object(text + closing if whole is None else text[: whole.end()] + '"' + closing)
    if value is None and _BEGUN[closing[0]].fullmatch(text, safe):
        return _object(text[:safe] + closing)
    return value


def _object(text: str, *, strict: bool = False) -> dict[str, Any] | None:
    """Parse a JSON object, or return None. ``strict`` refuses control characters in strings."""
    try:
        value = json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
