"""Validation of a finished answer, for the keywords of its schema that no grammar enforces.

The work is bounded: each part of the schema judges each value once, and patterns are matched by llguidance's automata,
which need time linear in the text. Formats are annotations here. What cannot be judged counts as valid.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from .library import door_tokenizer, load_library, parser_limits
from .references import References
from .schema_problems import subschemas

# Judgements of one answer, after which the rest counts as valid: half a second.
MAX_STEPS = 200_000
# Maximum number of findings that are reported of one answer.
MAX_REPORTED = 8
# Keywords that need what other keywords have judged, or a search through outer schemas.
_UNJUDGED = frozenset(("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"))


@dataclass(frozen=True, slots=True)
class Violation:
    """A place of an answer that its schema forbids: its path (``items[0].name``), and the keyword's path."""

    path: str
    keyword: str
    message: str


class TooMuchWorkError(Exception):
    """The schema and the answer need more judgements than ``MAX_STEPS``."""


def violations(schema: Any, answer: str) -> list[Violation]:
    """Return the places of a finished answer that its schema forbids, at most ``MAX_REPORTED``."""
    try:
        value = json.loads(answer)
        findings = Validator(schema).findings(value)
        return [finding for finding, _ in zip(findings, range(MAX_REPORTED), strict=False)]
    except (ValueError, RecursionError, TooMuchWorkError) as error:
        return [Violation("", "", f"The answer could not be checked ({type(error).__name__}).")]


def judges(schema: Any) -> bool:
    """Return whether each keyword of a schema is judged. Under ``not``, one that counts as fitting would not fit."""
    references = References(schema)
    for _, node in subschemas(schema):
        if node.keys() & _UNJUDGED or ("$ref" in node and references.target(node["$ref"]) is None):
            return False
        if isinstance(pattern := node.get("pattern"), str) and _pattern(pattern) is None:
            return False
        named = node.get("patternProperties")
        if isinstance(named, dict) and any(_pattern(pattern) is None for pattern in named):
            return False
    return True


