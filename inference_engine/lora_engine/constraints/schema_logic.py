"""Questions about the values that parts of a JSON Schema allow: do two exclude each other, and what is the opposite.

Answers are certain or none: ``disjoint`` returns False, and ``negation`` None, where nothing is known. Formats count as
annotations. The work is bounded by ``MAX_STEPS`` for each schema.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from .answer_validation import TooMuchWorkError, Validator, equal_key, has_type, matches
from .library import door_tokenizer, load_library, parser_limits
from .references import References

Schema = dict[str, Any]

# Maximum number of parts that are compared for one schema, some 10 us each, and of sets of patterns that are compiled
# together.
MAX_STEPS, MAX_INTERSECTIONS = 15_000, 200
# Maximum number of levels of parts within parts that are read, and of parts of one conjunction.
_DEEPEST, _MAX_CONJUNCTS = 6, 40
# Alternatives that the opposite of a schema may have.
MAX_ALTERNATIVES = 24
# Maximum number of values that an opposite leaves out: numbers, and characters of strings.
_MAX_NUMBERS, _MAX_CHARACTERS = 12, 3000

# Types of values; a number that is no integer is a fraction.
ALL_TYPES = frozenset(("null", "boolean", "string", "array", "object", "integer", "fraction"))
_TYPES = {name: frozenset((name,)) for name in ALL_TYPES} | {"number": frozenset(("integer", "fraction"))}
# Keywords that forbid something and have no opposite here.
_WITHOUT_OPPOSITE = frozenset(
    ("pattern", "patternProperties", "additionalProperties", "propertyNames", "items", "prefixItems", "contains",
     "additionalItems", "multipleOf", "uniqueItems", "if", "dependencies", "dependentRequired", "dependentSchemas",
     "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "oneOf")
)  # fmt: skip
# Values of some of them that forbid nothing.
_ALLOW_ALL: dict[str, tuple[Any, ...]] = {
    "additionalProperties": (True, {}), "items": (True, {}), "additionalItems": (True, {}), "uniqueItems": (False,),
    "unevaluatedProperties": (True, {}), "unevaluatedItems": (True, {}), "propertyNames": (True, {}),
    "patternProperties": ({},), "dependencies": ({},), "dependentRequired": ({},), "dependentSchemas": ({},),
}  # fmt: skip


class SchemaLogic:
    """The logic of the parts of one schema."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._validator = Validator(True, references)
        self._steps = self._intersections = 0

    # -- conjunctions ----------------------------------------------------------------

    def conjuncts(self, part: Any) -> list[Any]:
        """Return all parts that a value of this one must fit: itself, its ``allOf`` and the targets of references."""
        parts: list[Any] = []
        pending = [part]
        while pending and len(parts) < _MAX_CONJUNCTS:
            one = pending.pop(0)
            if any(one is known for known in parts):
                continue
            parts.append(one)
            if isinstance(one, dict):
                pending += one["allOf"] if isinstance(one.get("allOf"), list) else []
                if "$ref" in one and (target := self._references.target(one["$ref"])) is not None:
                    pending.append(target)
        return parts

    def types(self, part: Any) -> frozenset[str]:
        """Return the types that a part allows at most."""
        return _types_of(self.conjuncts(part))

    def values(self, part: Any) -> list[Any] | None:
        """Return all values that a part allows, without duplicates; None if they are not listed in it."""
        parts = self.conjuncts(part)
        listed = _listed(parts)
        if listed is None:
            types = _types_of(parts)
            if types and types <= {"null", "boolean"}:
                listed = [value for value in (None, True, False) if _is_of(value, types)]
            else:
                return None
        distinct = {equal_key(value): value for value in listed}.values()
        return [value for value in distinct if self.allows(part, value)]

    def allows(self, part: Any, value: Any) -> bool:
        """Return whether a part may allow a value."""
        try:
            return self._validator.is_valid(part, value)
        except (TooMuchWorkError, RecursionError):
            return True

    # -- exclusion -------------------------------------------------------------------

    def disjoint(self, left: Any, right: Any, depth: int = 0) -> bool:
        """Return whether certainly no value fits both parts."""
        self._steps += 1
        if depth > _DEEPEST or self._steps > MAX_STEPS:
            return False
        one, other = self.conjuncts(left), self.conjuncts(right)
        if False in one or False in other:
            return True
        types = _types_of(one) & _types_of(other)
        if not types:
            return True
        for values, against in ((_listed(one), right), (_listed(other), left)):
            if values is not None:
                mine = left if against is right else right
                return not any(self.allows(mine, value) and self.allows(against, value) for value in values)
        both = [part for part in (*one, *other) if isinstance(part, dict)]
        if all(self._excluded(kind, one, other, both, depth) for kind in types):
            return True
        return any(
            all(self.disjoint({"allOf": [branch, *mine]}, against, depth + 1) for branch in branches)
            for branches, mine, against in itertools.chain(_choices(one, right), _choices(other, left))
        )

    def _excluded(self, kind: str, one: list[Any], other: list[Any], both: list[Schema], depth: int) -> bool:
        """Return whether no value of a type fits both."""
        match kind:
            case "object":
                return self._objects_exclude(one, other, depth)
            case "array":
                least, most = _range(both, "minItems", "maxItems")
                return least > most or (
                    least > 0
                    and any(
                        self.disjoint(_item(one, index), _item(other, index), depth + 1)
                        for index in range(min(int(least), 8))
                    )
                )
            case "integer" | "fraction":
                return _numbers_exclude(both)
            case "string":
                least, most = _range(both, "minLength", "maxLength")
                return least > most or self._patterns_exclude(both)
        return False

    def _objects_exclude(self, one: list[Any], other: list[Any], depth: int) -> bool:
        least, most = _range(
            [part for part in (*one, *other) if isinstance(part, dict)], "minProperties", "maxProperties"
        )
        if least > most:
            return True
        return any(
            self.disjoint(_property(one, name), _property(other, name), depth + 1)
            for name in dict.fromkeys((*_required(one), *_required(other)))
        )

    def _patterns_exclude(self, both: list[Schema]) -> bool:
        patterns = [part["pattern"] for part in both if isinstance(part.get("pattern"), str)]
        if len(set(patterns)) < 2 or self._intersections >= MAX_INTERSECTIONS:
            return False
        self._intersections += 1
        return _nothing_matches(tuple(sorted(set(patterns))))

    # -- opposites -------------------------------------------------------------------

    def negation(self, part: Any, depth: int = 0) -> list[Any] | None:
        """Return parts of which any fits exactly the values that this one forbids; None if that cannot be written."""
        self._steps += 1
        if depth > _DEEPEST or self._steps > MAX_STEPS:
            return None
        if not isinstance(part, dict):
            return [True] if part is False else []
        types = ALL_TYPES
        if "type" in part:
            types = _types_of([part])
        alternatives: list[Any] = []
        if (others := ALL_TYPES - types) != frozenset():
            if (names := type_names(others)) is None:
                return None
            alternatives.append({"type": names})
        for keyword in part:
            opposite = self._opposite(part, keyword, types, depth)
            if opposite is None or len(alternatives) + len(opposite) > MAX_ALTERNATIVES:
                return None
            alternatives += opposite
        return alternatives

    def _opposite(self, part: Schema, keyword: str, types: frozenset[str], depth: int) -> list[Any] | None:
        """Return what a keyword forbids within some types."""
        value = part[keyword]
        if keyword in _WITHOUT_OPPOSITE:
            return [] if value in _ALLOW_ALL.get(keyword, ()) else None
        match keyword:
            case "$ref":
                target = self._references.target(value)
                return None if target is None else self.negation(target, depth + 1)
            case "const":
                return _without([value], types)
            case "enum":
                return _without(value, types) if isinstance(value, list) else None
            case "required":
                names = value if isinstance(value, list) else []
                return [{"type": "object", "properties": {name: False}} for name in names]
            case "properties":
                return self._some_property_not(value, depth) if isinstance(value, dict) else None
            case "allOf":
                opposites = [self.negation(one, depth + 1) for one in value] if isinstance(value, list) else [None]
                known = [opposite for opposite in opposites if opposite is not None]
                return list(itertools.chain(*known)) if len(known) == len(opposites) else None
            case "anyOf":
                return self.none_of(value, depth + 1) if isinstance(value, list) else None
            case "not":
                return [value]
        return _opposite_bound(keyword, value, part) if keyword in _OPPOSITE_BOUNDS else []

    def _some_property_not(self, properties: Schema, depth: int) -> list[Any] | None:
        alternatives = []
        for name, one in properties.items():
            opposite = self.negation(one, depth + 1)
            if opposite is None:
                return None
            alternatives += [{"type": "object", "required": [name], "properties": {name: other}} for other in opposite]
        return alternatives

    def none_of(self, parts: Iterable[Any], depth: int = 0) -> list[Any] | None:
        """Return parts of which any fits the values that all of these forbid; None if that cannot be written."""
        alternatives: list[list[Any]] = [[]]
        for part in parts:
            opposite = self.negation(part, depth)
            if opposite is None:
                return None
            alternatives = self.product(alternatives, opposite)
            if len(alternatives) > MAX_ALTERNATIVES:
                return None
        return [{"allOf": parts} if len(parts) != 1 else parts[0] for parts in alternatives]

    def product(self, conjunctions: list[list[Any]], choice: list[Any], base: Any = True) -> list[list[Any]]:
        """Return each conjunction with each part of a choice, without those that nothing fits."""
        return [
            [*parts, one]
            for parts in conjunctions
            for one in choice
            if not self.disjoint({"allOf": [base, *parts]}, one)
        ]


