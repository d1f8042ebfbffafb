"""Sentences about faults of request bodies, in the words of the API instead of pydantic's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from control_plane.core.chats import FUNCTION_NAME

# Tags of union members that have an alternative of another type: see `unions.py`.
TEXT, WORD = "<text>", "<word>"
# Maximum number of characters of a string that an error repeats.
MAX_SHOWN = 40
GUIDE = "The API guide lists the allowed values."
NAME_PATTERN = "^[a-zA-Z0-9_-]+$"

# The JSON type that a value must have, by the type of pydantic's error.
EXPECTED_TYPES = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_type": "an object",
    "string_type": "a string",
}
PATTERNS = {
    NAME_PATTERN: "letters, digits, underscores and hyphens",
    f"^{FUNCTION_NAME}$": "1 to 64 letters, digits, underscores and hyphens",
}
_JSON_TYPES: Mapping[type, str] = {bool: "a boolean", dict: "an object", float: "a number", int: "a number",
                                   list: "an array", str: "a string", type(None): "null"}  # fmt: skip


def is_type_fault(item: ErrorDetails) -> bool:
    """Return whether the value has a type that is not allowed; false for an allowed type with a wrong value."""
    return item["type"] in EXPECTED_TYPES


def texts(items: Sequence[ErrorDetails], name: str) -> tuple[str, str]:
    """Return the end of a sentence about a faulty value, and the fix.

    items: one fault; or, for a union, a type fault of each member. name: the parameter's path in quotes.
    """
    first = items[0]
    if is_type_fault(first):
        expected = " or ".join(dict.fromkeys(EXPECTED_TYPES[item["type"]] for item in items if is_type_fault(item)))
        if first["type"] == "string_type" and first["loc"][-1] == TEXT:
            expected += " or an array"
        return f"it is {_shown(first['input'])}, not {expected}", f"Send {expected} for {name}."
    texts_of = _TEXTS.get(first["type"])
    return texts_of(first, name) if texts_of else ("it is not allowed", GUIDE)


def _shown(value: object) -> str:
    """Return a short scalar as JSON, and the type of any other value."""
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"a string of {len(value)} characters"
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value, ensure_ascii=False)
    return _JSON_TYPES.get(type(value), "a value")


def _custom(item: ErrorDetails, _name: str) -> tuple[str, str]:
    """Split the text of a ``ValueError``: by convention, the fix follows the last semicolon."""
    problem, _, fix = str(_context(item)["error"]).rpartition("; ")
    return (problem, f"{fix[:1].upper()}{fix[1:]}.") if problem else (fix, GUIDE)


def _literal(item: ErrorDetails, name: str) -> tuple[str, str]:
    expected = str(_context(item)["expected"])
    if "'" not in expected:  # booleans as JSON writes them
        expected = expected.lower()
    one_of = "one of " if " or " in expected else ""
    more = ", or an object" if item["loc"][-1] == WORD else ""
    return f"it is {_shown(item['input'])}, not {one_of}{expected}{more}", f"Send {expected}{more} for {name}."


def _null(item: ErrorDetails, name: str) -> tuple[str, str]:
    return f"it is {_shown(item['input'])}; only null is allowed here", f"Leave {name} out."


def _bound(key: str, problem: str, advice: str) -> Callable[[ErrorDetails, str], tuple[str, str]]:
    def made(item: ErrorDetails, name: str) -> tuple[str, str]:
        bound = _number(_context(item)[key])
        return f"it is {_number(item['input'])}, {problem} {bound}", f"Send a number {advice} {bound} for {name}."

    return made


def _short_string(item: ErrorDetails, name: str) -> tuple[str, str]:
    return _too_few(len(item["input"]), _context(item)["min_length"], "character", name)


def _long_string(item: ErrorDetails, name: str) -> tuple[str, str]:
    most = _context(item)["max_length"]
    return f"it is {len(item['input'])} characters long; the limit is {most}", f"Send a shorter string for {name}."


def _short_container(item: ErrorDetails, name: str) -> tuple[str, str]:
    return _too_few(len(item["input"]), _context(item)["min_length"], _part_of(item["input"]), name)


def _long_container(item: ErrorDetails, name: str) -> tuple[str, str]:
    most, part = _context(item)["max_length"], _part_of(item["input"])
    if most == 0:
        return f"it holds {_counted(len(item['input']), part)}; none is allowed here", f"Leave {name} out."
    return (
        f"it holds {_counted(len(item['input']), part)}; the limit is {most}",
        f"Send at most {_counted(most, part)} in {name}.",
    )


def _pattern(item: ErrorDetails, name: str) -> tuple[str, str]:
    allowed = PATTERNS.get(_context(item)["pattern"], "the characters that the API guide lists")
    return f"it is {_shown(item['input'])}; a name here is made of {allowed}", f"Send such a name for {name}."


def _too_few(count: int, least: int, part: str, name: str) -> tuple[str, str]:
    what = "it is empty" if not count else f"it holds {_counted(count, part)}; at least {least} are needed"
    return what, f"Send at least {_counted(least, part)} {'for' if part == 'character' else 'in'} {name}."


def _part_of(container: object) -> str:
    return "entry" if isinstance(container, Mapping) else "item"


def _counted(count: int, part: str) -> str:
    if count == 1:
        return f"1 {part}"
    return f"{count} {part.removesuffix('y')}ies" if part.endswith("y") else f"{count} {part}s"


def _number(value: object) -> str:
    return re.sub(r"\.0$", "", str(value))


def _context(item: ErrorDetails) -> Mapping[str, Any]:
    return item.get("ctx", {})


_TEXTS: Mapping[str, Callable[[ErrorDetails, str], tuple[str, str]]] = {
    "greater_than": _bound("gt", "which is not more than", "above"),
    "greater_than_equal": _bound("ge", "less than the minimum", "of at least"),
    "less_than": _bound("lt", "which is not less than", "below"),
    "less_than_equal": _bound("le", "more than the maximum", "of at most"),
    "literal_error": _literal,
    "none_required": _null,
    "string_pattern_mismatch": _pattern,
    "string_too_long": _long_string,
    "string_too_short": _short_string,
    "too_long": _long_container,
    "too_short": _short_container,
    "value_error": _custom,
}
# Types of pydantic's errors that this module has a sentence for.
KNOWN_ERRORS = frozenset({*_TEXTS, *EXPECTED_TYPES})