class Validator:
    """A judge of values by one schema and the parts that it refers to."""

    def __init__(self, schema: Any, references: References | None = None) -> None:
        self._schema = schema
        self._references = references or References(schema)
        self._known: dict[tuple[int, int], bool] = {}
        self._kept: list[object] = []  # judged values and schemas, whose ids must not be used again
        self._steps = 0

    def is_valid(self, schema: Any, value: Any) -> bool:
        """Judge a value by a part of the schema."""
        if isinstance(schema, bool) or not isinstance(schema, dict):
            return schema is not False
        key = (id(schema), id(value))
        if key not in self._known:
            self._kept += (schema, value)
            self._known[key] = True  # a reference that leads back here adds nothing
            self._known[key] = next(self._findings(schema, value, "", ""), None) is None
        return self._known[key]

    def findings(self, value: Any) -> Iterator[Violation]:
        """Yield the places of a value that the whole schema forbids."""
        yield from self._findings(self._schema, value, "", "")

    def _findings(self, schema: Any, value: Any, at: str, place: str) -> Iterator[Violation]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooMuchWorkError
        if not isinstance(schema, dict):
            if schema is False:
                yield Violation(at, place, "Nothing is allowed here.")
            return
        if "$ref" in schema:
            target = self._references.target(schema["$ref"])
            if isinstance(target, dict) and self.is_valid(target, value):
                target = True
            yield from self._findings(target, value, at, place)
        for keyword, judge in _JUDGES.items():
            if keyword in schema and not judge(self, schema[keyword], value, schema):
                yield Violation(at, _join(place, keyword), _MESSAGES.get(keyword, f'It does not fit "{keyword}".'))
        for part, index in _parts(schema, "allOf"):
            yield from self._findings(part, value, at, f"{_join(place, 'allOf')}[{index}]")
        for keyword in ("if", "dependentSchemas", "dependencies"):
            for part, name in self._conditional(schema, keyword, value):
                yield from self._findings(part, value, at, _join(place, name))
        if isinstance(value, dict):
            for name, one in value.items():
                for part, keyword in self._of_property(schema, name):
                    yield from self._findings(part, one, _join(at, name), _join(place, keyword))
        if isinstance(value, list):
            for index, one in enumerate(value):
                for part, keyword in _of_item(schema, index):
                    yield from self._findings(part, one, f"{at}[{index}]", _join(place, keyword))

    def _conditional(self, schema: dict[str, Any], keyword: str, value: Any) -> Iterator[tuple[Any, str]]:
        if keyword not in schema:
            return
        if keyword == "if":
            branch = "then" if self.is_valid(schema["if"], value) else "else"
            if branch in schema:
                yield schema[branch], branch
        elif isinstance(value, dict) and isinstance(schema[keyword], dict):
            for name, part in schema[keyword].items():
                if name in value and isinstance(part, dict | bool):
                    yield part, f"{keyword}.{name}"

    def _of_property(self, schema: dict[str, Any], name: str) -> Iterator[tuple[Any, str]]:
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        named = False
        if isinstance(properties, dict) and name in properties:
            named = True
            yield properties[name], f"properties.{name}"
        for pattern, part in patterns.items() if isinstance(patterns, dict) else ():
            if matches(pattern, name):
                named = True
                yield part, f"patternProperties.{pattern}"
        if not named and "additionalProperties" in schema:
            yield schema["additionalProperties"], "additionalProperties"

    # -- keywords --------------------------------------------------------------------

    def any_of(self, branches: Any, value: Any, _: object) -> bool:
        return not isinstance(branches, list) or any(self.is_valid(branch, value) for branch in branches)

    def one_of(self, branches: Any, value: Any, _: object) -> bool:
        return not isinstance(branches, list) or sum(self.is_valid(branch, value) for branch in branches) == 1

    def is_not(self, part: Any, value: Any, _: object) -> bool:
        return not self.is_valid(part, value)

    def contains(self, part: Any, value: Any, schema: Mapping[str, Any]) -> bool:
        if not isinstance(value, list):
            return True
        count = sum(self.is_valid(part, one) for one in value)
        least, most = schema.get("minContains", 1), schema.get("maxContains", count)
        return not (_is_number(least) and count < least) and not (_is_number(most) and count > most)

    def property_names(self, part: Any, value: Any, _: object) -> bool:
        return not isinstance(value, dict) or all(self.is_valid(part, name) for name in value)

    def dependencies(self, needs: Any, value: Any, _: object) -> bool:
        if not isinstance(value, dict) or not isinstance(needs, dict):
            return True
        lists = {name: [need] if isinstance(need, str) else need for name, need in needs.items()}
        return all(
            set(need) <= value.keys() for name, need in lists.items() if name in value and isinstance(need, list)
        )


def equal_key(value: Any) -> Any:
    """Return a key that two values share if JSON Schema takes them to be equal: 1 is 1.0, and no ``true``."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(equal_key, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, equal_key(one)) for name, one in value.items()))
    return value


def has_type(value: Any, name: Any) -> bool:
    """Return whether a value is of a type of JSON Schema."""
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case "number":
            return _is_number(value)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


@functools.lru_cache(4096)
def matches(pattern: Any, text: str) -> bool:
    """Return whether a text matches a pattern in llguidance's reading; True if that cannot use the pattern."""
    known = _pattern(pattern) if isinstance(pattern, str) else None
    if known is None:
        return True
    matcher = known.deep_copy()
    tokens = door_tokenizer().tokenize_str(json.dumps(text, ensure_ascii=False))
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


@functools.lru_cache(512)
def _pattern(pattern: str) -> Any:
    library = load_library()
    try:
        grammar = library.LLMatcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
    except ValueError:
        return None
    matcher = library.LLMatcher(door_tokenizer(), grammar, log_level=0, limits=parser_limits())
    return None if matcher.is_error() else matcher


