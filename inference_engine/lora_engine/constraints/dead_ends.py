"""Dead ends are parts of a JSON Schema that llguidance accepts although an answer can get stuck in them.

llguidance refuses a string, a range of integers or a list that nothing fits. It does not check the following, so
schemas are changed before it compiles them (``close_dead_ends``). Keys of ``patternProperties``: it subtracts the names
of ``properties`` from each pattern, and if nothing is left, an answer dies after the comma at which such a key would
begin. A pattern that only these names match means the same as properties of these names, and becomes that. Numbers with
a range and a fraction as ``multipleOf``: its expressions for both may have nothing in common. References that lead back
to themselves without an end: such a part is removed, as nothing fits it. Keys that a pattern or
``additionalProperties`` allows more than once, which ``minProperties`` counts each time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from .constraint import ConstraintError
from .library import door_tokenizer, load_library, parser_limits
from .schema_problems import leave_out, subschemas

Schema = dict[str, Any]

# Passes over a schema whose references depend on each other; only chains made for it need more.
_MAX_PASSES = 50
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_CONTAINERS = frozenset(("object", "array"))
# Maximum numbers of patterns and of names of one schema. Each pattern is compiled together with the names.
_MAX_PATTERNS, _MAX_NAMES = 200, 500
# Maximum number of conjunctions that are followed through references.
_MAX_CONJUNCTS = 100


def close_dead_ends(schema: Schema, *, best_effort: bool) -> None:
    """Change ``schema`` so that no answer gets stuck in it. Raises ``ConstraintError`` where that is not possible.

    ``best_effort``: leave such keywords out instead.
    """
    if '"$ref"' in json.dumps(schema):
        _take_out_endless(schema)
    nodes = list(subschemas(schema))
    _name_patterns([node for _, node in nodes])
    for path, node in nodes:
        if "multipleOf" in node or "allOf" in node:
            _check_multiples(schema, path, node, best_effort=best_effort)
        if "minProperties" in node:
            _check_least_properties(path, node, best_effort=best_effort)


# References without an end.


def _take_out_endless(schema: Schema) -> None:
    nodes, targets = _reachable(schema)
    ends: set[int] = set()

    def can_end(node: object) -> bool:
        return id(node) in ends if isinstance(node, dict) and id(node) in known else node is not False

    known = {id(node) for node in nodes}
    for number in range(_MAX_PASSES):
        before = len(ends)
        for node in nodes if number % 2 else reversed(nodes):
            if id(node) not in ends and _ends(node, targets.get(id(node)), can_end):
                ends.add(id(node))
        if len(ends) == before:
            break
    else:
        return
    if id(schema) not in ends:
        raise ConstraintError(
            "No answer fits the schema: its references lead back to themselves without an end.",
            "Make a property on the way optional, or allow null or an empty list instead of the reference.",
        )
    for node in nodes:
        if id(node) not in ends:
            for keyword in node.keys() - {"$defs", "definitions"}:
                del node[keyword]
            node["allOf"] = [False]


def _reachable(schema: Schema) -> tuple[list[Schema], dict[int, object]]:
    """Return every schema in it, also those that a reference under another keyword leads to, and each reference's
    target.
    """
    nodes: list[Schema] = []
    seen: set[int] = set()
    targets: dict[int, object] = {}
    pending: list[object] = [schema]
    while pending:
        for _, node in subschemas(pending.pop()):
            if id(node) in seen:
                continue
            seen.add(id(node))
            nodes.append(node)
            if "$ref" in node:
                targets[id(node)] = target = _target(schema, node["$ref"])
                pending.append(target)
    return nodes, targets


def _target(schema: Schema, reference: object) -> object:
    """Return the target of a reference within the document; True if it is unknown."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return True
    place: Any = schema
    for step in unquote(reference[1:]).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and step in place:
            place = place[step]
        elif isinstance(place, list) and step.isdecimal() and int(step) < len(place):
            place = place[int(step)]
        else:
            return True
    return place


def _ends(node: Schema, target: object, can_end: Any) -> bool:
    """Return whether some finite value may fit, judging by references."""
    if target is not None and not can_end(target):
        return False
    if isinstance(parts := node.get("allOf"), list) and not all(map(can_end, parts)):
        return False
    for keyword in ("anyOf", "oneOf"):
        if isinstance(parts := node.get(keyword), list) and not any(map(can_end, parts)):
            return False
    if "const" in node or "enum" in node:
        return True
    types = node.get("type", "null")
    types = {types} if isinstance(types, str) else {one for one in types if isinstance(one, str)}
    if not types <= _CONTAINERS:
        return True
    return ("object" in types and _object_ends(node, can_end)) or ("array" in types and _array_ends(node, can_end))


def _object_ends(node: Schema, can_end: Any) -> bool:
    required = node.get("required")
    properties = node.get("properties")
    named = properties if isinstance(properties, dict) else {}
    others = node.get("additionalProperties", True) if "patternProperties" not in node else True
    return all(can_end(named.get(name, others)) for name in required) if isinstance(required, list) else True