def type_names(types: frozenset[str]) -> list[str] | None:
    """Return types as JSON Schema names them; None if only numbers that are no integers are among them."""
    if "fraction" in types and "integer" not in types:
        return None
    names = types - {"fraction", "integer"}
    if "fraction" in types:
        names |= {"number"}
    elif "integer" in types:
        names |= {"integer"}
    return sorted(names)


def number_of(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def string_outside(texts: Iterable[str]) -> str | None:
    """Return a pattern that all strings match except these; None if it would be too long."""
    tree: dict[str, Any] = {}
    for text in texts:
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    if sum(map(len, texts)) > _MAX_CHARACTERS or max(map(len, texts), default=0) > 120:
        return None
    if any('"' in text or "\\" in text for text in texts):
        return None  # llguidance 1.9 lets these two through where a class excludes them
    return f"^(?:{_outside(tree)})$"


def _outside(node: dict[str, Any]) -> str:
    """Return an expression for the rest of a string, at a node of the tree of the strings to leave out."""
    follows = [character for character in node if character]
    branches = [f"{_escaped(character)}(?:{_outside(node[character])})" for character in follows]
    others = "".join(map(_escaped, follows))
    branches.append(f"[^{others}](?s:.*)" if others else "(?s:.+)")
    if "" not in node:
        branches.append("")
    return "|".join(branches)


def _escaped(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _is_of(value: Any, types: frozenset[str]) -> bool:
    if "integer" not in types and has_type(value, "integer"):
        return False
    return any(has_type(value, "number" if name == "fraction" else name) for name in types)


def _types_of(parts: list[Any]) -> frozenset[str]:
    types = ALL_TYPES
    for part in parts:
        if not isinstance(part, dict):
            types = types if part is not False else frozenset()
        elif "type" in part:
            names = part["type"] if isinstance(part["type"], list) else [part["type"]]
            types &= frozenset().union(*(_TYPES.get(name, ALL_TYPES) for name in names if isinstance(name, str)))
    return types


def _listed(parts: list[Any]) -> list[Any] | None:
    for part in parts:
        if isinstance(part, dict) and "const" in part:
            return [part["const"]]
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("enum"), list):
            return list(part["enum"])
    return None


def _choices(parts: list[Any], against: Any) -> Iterator[tuple[list[Any], list[Any], Any]]:
    """Yield each choice among some parts, with the other parts, and what it is compared with."""
    for part in parts:
        for keyword in ("anyOf", "oneOf"):
            if isinstance(part, dict) and isinstance(branches := part.get(keyword), list) and len(branches) <= 32:
                plain = [{key: one for key, one in part.items() if key not in ("anyOf", "oneOf", "allOf", "$ref")}]
                yield branches, [*(other for other in parts if other is not part), *plain], against


def _range(parts: list[Schema], least: str, most: str) -> tuple[float, float]:
    lows = [low for part in parts if (low := number_of(part.get(least))) is not None]
    highs = [high for part in parts if (high := number_of(part.get(most))) is not None]
    return max(lows, default=0), min(highs, default=math.inf)


def _numbers_exclude(parts: list[Schema]) -> bool:
    low, high, open_ended = -math.inf, math.inf, False
    for part in parts:
        for keyword, sign in (("minimum", 1), ("exclusiveMinimum", 1), ("maximum", -1), ("exclusiveMaximum", -1)):
            bound = part.get(keyword)
            is_open = keyword.startswith("ex")
            if bound is True and is_open:  # draft 4
                bound = part.get("minimum" if sign > 0 else "maximum")
            if (number := number_of(bound)) is None:
                continue
            if sign > 0 and (number > low or (number == low and is_open)):
                low, open_ended = number, is_open or (open_ended and number == low)
            if sign < 0 and (number < high or (number == high and is_open)):
                high, open_ended = number, is_open or (open_ended and number == high)
    return low > high or (low == high and open_ended)


def _required(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(names := part.get("required"), list):
            yield from (name for name in names if isinstance(name, str))


def _property(parts: list[Any], name: str) -> Any:
    """Return what a conjunction says about a property."""
    rules = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        properties, patterns = part.get("properties"), part.get("patternProperties")
        named = isinstance(properties, dict) and name in properties
        if isinstance(properties, dict) and named:
            rules.append(properties[name])
        for pattern, one in patterns.items() if isinstance(patterns, dict) else ():
            if matches(pattern, name):
                named = True
                rules.append(one)
        if not named and "additionalProperties" in part:
            rules.append(part["additionalProperties"])
    return rules[0] if len(rules) == 1 else {"allOf": rules}


def _item(parts: list[Any], index: int) -> Any:
    rules = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        items, first, rest = part.get("items", True), part.get("prefixItems"), part.get("items", True)
        if isinstance(items, list):
            first, rest = items, part.get("additionalItems", True)
        rules.append(first[index] if isinstance(first, list) and index < len(first) else rest)
    return rules[0] if len(rules) == 1 else {"allOf": rules}


def _nothing_matches(patterns: tuple[str, ...]) -> bool:
    library = load_library()
    schema = {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns]}
    try:
        grammar = library.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    except ValueError:
        return False
    matcher = library.LLMatcher(door_tokenizer(), grammar, log_level=0, limits=parser_limits())
    if matcher.is_error():
        return "nsatisfiable" in matcher.get_error()
    return False


def _without(values: list[Any], types: frozenset[str]) -> list[Any] | None:
    """Return parts that fit all values of some types except the listed ones."""
    if any(isinstance(value, dict | list) and value for value in values):
        return None
    parts: list[Any] = []
    numbers = sorted({value for value in values if number_of(value) is not None})
    if numbers:
        if len(numbers) > _MAX_NUMBERS or not types & {"integer", "fraction"}:
            if types & {"integer", "fraction"}:
                return None
            return _without([value for value in values if number_of(value) is None], types)
        kind = "number" if "fraction" in types else "integer"
        bounds = [-math.inf, *numbers, math.inf]
        for low, high in itertools.pairwise(bounds):
            between = {} if low == -math.inf else {"exclusiveMinimum": low}
            between |= {} if high == math.inf else {"exclusiveMaximum": high}
            if kind == "number" or not _no_integer_between(low, high):
                parts.append({"type": kind, **between})
        types -= {"integer", "fraction"}
    texts = [value for value in values if isinstance(value, str)]
    if texts and "string" in types:
        if (pattern := string_outside(texts)) is None:
            return None
        parts.append({"type": "string", "pattern": pattern})
        types -= {"string"}
    booleans = {value for value in values if isinstance(value, bool)}
    if booleans and "boolean" in types:
        parts += [{"const": value} for value in (True, False) if value not in booleans]
        types -= {"boolean"}
    if any(value is None for value in values):
        types -= {"null"}
    for kind, empty, keyword in (("object", {}, "minProperties"), ("array", [], "minItems")):
        if kind in types and any(value == empty and isinstance(value, type(empty)) for value in values):
            parts.append({"type": kind, keyword: 1})
            types -= {kind}
    if types:
        if (names := type_names(types)) is None:
            return None
        parts.append({"type": names})
    return parts


def _no_integer_between(low: float, high: float) -> bool:
    return math.isfinite(low) and math.isfinite(high) and math.floor(low) + 1 >= math.ceil(high)


# The opposite of a bound: type, keyword, and what is added to the bound.
_OPPOSITE_BOUNDS = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
}


def _opposite_bound(keyword: str, bound: Any, part: Schema) -> list[Any] | None:
    kind, opposite, more = _OPPOSITE_BOUNDS[keyword]
    number = number_of(bound)
    if number is None or any(isinstance(part.get(name), bool) for name in ("exclusiveMinimum", "exclusiveMaximum")):
        return None
    if more < 0 and number <= 0:
        return []
    return [{"type": kind, opposite: int(number) + more if more else number}]
