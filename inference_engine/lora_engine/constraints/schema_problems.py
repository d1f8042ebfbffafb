"""Problems of a JSON Schema are located in it: llguidance's messages name keywords, not places."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .constraint import ConstraintError

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema")  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")

_INSTEAD = {
    "not": "Enforced are opposites of types, constants, enums, bounds and required keys; say what is allowed instead.",
    "if": "Let it test constants, enums, types, bounds and required keys only, or use anyOf with one schema per case.",
    "uniqueItems": "Give the items an enum of at most four values, or leave it out and check the answer.",
    "oneOf": "Use anyOf, or give each branch a required property with its own const.",
    "dependencies": "Use fewer at one place: the cases multiply. Or use anyOf with one schema per case.",
    "dependentRequired": "Use fewer at one place: the cases multiply. Or use anyOf with one schema per case.",
    "dependentSchemas": "Use fewer at one place: the cases multiply. Or use anyOf with one schema per case.",
    "propertyNames": "Use one pattern, one enum or one length, or patternProperties with additionalProperties false.",
    "contains": "Put the item first with prefixItems, or make it a property of its own.",
    "unevaluatedProperties": "List all properties in one place with additionalProperties.",
    "unevaluatedItems": "List all items in one place with prefixItems and items.",
    "$dynamicRef": "Use $ref.",
}
_LEAVE_OUT = 'Leave it out, or send the schema without "strict": true: keywords that cannot be enforced are ignored.'


def explain(schema: dict[str, Any], error: str) -> ConstraintError:
    """Explain llguidance's ``error`` about ``schema``, with the first place that it concerns."""
    error = first_line(error)
    for pattern, describe in _KNOWN:
        if match := re.search(pattern, error, re.DOTALL):
            return describe(schema, match)
    return ConstraintError(f"The schema cannot be enforced: {error[:300].rstrip('.')}.", "Simplify the schema.")


def first_line(error: str) -> str:
    """Return llguidance's message without the parser's state that it may append."""
    return " ".join(re.split(r"<(?:state|non-verbose)\b", error)[0].split()).rstrip(".")


def subschemas(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema in ``schema`` with its path, outermost first."""
    pending = deque([(path, schema)])
    while pending:
        at, node = pending.popleft()
        if not isinstance(node, dict):
            continue
        yield at, node
        for keyword in _ONE:
            pending.append((_join(at, keyword), node.get(keyword)))
        for keyword in _LISTS:
            if isinstance(branches := node.get(keyword), list):
                pending += [(f"{_join(at, keyword)}[{index}]", branch) for index, branch in enumerate(branches)]
        for keyword in _NAMED:
            if isinstance(named := node.get(keyword), dict):
                pending += [(_join(_join(at, keyword), name), one) for name, one in named.items()]


def leave_out(message: str, path: str, keyword: str) -> ConstraintError:
    """Return the error of a keyword that cannot be enforced at its place."""
    return ConstraintError(message, _LEAVE_OUT, _join(path, keyword))


def not_enforced(path: str, keyword: str) -> ConstraintError:
    """Return the error of a keyword that neither a grammar enforces nor the check of finished answers judges here."""
    return ConstraintError(f'The keyword "{keyword}" cannot be enforced here.', _instead(keyword), path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _find(schema: dict[str, Any], holds: Callable[[dict[str, Any]], bool]) -> str | None:
    return next((path for path, node in subschemas(schema) if holds(node)), None)


def _unimplemented(schema: dict[str, Any], match: re.Match[str]) -> ConstraintError:
    keyword = json.loads(match[1])[0]
    place = _find(schema, lambda node: keyword in node)
    path = keyword if place is None else _join(place, keyword)
    return ConstraintError(f'The keyword "{keyword}" is not supported.', _instead(keyword), path)


def _overlapping_one_of(schema: dict[str, Any], _match: re.Match[str]) -> ConstraintError:
    place = _find(schema, lambda node: "oneOf" in node)
    message = 'The branches of "oneOf" are not clearly exclusive.'
    return ConstraintError(message, _instead("oneOf"), _join(place or "", "oneOf"))


def _bad_pattern(schema: dict[str, Any], match: re.Match[str]) -> ConstraintError:
    place = _find(schema, lambda node: isinstance(node.get("pattern"), str) and node["pattern"] in match[0])
    message = f"A pattern cannot be used: {match[2].strip()[:200].rstrip('.')}."
    fix = "Write it without look-around and back-references."
    return ConstraintError(message, fix, "" if place is None else _join(place, "pattern"))


def _bad_reference(schema: dict[str, Any], match: re.Match[str]) -> ConstraintError:
    target = match[1]
    place = _find(schema, lambda node: isinstance(node.get("$ref"), str) and node["$ref"].endswith(target))
    message = f'Nothing is found under the reference "{target[:200]}".'
    fix = "Define it in the schema's $defs; other documents are not fetched."
    return ConstraintError(message, fix, _join(place or "", "$ref"))


def _invalid_type(schema: dict[str, Any], match: re.Match[str]) -> ConstraintError:
    place = _find(schema, lambda node: match[1] in node["type"] if isinstance(node.get("type"), str | list) else False)
    message = f'"{match[1][:100]}" is no type of JSON.'
    fix = "Use string, number, integer, boolean, object, array or null."
    return ConstraintError(message, fix, _join(place or "", "type"))


def _instead(keyword: str) -> str:
    return f"{_INSTEAD[keyword]} {_LEAVE_OUT}" if keyword in _INSTEAD else _LEAVE_OUT


_KNOWN: tuple[tuple[str, Callable[[dict[str, Any], re.Match[str]], ConstraintError]], ...] = (
    (r"Unimplemented keys: (\[.*?\])", _unimplemented),
    (r"oneOf constraints are not supported", _overlapping_one_of),
    (r"regex parse error:(.*)error: (.*)", _bad_pattern),
    (r"Pointer '([^']*)' does not exist", _bad_reference),
    (r"Resource '([^']*)' is not present", _bad_reference),
    (r"Invalid type: (\S+)", _invalid_type),
)
