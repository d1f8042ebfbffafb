"""Keywords that llguidance lacks: the answers that may be written are those that the `jsonschema` library accepts."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from lora_engine.constraints import (
    Compiled,
    Constraint,
    ConstraintError,
    Kind,
    compile_constraint,
    door_tokenizer,
    violations,
)
from lora_engine.constraints.constraint import MAX_BYTES

TEXT, INT, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
AB = {"type": "object", "properties": {"a": INT, "b": INT}, "additionalProperties": False}
SUBSETS: list[Any] = [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]
KINDS: dict[str, Any] = {"type": "object", "properties": {"kind": {"enum": ["x", "y"]}, "v": {}}, "required": ["kind"]}
KIND_VALUES: list[Any] = [{"kind": kind, **v} for kind in ("x", "y") for v in ({}, {"v": 1}, {"v": "s"})]
TEXTS: list[Any] = ["", "a", "ab", "abc", "größe", 'q"', "b"]
ANYTHING: list[Any] = [None, True, False, 0, 1, -2, 1.5, "", "a", "ab", [], [1], {}, {"a": 1}]

# Schema, and values of which each may be written exactly if the schema allows it.
EXACT: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "oneOf by a constant": (
        {"oneOf": [{**KINDS, "properties": {"kind": {"const": "x"}, "v": TEXT}},
                   {**KINDS, "properties": {"kind": {"enum": ["y"]}, "v": INT}}]}, KIND_VALUES),
    "oneOf by type": ({"oneOf": [TEXT, NULL, {"type": "array", "maxItems": 1}, {"type": "object", "maxProperties": 0}]},
                      ANYTHING),
    "oneOf by required keys": ({**AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, SUBSETS),
    "oneOf by closed objects": (
        {"oneOf": [{**AB, "required": ["a"]}, {"type": "object", "properties": {"c": INT}, "required": ["c"],
                                               "additionalProperties": False}]},
        [*SUBSETS, {"c": 1}, {"a": 1, "c": 1}]),
    "oneOf by references": (
        {"oneOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/definitions/y"}], "$defs": {"x": {**TEXT, "maxLength": 1}},
         "definitions": {"y": {**TEXT, "minLength": 3}}}, TEXTS),
    "oneOf of a listed and any string": ({"oneOf": [{"enum": ["a", "größe"]}, TEXT]}, TEXTS),
    "oneOf by ranges": ({"oneOf": [{**INT, "maximum": 0}, {**INT, "minimum": 1}]}, ANYTHING),
    "oneOf of overlapping ranges": ({"type": "integer", "oneOf": [{"maximum": 1}, {"minimum": 0}]}, [-1, 0, 1, 2]),
    "oneOf by patterns": ({"oneOf": [{**TEXT, "pattern": "^a$"}, {**TEXT, "pattern": "^.{2}$"}]}, TEXTS),
    "oneOf with the same branch twice": ({"oneOf": [TEXT, TEXT, INT]}, ANYTHING),
    "oneOf that a reference points into": (
        {"type": "object", "properties": {"a": {"oneOf": [TEXT, INT]}, "b": {"$ref": "#/properties/a/oneOf/1"}}},
        [{"a": 1, "b": 1}, {"a": "s", "b": 1}, {"b": "s"}, {"a": None}]),
    "not a type": ({"not": {"type": ["string", "number"]}}, ANYTHING),
    "not a number": ({"not": {"type": "number"}}, ANYTHING),
    "not required": ({**AB, "not": {"required": ["a", "b"]}}, SUBSETS),
    "not any of these keys": ({**AB, "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}, SUBSETS),
    "not enum": ({"type": "string", "not": {"enum": ["a", "ab", "größe"]}}, TEXTS),
    "not const": ({"not": {"const": 1}}, [value for value in ANYTHING if value != 1 or value is True]),
    "not a number of a list": ({"type": "integer", "not": {"enum": [0, 1, 5]}}, [-1, 0, 1, 2, 5, 6]),
    "not null": ({"not": {"const": None}}, ANYTHING),
    "not an empty string": ({"type": ["string", "null"], "not": {"maxLength": 0}}, [None, "", "a"]),
    "not a property's value": (
        {**KINDS, "not": {"properties": {"kind": {"const": "x"}}, "required": ["kind"]}}, KIND_VALUES),
    "dependencies on keys": ({**AB, "dependentRequired": {"a": ["b"]}}, SUBSETS),
    "dependencies both ways": ({**AB, "dependentRequired": {"a": ["b"], "b": ["a"]}}, SUBSETS),
    "dependencies on a schema": ({**AB, "dependentSchemas": {"a": {"properties": {"b": {"minimum": 2}}}}},
                                 [*SUBSETS, {"a": 1, "b": 2}]),
    "dependencies of draft 7": (
        {"$schema": "http://json-schema.org/draft-07/schema#", **AB,
         "dependencies": {"a": ["b"], "b": {"properties": {"b": {"minimum": 2}}}}}, [*SUBSETS, {"a": 1, "b": 2}]),
    "if, then, else": (
        {**KINDS, "if": {"properties": {"kind": {"const": "x"}}}, "then": {"properties": {"v": INT}, "required": ["v"]},
         "else": {"properties": {"v": TEXT}}}, KIND_VALUES),
    "if for each kind": (
        {**KINDS, "allOf": [
            {"if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["v"]}},
            {"if": {"properties": {"kind": {"const": "y"}}}, "then": {"properties": {"v": INT}}}]}, KIND_VALUES),
    "different items of a list": ({"type": "array", "items": {"enum": ["a", 1, None]}, "uniqueItems": True},
                                  [[], ["a"], ["a", 1], [1, "a"], ["a", "a"], [None, 1, "a"], [1, 1, "a"]]),
    "two different booleans": ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2},
                               [[], [True], [True, False], [False, True], [True, True]]),
    "at most one item": ({"type": "array", "uniqueItems": True, "items": INT, "maxItems": 1}, [[], [1], [1, 1]]),
    "names by a pattern": ({"type": "object", "propertyNames": {"pattern": "^[ab]$"},
                            "properties": {"a": INT, "c": INT}},
                           [{}, {"a": 1}, {"a": "s"}, {"b": None}, {"c": 1}, {"d": 1}]),
    "names from a list": ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INT},
                          [{}, {"a": 1}, {"b": "s"}, {"c": 1}]),
    "short names": ({"type": "object", "propertyNames": {"maxLength": 2, "minLength": 1}, "additionalProperties": INT},
                    [{}, {"": 1}, {"a": 1}, {'q"': 1}, {"abc": 1}]),
    "counts written as floats": ({"type": "array", "items": NULL, "minItems": 1.0, "maxItems": 2.0},
                                 [[], [None], [None, None], [None, None, None]]),
    "unevaluatedProperties": (
        {"allOf": [{"$ref": "#/$defs/base"}], "properties": {"b": INT}, "unevaluatedProperties": False,
         "$defs": {"base": {"type": "object", "properties": {"a": INT}}}},
        [{}, {"a": 1, "b": 1}, {"c": 1}, {"a": "s"}]),
    "unevaluatedItems": ({"type": "array", "prefixItems": [INT], "unevaluatedItems": False}, [[], [1], ["s"], [1, 1]]),
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an opposite that cannot be judged": ({"items": {"not": {"pattern": "(?=a)"}}}, "items.not"),
    "an opposite of references to another document": ({"items": {"not": {"$ref": "http://a.b/c"}}}, "items.not"),
    "a choice beside what it decides": (
        {"oneOf": [{"pattern": "a"}, TEXT], "properties": {"a": {"type": "object", "unevaluatedProperties": False}}},
        "oneOf"),
    "unevaluatedProperties of a choice": (
        {"anyOf": [{"properties": {"a": INT}}, {"properties": {"b": INT}}], "unevaluatedProperties": False},
        "unevaluatedProperties"),
    "too many properties of an object": ({"properties": {f"p{at}": {} for at in range(4001)}}, "properties"),
}  # fmt: skip
# Schemas with a keyword that is checked when an answer is finished, its place, and values that an answer may have,
# with what is named of them.
CHECKED: dict[str, tuple[dict[str, Any], str, list[tuple[Any, str]]]] = {
    "contains": ({"properties": {"a": {"type": "array", "contains": INT}}}, "properties.a.contains",
                 [({"a": ["s", 1]}, ""), ({"a": ["s"]}, "a")]),
    "an opposite of a pattern": ({"type": "array", "items": {"type": "string", "not": {"pattern": "a"}}}, "items.not",
                                 [(["b"], ""), (["b", "a"], "[1]")]),
    "branches that overlap": (
        {"$defs": {"x": {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "maxLength": 2}]}},
         "type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}},
        "$defs.x.oneOf", [({"a": "abc"}, ""), ({"a": "b"}, ""), ({"a": "ab"}, "a")]),
    "different strings": ({"type": "array", "items": TEXT, "uniqueItems": True}, "uniqueItems",
                          [(["a", "b"], ""), (["a", "a"], "")]),
    "a list without an enum": ({"type": "array", "items": {"enum": list("abcde")}, "uniqueItems": True}, "uniqueItems",
                               [(["a", "b"], ""), (["a", "a"], "")]),
}  # fmt: skip
FORMATS = {
    "url": (["http://a.b/c?d#e", "mailto:a@b"], ["a b", "/a"]),
    "uri-reference": (["/a/b", "a/b?c#d", "http://a.b/", "#x", ""], ["a b", "%zz"]),
    "json-pointer": (["", "/a/0", "/a~1b"], ["a", "/~2"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["/a", "01"]),
    "uri-template": (["/a/{id}", "/{?x,y*}"], ["{", "/{}"]),
    "regex": (["^a+(b|c)?[a-z]{2}$", r"\d+", ""], ["(", "[a", "*"]),
    "path": (["/a/b c", "a.txt"], [""]),
    "guid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08"]),
    "date-time": (["2020-02-03T04:05:06Z"], ["2020-02-03"]),
    "a name of one's own": (["", "anything"], []),
}


def compiled(schema: Any) -> Compiled:
    return compile_constraint(Constraint(Kind.JSON_SCHEMA, json.dumps(schema)), door_tokenizer())


def writes(grammar: Compiled, value: Any) -> bool:
    matcher = grammar.matcher.deep_copy()
    tokens = door_tokenizer().tokenize_str(json.dumps(value, ensure_ascii=False))
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


def validator(schema: dict[str, Any]) -> Any:
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)


def drawn(grammar: Compiled, rnd: random.Random) -> str | None:
    """An answer of bytes drawn from the masks; None if it did not end soon."""
    matcher, text, end = grammar.matcher.deep_copy(), bytearray(), door_tokenizer().eos_token
    for _ in range(300):
        mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(mask, bitorder="little").nonzero()[0].tolist()
        assert allowed and not matcher.is_error(), f"stuck after {bytes(text)!r}"
        if end in allowed:
            return text.decode()
        closing = [byte for byte in allowed if byte in b'"}],']
        text.append(rnd.choice(closing if closing and rnd.random() < 0.6 else allowed))
        assert matcher.consume_token(text[-1])
        if matcher.is_stopped():
            return text.decode()
    return None


@pytest.mark.parametrize("name", EXACT)
def test_exactly_what_the_schema_allows_is_written(name: str) -> None:
    schema, values = EXACT[name]
    grammar, oracle = compiled(schema), validator(schema)
    for value in values:
        assert writes(grammar, value) == oracle.is_valid(value), value
    for seed in range(6):
        if (answer := drawn(grammar, random.Random(seed))) is not None:
            oracle.validate(json.loads(answer))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_exact_is_refused_with_its_place(name: str) -> None:
    schema, path = REFUSED[name]
    with pytest.raises(ConstraintError) as refusal:
        compiled(schema)
    assert refusal.value.path == path and refusal.value.fix


@pytest.mark.parametrize("schema", [{"not": {}}, {"oneOf": [TEXT, TEXT]}, {"oneOf": [True, {}]}])
def test_a_schema_that_nothing_fits_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ConstraintError):
        compiled(schema)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_patterns_and_unknown_ones_annotations(name: str) -> None:
    grammar = compiled({"type": "string", "format": name})
    good, bad = FORMATS[name]
    assert [text for text in good if not writes(grammar, text)] == []
    assert [text for text in bad if writes(grammar, text)] == []
    assert grammar.ignored == ((f"format[{name}]",) if name == "a name of one's own" else ())


@pytest.mark.parametrize("name", CHECKED)
def test_what_no_grammar_enforces_is_checked_at_the_end(name: str) -> None:
    schema, path, values = CHECKED[name]
    grammar, oracle = compiled(schema), validator(schema)
    assert [check.path for check in grammar.checks] == [path]
    for value, place in values:
        assert writes(grammar, value)
        found = violations(schema, json.dumps(value))
        assert bool(found) != oracle.is_valid(value), value
        assert [(one.path, one.keyword.rsplit(".", 1)[-1]) for one in found[:1]] == (
            [] if oracle.is_valid(value) else [(place, path.rsplit(".", 1)[-1])]
        )


def test_what_cannot_be_judged_is_not_checked_without_strict() -> None:
    schema = {"oneOf": [{"pattern": "a"}, TEXT], "unevaluatedProperties": False}
    grammar = compile_constraint(Constraint(Kind.JSON_SCHEMA, json.dumps(schema), True), door_tokenizer())
    assert (grammar.checks, grammar.ignored) == ((), ("unevaluatedProperties",))


def test_drawn_regular_expressions_compile() -> None:
    import re

    grammar = compiled({"type": "string", "format": "regex"})
    for seed in range(40):
        if (answer := drawn(grammar, random.Random(seed))) is not None:
            re.compile(json.loads(answer))


def test_long_descriptions_do_not_count() -> None:
    described = {"properties": {f"p{at}": {**TEXT, "description": "x" * 400} for at in range(600)}}
    assert 128 * 1024 < len(json.dumps(described)) < MAX_BYTES
    compiled(described)


def test_many_conditions_are_not_multiplied_out() -> None:
    names = [f"p{at}" for at in range(40)]
    needs = dict(zip(names, ([name] for name in names[1:]), strict=False))
    grammar = compiled({"type": "object", "properties": dict.fromkeys(names, INT), "dependentRequired": needs})
    assert [check.path for check in grammar.checks] == ["dependentRequired"]