def _of_item(schema: dict[str, Any], index: int) -> Iterator[tuple[Any, str]]:
    items = schema.get("items")
    first, rest = schema.get("prefixItems"), "items"
    if isinstance(items, list):
        first, rest = items, "additionalItems"
    if isinstance(first, list) and index < len(first):
        yield first[index], f"prefixItems[{index}]"
    elif rest in schema:
        yield schema[rest], rest


def _parts(schema: dict[str, Any], keyword: str) -> Iterator[tuple[Any, int]]:
    if isinstance(parts := schema.get(keyword), list):
        for index, part in enumerate(parts):
            yield part, index


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bound(kind: type, size: Callable[[Any], Any], holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def judge(_: Validator, bound: Any, value: Any, __: object) -> bool:
        if not isinstance(value, kind) or isinstance(value, bool) or not _is_number(bound):
            return True
        return holds(size(value), bound)

    return judge


def _exclusive(keyword: str, holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def judge(_: Validator, bound: Any, value: Any, schema: Mapping[str, Any]) -> bool:
        bound = schema.get(keyword) if bound is True else bound  # draft 4
        return not _is_number(value) or not _is_number(bound) or holds(value, bound)

    return judge


def _is_multiple(_: Validator, of: Any, value: Any, __: object) -> bool:
    if not _is_number(value) or not _is_number(of) or of <= 0:
        return True
    try:
        return Decimal(str(value)) % Decimal(str(of)) == 0
    except DecimalException:
        return True


def _is_unique(_: Validator, unique: Any, value: Any, __: object) -> bool:
    return unique is not True or not isinstance(value, list) or len(set(map(equal_key, value))) == len(value)


def _type(_: Validator, types: Any, value: Any, __: object) -> bool:
    return any(has_type(value, name) for name in (types if isinstance(types, list) else [types]))


def _required(_: Validator, names: Any, value: Any, __: object) -> bool:
    return not isinstance(names, list) or not isinstance(value, dict) or all(name in value for name in names)


_NUMBER: Any = (int, float)
_JUDGES: dict[str, Callable[..., bool]] = {
    "type": _type,
    "const": lambda _, const, value, __: equal_key(const) == equal_key(value),
    "enum": lambda _, values, value, __: (
        not isinstance(values, list) or equal_key(value) in [equal_key(one) for one in values]
    ),
    "required": _required,
    "minimum": _bound(_NUMBER, lambda value: value, lambda value, bound: value >= bound),
    "maximum": _bound(_NUMBER, lambda value: value, lambda value, bound: value <= bound),
    "exclusiveMinimum": _exclusive("minimum", lambda value, bound: value > bound),
    "exclusiveMaximum": _exclusive("maximum", lambda value, bound: value < bound),
    "multipleOf": _is_multiple,
    "minLength": _bound(str, len, lambda size, bound: size >= bound),
    "maxLength": _bound(str, len, lambda size, bound: size <= bound),
    "pattern": lambda _, pattern, value, __: not isinstance(value, str) or matches(pattern, value),
    "minItems": _bound(list, len, lambda size, bound: size >= bound),
    "maxItems": _bound(list, len, lambda size, bound: size <= bound),
    "minProperties": _bound(dict, len, lambda size, bound: size >= bound),
    "maxProperties": _bound(dict, len, lambda size, bound: size <= bound),
    "uniqueItems": _is_unique,
    "anyOf": Validator.any_of,
    "oneOf": Validator.one_of,
    "not": Validator.is_not,
    "contains": Validator.contains,
    "propertyNames": Validator.property_names,
    "dependentRequired": Validator.dependencies,
    "dependencies": Validator.dependencies,
}
_MESSAGES = {
    "oneOf": 'It does not match exactly one branch of "oneOf".',
    "anyOf": 'It matches no branch of "anyOf".',
    "not": 'It matches the schema under "not".',
    "uniqueItems": "An item occurs twice.",
    "contains": 'Too few or too many items match "contains".',
    "propertyNames": 'A name does not match "propertyNames".',
    "dependentRequired": "A property that another one requires is missing.",
    "dependencies": "A property that another one requires is missing.",
}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
