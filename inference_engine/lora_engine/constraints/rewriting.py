"""Keywords of a JSON Schema that llguidance lacks are written with those that it has.

``rewrite`` returns a schema with the same meaning, or one that allows fewer answers, or, where neither can be written,
one that allows more, with the places that have to be checked when an answer is finished.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

from .constraint import ConstraintError
from .formats import as_keywords
from .references import References, steps
from .schema_logic import SchemaLogic, number_of, type_names
from .schema_problems import subschemas

Schema = dict[str, Any]

# Maximum number of parts of the schema that is written; llguidance takes some 50,000.
MAX_PARTS = 40_000
# Maximum number of properties of one object: the time to compile them grows with their square, a second for so many.
MAX_PROPERTIES = 4000
# Maximum number of alternatives of the conjunction of a part's conditions, and of the parts in all of these together.
MAX_PRODUCT, MAX_COPIES = 64, 12_000
# Maximum number of lists of different items that are written out.
MAX_LISTS = 70
_COUNTS = frozenset(
    ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains")
)
# Keywords that have no meaning for an answer and may be long, so that they are dropped.
_DROPPED = frozenset(
    ("title", "description", "default", "examples", "example", "$comment", "deprecated", "readOnly", "writeOnly",
     "contentMediaType", "contentEncoding", "contentSchema", "then", "else", "minContains",
     "maxContains", "x-guidance")
)  # fmt: skip
_ONE = ("additionalProperties", "additionalItems")
_DEFINITIONS = ("$defs", "definitions")
_LISTS = ("allOf", "anyOf", "prefixItems")
_NAMED = ("properties", "patternProperties")


@dataclass(frozen=True, slots=True)
class EndCheck:
    """A keyword that is only checked when an answer is finished, with its path."""

    path: str
    keyword: str


@dataclass(slots=True)
class Rewritten:
    """A schema for llguidance, the keywords to check at the end, and those that are annotations only."""

    schema: Any
    checks: list[EndCheck] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def rewrite(schema: Any, *, expand: bool = True) -> Rewritten:
    """Write a schema with llguidance's keywords. ``expand``: also where that multiplies parts of it.

    Raises ``ConstraintError`` if the result would be too large.
    """
    return _Rewriting(schema, expand=expand).run()


class _Rewriting:
    def __init__(self, schema: Any, *, expand: bool) -> None:
        self._root, self._expand = schema, expand
        self._places = {id(node): path for path, node in subschemas(schema)}
        self._references = References(schema)
        self._logic = SchemaLogic(self._references)
        self._parts = 0
        self._weights: dict[int, int] = {}
        self._targets: dict[str, tuple[str, str]] = {}  # references: section and name of the written definition
        self._pending: list[str] = []
        self._pairs: dict[tuple[int, int], bool] = {}  # branches: whether they exclude each other
        # Definitions that only anchors or addresses lead to stay where they are.
        self._keeps_definitions = any(
            "$dynamicRef" in node or ("$ref" in node and self._references.target(node["$ref"]) is None)
            for _, node in subschemas(schema)
        )
        self._checks: dict[tuple[str, str], EndCheck] = {}
        self._ignored: dict[str, None] = {}

    def run(self) -> Rewritten:
        schema = self._part(self._root, "")
        while self._pending:
            reference = self._pending.pop()
            section, name = self._targets[reference]
            part = self._part(self._references.target(reference), ".".join(steps(reference)))
            schema.setdefault(section, {})[name] = part
        return Rewritten(schema, list(self._checks.values()), list(self._ignored))

    def _part(self, part: Any, path: str) -> Any:
        self._count(1)
        if not isinstance(part, dict):
            return part
        path = self._places.get(id(part), path)
        written: Schema = {}
        conditions: list[tuple[str, list[Any]]] = []
        for keyword, value in part.items():
            if keyword in _DROPPED or (keyword in _DEFINITIONS and not self._keeps_definitions):
                continue
            at = _join(path, keyword)
            if keyword in _WRITERS:
                self._write(part, keyword, path, written, conditions)
            elif keyword in _COUNTS:
                written[keyword] = int(value) if isinstance(value, float) and value.is_integer() else value
            elif keyword == "$ref":
                written[keyword] = self._reference(value)
            elif keyword == "format":
                self._format(value, at, written)
            elif keyword in _ONE or (keyword == "items" and not isinstance(value, list)):
                written[keyword] = self._part(value, at)
            elif (keyword in _LISTS or keyword == "items") and isinstance(value, list):
                branches = [self._part(one, f"{at}[{index}]") for index, one in enumerate(value)]
                if keyword == "allOf":
                    _also(written, branches)
                else:
                    written[keyword] = branches
            elif keyword in (*_NAMED, *_DEFINITIONS) and isinstance(value, dict):
                if keyword == "properties" and len(value) > MAX_PROPERTIES:
                    raise ConstraintError(
                        f"An object has {len(value)} properties; at most {MAX_PROPERTIES} are possible.",
                        "Put properties that belong together into an object of their own.",
                        at,
                    )
                written[keyword] = {name: self._part(one, _join(at, name)) for name, one in value.items()}
            else:
                self._count(self._weight(value))
                written[keyword] = value
        self._add_conditions(part, path, written, conditions)
        return written

    def _weight(self, value: Any) -> int:
        """Return how many parts a value counts as: a long list may be repeated."""
        if not isinstance(value, list | dict | str):
            return 0
        if id(value) not in self._weights:
            self._weights[id(value)] = len(value) // 100 if isinstance(value, str) else _size(value, members=True) // 4
        return self._weights[id(value)]

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise ConstraintError(
                f"It has more than {MAX_PARTS} parts, with those that its references and conditions repeat.",
                "Send a smaller schema, or split the task.",
            )

    def _reference(self, reference: Any) -> Any:
        if not isinstance(reference, str) or reference == "#" or self._references.target(reference) is None:
            return reference
        if reference not in self._targets:
            names = steps(reference)
            if len(names) == 2 and names[0] in _DEFINITIONS:
                self._targets[reference] = (names[0], names[1])
            else:  # the place may be written otherwise
                label = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(names))[:100]
                self._targets[reference] = ("$defs", f"{label}_{len(self._targets)}")
            self._pending.append(reference)
        section, name = self._targets[reference]
        return reference if section == steps(reference)[0] and name == steps(reference)[1] else f"#/{section}/{name}"

    def _format(self, value: Any, at: str, written: Schema) -> None:
        keywords = as_keywords(value)
        if keywords is None:
            self._ignored.setdefault(f"format[{value}]" if isinstance(value, str) else at)
        elif "pattern" in keywords:
            _also(written, [keywords])
        else:
            written |= keywords

    # -- conditions --------------------------------------------------------------------

    def _write(self, part: Schema, keyword: str, path: str, written: Schema, conditions: list[Any]) -> None:
        """Add a keyword as a condition: alternatives of which one has to fit."""
        groups = _WRITERS[keyword](self, part)
        if groups is None and keyword not in _CHECKED:  # llguidance refuses it by name
            written[keyword] = part[keyword]
            return
        if groups is None:
            self._check_at_end(path, keyword)
            groups = [self._logic_free(part, keyword)]
        for alternatives in groups:
            if alternatives != [True]:
                conditions.append((keyword, alternatives))

    def _check_at_end(self, path: str, keyword: str) -> None:
        self._checks.setdefault((path, keyword), EndCheck(_join(path, keyword), keyword))

    def _logic_free(self, part: Schema, keyword: str) -> list[Any]:
        """Return what can be enforced at least of a keyword that is checked at the end."""
        value = part[keyword]
        if keyword == "oneOf" and isinstance(value, list):
            return value
        if keyword == "if" and "else" in part:
            return [{"allOf": [value, part.get("then", True)]}, part["else"]]
        return [True]

    def _add_conditions(
        self, part: Schema, path: str, written: Schema, conditions: list[tuple[str, list[Any]]]
    ) -> None:
        """Multiply the conditions out, as far as that stays small; one that does not is checked at the end."""
        if not conditions:
            return
        base = {keyword: value for keyword, value in part.items() if keyword not in _WRITERS}
        size = _size(written)
        choices: list[list[Any]] = [[]]
        copies = 0
        for keyword, alternatives in sorted(conditions, key=lambda condition: len(condition[1])):
            product = self._logic.product(choices, alternatives, base) if len(alternatives) > 1 else None
            if product is None:
                product = [[*parts, *alternatives] for parts in choices]
            copies = len(product) * (size + _size(alternatives))
            multiplied = len(choices) > 1 and (len(product) > MAX_PRODUCT or copies > MAX_COPIES)
            if len(product) > 1 and (multiplied or (not self._expand and keyword != "oneOf")):
                self._check_at_end(path, keyword)
            else:
                choices = product
        options = [[self._part(one, path) for one in parts] for parts in choices]
        if not options:
            _also(written, [False])
        elif len(options) == 1:
            _also(written, options[0])
        else:
            choice = {"anyOf": [parts[0] if len(parts) == 1 else {"allOf": parts} for parts in options]}
            _also(written, [choice])

    # -- writers: groups of alternatives, or None if a keyword cannot be written ---------

    def _one_of(self, part: Schema) -> list[list[Any]] | None:
        branches = part["oneOf"]
        if not isinstance(branches, list) or not branches:
            return [[False]]
        base = {keyword: value for keyword, value in part.items() if keyword not in _WRITERS}
        kept = [branch for branch in branches if not self._logic.disjoint(base, branch)]
        alternatives: list[Any] = []
        for at, branch in enumerate(kept):
            here = {"allOf": [base, branch]}
            others = [other for one, other in enumerate(kept) if one != at and not self._exclude(here, branch, other)]
            if not others:
                alternatives.append(branch)
                continue
            opposite = self._logic.none_of(others)
            if opposite is None:
                return None
            alternatives += [{"allOf": [branch, other]} for other in opposite if not self._logic.disjoint(here, other)]
            if len(alternatives) > MAX_PRODUCT:
                return None
        return [alternatives or [False]]

    def _exclude(self, here: Schema, branch: Any, other: Any) -> bool:
        """Return whether two branches exclude each other, each pair judged once."""
        pair = (min(id(branch), id(other)), max(id(branch), id(other)))
        if branch is other or pair not in self._pairs:
            self._pairs[pair] = self._logic.disjoint(here, other)
        return self._pairs[pair]

    def _not(self, part: Schema) -> list[list[Any]] | None:
        opposite = self._logic.negation(part["not"])
        return None if opposite is None else [opposite or [False]]

    def _if(self, part: Schema) -> list[list[Any]] | None:
        condition, then, otherwise = part["if"], part.get("then", True), part.get("else", True)
        if then in (True, {}) and otherwise in (True, {}):
            return []
        opposite = self._logic.negation(condition)
        if opposite is None:
            return None
        return [[{"allOf": [condition, then]}, *({"allOf": [other, otherwise]} for other in opposite)]]

    def _dependencies(self, part: Schema) -> list[list[Any]] | None:
        return self._depend(part, part["dependencies"])

    def _dependent_required(self, part: Schema) -> list[list[Any]] | None:
        return self._depend(part, part["dependentRequired"])

    def _dependent_schemas(self, part: Schema) -> list[list[Any]] | None:
        return self._depend(part, part["dependentSchemas"])

    def _depend(self, part: Schema, needs: Any) -> list[list[Any]]:
        groups = []
        for name, need in needs.items() if isinstance(needs, dict) else ():
            names = [need] if isinstance(need, str) else need
            wanted = {"required": names} if isinstance(names, list) else need
            if wanted in (True, {}, {"required": []}):
                continue
            present = {"required": [name], "type": "object"}
            groups.append([{"properties": {name: False}}, {"allOf": [wanted, present]}])
        return groups

    def _property_names(self, part: Schema) -> list[list[Any]] | None:
        rule = self._names_rule(part["propertyNames"])
        return None if rule is None else [[rule]]

    def _names_rule(self, names: Any) -> Any:
        """Return an object's schema that allows these names only."""
        if names is False:
            return {"maxProperties": 0}
        if (values := self._logic.values(names)) is not None:
            texts = [value for value in values if isinstance(value, str)]
            return {"properties": dict.fromkeys(texts, True), "additionalProperties": False}
        rules: list[Any] = []
        for one in self._logic.conjuncts(names):
            if not isinstance(one, dict):
                continue
            if "string" not in self._logic.types(one):
                return {"maxProperties": 0}
            shortest, longest = number_of(one.get("minLength")), number_of(one.get("maxLength"))
            if shortest or longest is not None:
                least, most = int(shortest or 0), "" if longest is None else int(longest)
                rules.append(f"^(?s:.{{{least},{most}}})$")
            if isinstance(pattern := one.get("pattern"), str):
                rules.append(pattern)
            if keywords := as_keywords(one.get("format")):
                if "pattern" not in keywords:
                    return None
                rules.append(keywords["pattern"])
            if isinstance(one.get("not"), dict) and (values := self._logic.values(one["not"])) is not None:
                return None if rules else {"properties": {v: False for v in values if isinstance(v, str)}}
            if one.keys() - _NAME_KEYWORDS - _DROPPED:
                return None
        if len(rules) > 1:
            return None
        return {"patternProperties": {rules[0]: True}, "additionalProperties": False} if rules else True

    def _unique_items(self, part: Schema) -> list[list[Any]] | None:
        if part["uniqueItems"] is not True:
            return []
        most = number_of(part.get("maxItems"))
        if most is not None and most <= 1:
            return []
        items = part.get("items", True)
        if isinstance(items, list) or part.get("prefixItems"):
            return None
        values = self._logic.values(items)
        if values is None:
            return None
        least = int(number_of(part.get("minItems")) or 0)
        longest = len(values) if most is None else min(len(values), int(most))
        lists = sum(_arrangements(len(values), size) for size in range(least, longest + 1))
        types = self._logic.types(part) - {"array"}
        others = [{"type": type_names(types)}] if types and type_names(types) else []
        if types != frozenset() and not others:
            return None
        if lists > MAX_LISTS or not self._expand:
            return None
        written: list[Any] = [
            {"type": "array", "prefixItems": [{"const": value} for value in values], "minItems": size, "maxItems": size}
            for size in range(least, longest + 1)
            for values in itertools.permutations(self._logic.values(items) or [], size)
        ]
        return [[*others, *written] or [False]]

    def _unevaluated_properties(self, part: Schema) -> list[list[Any]] | None:
        """Write the keyword as ``additionalProperties`` where each property's evaluation is certain."""
        rest, parts = part["unevaluatedProperties"], self._logic.conjuncts(part)
        if rest in (True, {}) or any(isinstance(one, dict) and "additionalProperties" in one for one in parts):
            return []
        if any(isinstance(one, dict) and one.keys() & _CHOOSING for one in parts):
            return None
        names: Schema = {}
        patterns: Schema = {}
        for one in parts:
            for keyword, known in (("properties", names), ("patternProperties", patterns)):
                if isinstance(one, dict) and isinstance(named := one.get(keyword), dict):
                    known |= dict.fromkeys(named, True)
        return [[{"properties": names, "patternProperties": patterns, "additionalProperties": rest}]]

    def _unevaluated_items(self, part: Schema) -> list[list[Any]] | None:
        rest, parts = part["unevaluatedItems"], self._logic.conjuncts(part)
        rules = [one for one in parts if isinstance(one, dict)]
        if rest in (True, {}) or any(
            not isinstance(one.get("items", []), list) or "additionalItems" in one for one in rules
        ):
            return []
        if any(one.keys() & (_CHOOSING | {"contains"}) for one in rules):
            return None
        first = max((len(one.get("prefixItems") or one.get("items") or []) for one in rules), default=0)
        return [[{"prefixItems": [True] * first, "items": rest} if first else {"items": rest}]]

    def _contains(self, part: Schema) -> list[list[Any]] | None:
        return [] if part.get("minContains") == 0 and "maxContains" not in part else None