def _array_ends(node: Schema, can_end: Any) -> bool:
    items, first = node.get("items", True), node.get("prefixItems")
    if isinstance(items, list):
        items, first = node.get("additionalItems", True), items
    first, least = first if isinstance(first, list) else [], node.get("minItems", 0)
    if not isinstance(least, int | float):
        return True
    return all(map(can_end, first[: int(least)])) and (least <= len(first) or can_end(items))


# Keys.


def _name_patterns(nodes: list[Schema]) -> None:
    with_patterns = [node for node in nodes if "patternProperties" in node]
    count = sum(len(node["patternProperties"]) for node in with_patterns if isinstance(node["patternProperties"], dict))
    if count > _MAX_PATTERNS:
        raise ConstraintError(
            f"It has {count} patternProperties; at most {_MAX_PATTERNS} are possible.",
            "Use fewer patterns, or properties.",
        )
    names = _names(nodes) if with_patterns else ()
    for node in with_patterns:
        # A part elsewhere in the schema may be combined with this one, by allOf or a reference.
        _name_finite_patterns(node, names if len(names) <= _MAX_NAMES else _names([node]))


def _names(nodes: Iterable[Schema]) -> tuple[str, ...]:
    """Return every name of a property that some schema has or requires."""
    names: dict[str, None] = {}
    for node in nodes:
        for keyword in ("properties", "required"):
            if isinstance(listed := node.get(keyword), dict | list):
                names |= dict.fromkeys(name for name in listed if isinstance(name, str))
    return tuple(names)


def _name_finite_patterns(node: Schema, names: tuple[str, ...]) -> None:
    """Turn patterns that only some of ``names`` match into properties; the schema's meaning does not change."""
    patterns, properties = node["patternProperties"], node.setdefault("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return
    for pattern, value in list(patterns.items()):
        if not _has_only(pattern, names):
            continue
        del patterns[pattern]
        for name in filter(functools.partial(_matches, pattern), names):
            properties[name] = {"allOf": [properties[name], value]} if name in properties else value
    if not patterns:
        del node["patternProperties"]


@functools.lru_cache(1024)
def _matches(pattern: str, name: str) -> bool:
    return _compiles({"enum": [name], "pattern": pattern}) is not None


@functools.lru_cache(1024)
def _has_only(pattern: str, names: tuple[str, ...]) -> bool:
    """Return whether only these names match the pattern in llguidance's reading, so that no other key can begin."""
    matcher = _compiles(
        {
            "type": "object",
            "properties": dict.fromkeys(names, False),
            "patternProperties": {pattern: {"type": "null"}},
            "additionalProperties": False,
            "minProperties": 1,
        }
    )
    return matcher is not None and matcher.consume_token(ord("{")) and _is_stuck(matcher)


def _check_least_properties(path: str, node: Schema, *, best_effort: bool) -> None:
    """Check ``minProperties`` with unnamed keys, which may be written twice and count twice: at most one may be
    missing.
    """
    least, required = node["minProperties"], node.get("required", [])
    if node.get("additionalProperties") is False and "patternProperties" not in node:
        return
    if not isinstance(least, int | float) or not isinstance(required, list) or least <= len(set(required)) + 1:
        return
    if best_effort:
        node["minProperties"] = len(set(required)) + 1
        return
    raise leave_out(
        f"minProperties ({least}) cannot be enforced where keys are not named: the same key may be written twice.",
        path,
        "minProperties",
    )


# Numbers.


def _check_multiples(schema: Schema, path: str, node: Schema, *, best_effort: bool) -> None:
    facets: Schema = {}
    parts = _conjuncts(schema, node)
    for part in parts:
        for keyword in _NUMERIC:
            if isinstance(value := part.get(keyword), int | float):
                facets.setdefault(keyword, value)
    multiple = facets.get("multipleOf")
    if multiple is None or float(multiple).is_integer() or len(facets) == 1:
        return
    matcher = _compiles({"type": "number", **facets})
    if matcher is None or not _is_stuck(matcher):
        return
    if best_effort:
        for part in parts:
            part.pop("multipleOf", None)
        return
    raise leave_out(f"multipleOf ({multiple}) cannot be enforced within these bounds.", path, "multipleOf")


def _conjuncts(schema: Schema, node: Schema) -> list[Schema]:
    """Return all schemas that a value of this one must fit: itself, its ``allOf`` and the targets of its references."""
    parts: list[Schema] = []
    pending: list[object] = [node]
    while pending and len(parts) < _MAX_CONJUNCTS:
        part = pending.pop(0)
        if not isinstance(part, dict) or any(part is known for known in parts):
            continue
        parts.append(part)
        pending += part["allOf"] if isinstance(part.get("allOf"), list) else []
        if "$ref" in part:
            pending.append(_target(schema, part["$ref"]))
    return parts


# Checks by llguidance.


def _compiles(schema: Schema) -> Any:
    """Return a matcher for single bytes, or None if llguidance refuses the schema."""
    library = load_library()
    grammar = library.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    matcher = library.LLMatcher(door_tokenizer(), grammar, log_level=0, limits=parser_limits())
    return None if matcher.is_error() else matcher


def _is_stuck(matcher: Any) -> bool:
    """Return whether nothing can follow."""
    allowed = any(matcher.compute_logit_bias())
    return matcher.is_error() or not allowed
