"""Random JSON Schemas whose keywords meet: patterns that cover properties, empty ranges, parts that contradict."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("a", "b", "ab", "score")
PATTERNS = ("^a$", "^a", "b", "^(a|b)$", "^[a-c]{1,3}$", "^score$", r"\d", "^x{2}$", r"^\s?x$")
_BOUNDS = (-3, -1, 0, 0.1, 0.15, 0.25, 1, 2, 3, 7, 10, 99)
_MULTIPLES = (1, 2, 3, 7, 0.5, 0.1, 0.01, 0.25, 1.5)
_VALUES: tuple[Any, ...] = (None, True, 1, 2, 7, "a", "ab", "x", 0.5, [], {}, ["a"], {"a": 1})
_TYPES = ("string", "integer", "null", "boolean", "array", "object")
_DEEPEST = 2


def composed_schema(rnd: random.Random) -> dict[str, Any]:
    """A schema with two definitions, which it may refer to from anywhere."""
    schema: Any = True
    while isinstance(schema, bool):
        schema = _schema(rnd, 0)
    return {**schema, "$defs": {"d0": _schema(rnd, 1), "d1": _schema(rnd, 1)}}


def _schema(rnd: random.Random, depth: int) -> Any:
    if depth > _DEEPEST or rnd.random() < 0.35:
        return _leaf(rnd)
    match rnd.choices(("object", "array", "allOf", "anyOf", "oneOf", "$ref"), (4, 1, 1, 1, 1, 1))[0]:
        case "object":
            return _object(rnd, depth + 1)
        case "array":
            return _array(rnd, depth + 1)
        case "$ref":
            return {"$ref": f"#/$defs/d{rnd.randrange(2)}"}
        case keyword:
            parts = [_schema(rnd, depth + 1) for _ in range(rnd.randint(1, 3))]
            beside = _leaf(rnd) if rnd.random() < 0.2 else {}
            return {**(beside if isinstance(beside, dict) else {}), keyword: parts}


def _leaf(rnd: random.Random) -> Any:
    match rnd.choices(("number", "string", "enum", "const", "any", "types"), (3, 3, 1, 1, 1, 1))[0]:
        case "number":
            bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
            schema = {"type": rnd.choice(("integer", "number")), **_some(rnd, 0.3, bounds, _BOUNDS)}
            return schema | _some(rnd, 0.35, ("multipleOf",), _MULTIPLES)
        case "string":
            schema = {"type": "string", **_some(rnd, 0.4, ("minLength", "maxLength"), range(5))}
            schema |= _some(rnd, 0.4, ("pattern",), PATTERNS)
            return schema | _some(rnd, 0.15, ("format",), ("date", "uuid", "ipv4", "time"))
        case "enum":
            schema = {"enum": [rnd.choice(_VALUES) for _ in range(rnd.randint(1, 4))]}
            schema |= _some(rnd, 0.3, ("type",), ("string", "integer", ["string", "null"]))
            return schema | _some(rnd, 0.2, ("pattern",), PATTERNS) | _some(rnd, 0.2, ("maximum",), (1,))
        case "const":
            return {"const": rnd.choice(_VALUES), **_some(rnd, 0.3, ("maxLength",), (1,))}
        case "any":
            return rnd.choice((True, False, {}, {"type": "null"}, {"type": "boolean"}))
        case _:
            return {"type": rnd.sample(_TYPES, 2), **_some(rnd, 0.3, ("minimum",), (3,))}


def _object(rnd: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if rnd.random() < 0.8:
        schema["properties"] = {name: _schema(rnd, depth) for name in rnd.sample(NAMES, rnd.randint(0, 3))}
    if rnd.random() < 0.5:
        patterns = rnd.sample(PATTERNS, rnd.randint(1, 2))
        schema["patternProperties"] = {pattern: _schema(rnd, depth) for pattern in patterns}
    if rnd.random() < 0.5:
        schema["required"] = rnd.sample(NAMES, rnd.randint(0, 2))
    if rnd.random() < 0.7:
        schema["additionalProperties"] = rnd.choice((False, False, True)) if rnd.random() < 0.7 else _schema(rnd, depth)
    schema |= _some(rnd, 0.2, ("minProperties", "maxProperties"), range(4))
    schema |= _some(rnd, 0.05, ("propertyNames",), ({"pattern": "^a"},))
    return schema | _some(rnd, 0.05, ("dependentRequired",), ({"a": ["b"]},))


def _array(rnd: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", **_some(rnd, 0.5, ("minItems", "maxItems"), range(4))}
    if rnd.random() < 0.7:
        schema["items"] = _schema(rnd, depth)
    if rnd.random() < 0.4:
        schema["prefixItems"] = [_schema(rnd, depth) for _ in range(rnd.randint(1, 2))]
    return schema | _some(rnd, 0.05, ("uniqueItems",), (True,))


def _some(rnd: random.Random, share: float, keywords: tuple[str, ...], values: Any) -> dict[str, Any]:
    return {keyword: rnd.choice(values) for keyword in keywords if rnd.random() < share}