_NAME_KEYWORDS = frozenset(("type", "minLength", "maxLength", "pattern", "format", "not", "allOf", "$ref"))
# Keywords by which some parts of a schema judge a value in one case and not in another.
_CHOOSING = frozenset(
    ("anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef")
)
_WRITERS = {
    "oneOf": _Rewriting._one_of,
    "not": _Rewriting._not,
    "if": _Rewriting._if,
    "dependencies": _Rewriting._dependencies,
    "dependentRequired": _Rewriting._dependent_required,
    "dependentSchemas": _Rewriting._dependent_schemas,
    "propertyNames": _Rewriting._property_names,
    "uniqueItems": _Rewriting._unique_items,
    "contains": _Rewriting._contains,
    "unevaluatedProperties": _Rewriting._unevaluated_properties,
    "unevaluatedItems": _Rewriting._unevaluated_items,
}


# Keywords that the check of finished answers knows.
_CHECKED = _WRITERS.keys() - {"unevaluatedProperties", "unevaluatedItems"}


def _arrangements(values: int, size: int) -> int:
    count = 1
    for factor in range(values - size + 1, values + 1):
        count *= factor
        if count > MAX_LISTS:
            break
    return count


def _size(part: Any, *, members: bool = False) -> int:
    """Return the number of parts in a part, up to a bound; with ``members``, of all values in it."""
    count, pending = 0, [part]
    while pending and count < MAX_COPIES:
        one = pending.pop()
        count += members or isinstance(one, dict)
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return count


def _also(written: Schema, parts: list[Any]) -> None:
    """Add parts that must fit too."""
    if isinstance(known := written.setdefault("allOf", []), list):
        known += parts


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
