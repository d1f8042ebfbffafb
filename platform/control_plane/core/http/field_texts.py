"""Sentences about faults of fields outside /v1, in the words of the API instead of Django REST framework's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rest_framework import serializers

# Maximum number of values of a choice that a fix lists.
MAX_CHOICES = 16
GUIDE = "/api/docs describes it."

# Python's names of JSON types, in the framework's messages.
_JSON_TYPES = {
    "NoneType": "null", "bool": "a boolean", "dict": "an object", "float": "a number", "int": "a number",
    "list": "an array", "str": "a string", "QueryDict": "a form",
}  # fmt: skip
_MISSING = "missing"
# A message of the framework, the end of a sentence about the value, and the fix without the field's name.
_TEXTS: Sequence[tuple[str, str, str]] = (
    (r"This field is required\.|No file was submitted\.", _MISSING, "Add"),
    (r"This field may not be null\.", "it is null", "Send a value for"),
    (r"This field may not be blank\.", "it is empty", "Send at least 1 character for"),
    (r"This (?:list|dictionary) may not be empty\.", "it is empty", "Send at least 1 item in"),
    (r"The submitted file is empty\.", "the file is empty", "Send a file with content as"),
    (r"No filename could be determined\.|The submitted data was not a file\..*", "it is not a file",
     "Send a part with a filename as"),
    (r"Ensure this filename has at most (\d+) characters .*", r"its filename is longer than \1 characters",
     "Send a shorter filename with"),
    (r"Not a valid string\.", "it is not a string", "Send a string for"),
    (r"A valid (?:big)?integer is required\.", "it is not a whole number", "Send a whole number for"),
    (r"A valid number is required\.", "it is not a number", "Send a number for"),
    (r"Integer value too large.*|String value too large\.", "it has too many digits", "Send a smaller number for"),
    (r"Must be a valid boolean\.", "it is not a boolean", "Send true or false for"),
    (r"Must be a valid UUID\.", "it is not an id", "Send the id as the API returned it for"),
    (r"Value must be valid JSON\.", "it is not JSON", "Send JSON for"),
    (r"Enter a valid email address\.", "it is not an email address", "Send an address such as ann@example.org for"),
    (r"Date has wrong format.*", "it is not a date", "Send a date such as 2026-11-25 for"),
    (r"Expected a date but got a datetime\.", "it is a time, not a date", "Send a date such as 2026-11-25 for"),
    (r"Datetime has wrong format.*", "it is not a time", "Send a time such as 2026-11-25T18:00:00Z for"),
    (r"Expected a datetime but got a date\.", "it is a date, not a time",
     "Send a time such as 2026-11-25T18:00:00Z for"),
    (r'Invalid datetime for the timezone "(.*)"\.', r"there is no such time in \1", "Send another time for"),
    (r"Datetime value out of range\.", "it is out of range", "Send another time for"),
    (r'"(.*)" is not a valid choice\.', r'it is "\1", which is not an allowed value', "Send an allowed value for"),
    (r'Expected a list of items but got type "(\w+)"\.', r"it is \1, not an array", "Send an array for"),
    (r'Expected a dictionary of items but got type "(\w+)"\.', r"it is \1, not an object", "Send an object for"),
    (r"Invalid data\. Expected a dictionary, but got (\w+)\.", r"it is \1, not an object", "Send an object for"),
    (r"Ensure this field has no more than (\d+) characters\.", r"it is longer than \1 characters",
     "Send a shorter text for"),
    (r"Ensure this field has at least (\d+) characters\.", r"it is shorter than \1 characters",
     "Send a longer text for"),
    (r"Ensure this field has no more than (\d+) elements\.", r"it holds more than \1 items",
     r"Send at most \1 items in"),
    (r"Ensure this field has at least (\d+) elements\.", r"it holds fewer than \1 items",
     r"Send at least \1 items in"),
    (r"Ensure this value is less than or equal to (.+)\.", r"it is more than the maximum \1",
     r"Send a number of at most \1 for"),
    (r"Ensure this value is greater than or equal to (.+)\.", r"it is less than the minimum \1",
     r"Send a number of at least \1 for"),
    (r"Null characters are not allowed\.", "it holds a NUL character", "Remove the character from"),
    (r"Surrogate characters are not allowed: (U\+\w+)\.", r"it holds \1, half of a surrogate pair",
     "Remove the character from"),
    (r"This value does not match the required pattern\.", "it does not have the required form", "Correct"),
)  # fmt: skip
_PATTERNS = [(re.compile(pattern, re.DOTALL), problem, fix) for pattern, problem, fix in _TEXTS]


class Fault(NamedTuple):
    """A field at fault, with what is wrong with it and what to do."""

    param: str | None
    message: str
    fix: str


def fault_of(detail: Any, serializer: serializers.BaseSerializer[Any] | None = None) -> Fault:
    """Return the first fault among a ValidationError's details.

    serializer: the serializer that found the faults; its choices are listed in the fix.
    """
    keys, text = _first(detail)
    param = _path(keys)
    name = f"'{param}'" if param else "the body"
    match = next((made for pattern in _PATTERNS if (made := _rewritten(*pattern, text)) is not None), None)
    if match is None:
        return Fault(param or None, f"Invalid value for {name}. {text}" if param else text, f"Correct {name}; {GUIDE}")
    problem, fix = match
    if problem == _MISSING:
        return Fault(param or None, f"Missing required field: {name}.", f"{fix} {name}.")
    choices = _choices(serializer, keys) if "allowed value" in fix else ""
    advice = f"{fix} {name}: {choices}." if choices else f"{fix} {name}."
    message = f"Invalid value for {name}: {problem}." if param else f"The body is not valid: {problem}."
    return Fault(param or None, message, advice)


def _rewritten(pattern: re.Pattern[str], problem: str, fix: str, text: str) -> tuple[str, str] | None:
    """Return the problem and the fix if the text has the pattern."""
    match = pattern.fullmatch(text)
    if match is None:
        return None
    groups = [_JSON_TYPES.get(group, group) if r"\1, not" in problem else group for group in match.groups()]
    fill = groups[0] if groups else ""
    return problem.replace(r"\1", fill), fix.replace(r"\1", fill)


def _first(detail: Any) -> tuple[list[str | int], str]:
    """Return the keys to the first fault, and its message."""
    if isinstance(detail, Mapping):
        key, inner = next((key, inner) for key, inner in detail.items() if inner)
        keys, text = _first(inner)
        return ([] if key == "non_field_errors" else [key]) + keys, text
    if isinstance(detail, list):
        index, inner = next((index, inner) for index, inner in enumerate(detail) if inner)
        keys, text = _first(inner)
        return ([index] if isinstance(inner, (Mapping, list)) else []) + keys, text
    return [], str(detail)


def _path(keys: Sequence[str | int]) -> str:
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def _choices(serializer: Any, keys: Sequence[str | int]) -> str:
    """Return the allowed values of the field that the keys lead to, or "" if it is unknown or has too many."""
    field = serializer
    for key in keys:
        named = getattr(field, "fields", {}).get(key) if isinstance(key, str) else None
        field = named or getattr(field, "child", None)
    values = [value for value in getattr(field, "choices", ()) if value != ""]
    return ", ".join(map(str, values)) if len(values) <= MAX_CHOICES else ""
