"""Schemas in which llguidance's answers got stuck: served, or refused by name before the first token."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lorikeet_testing.constrained_walks import Walker

from lora_engine.constraints import Constraint, ConstraintError, Kind, compile_constraint, door_tokenizer
from lora_engine.structured.grammars import token_tables
from lora_engine.text import Tokenizer

DEMO = Path(__file__).parents[2] / "demo" / "model"
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
A_TENTH = {"type": "number", "minimum": 0.1, "maximum": 0.15, "multipleOf": 0.1}
ENDLESS = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
SERVED: dict[str, dict[str, Any]] = {
    "a pattern covers a property": {
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
        "required": ["score"],
        "patternProperties": {"^score$": INTEGER},
    },
    "a pattern covers what is required": {"patternProperties": {"^a$": INTEGER}, "required": ["a"]},
    "a pattern covers two properties": {
        "properties": {"a": {"minimum": 3}, "b": {}},
        "patternProperties": {"^(a|b)$": INTEGER},
    },
    "patterns cover the same property": {
        "patternProperties": {"^a$": INTEGER, "^[ab]$": {**INTEGER, "maximum": 9}},
        "required": ["a"],
    },
    "by a part of allOf": {
        "allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"patternProperties": {"^a$": INTEGER}}],
        "additionalProperties": {},
    },
    "by a reference": {
        "$ref": "#/$defs/open",
        "patternProperties": {"^a$": INTEGER},
        "additionalProperties": {},
        "$defs": {"open": {"properties": {"a": {}}, "required": ["a"]}},
    },
    "an optional part without an end": {
        "properties": {"a": {"$ref": "#/$defs/node"}, "b": NULL},
        "$defs": {"node": {**ENDLESS, "additionalProperties": False}},
    },
    "a choice without an end": {
        "properties": {"a": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}},
        "required": ["a"],
        "$defs": {"node": ENDLESS},
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a list without an end": (
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1}},
        },
        "lead back to themselves",
    ),
    "an object without an end": ({**ENDLESS, "$defs": {"node": ENDLESS}}, "lead back to themselves"),
    "a reference to itself": ({"$ref": "#"}, "lead back to themselves"),
    "a fraction's multiples": ({"properties": {"a": A_TENTH}}, "multipleOf (0.1) cannot be enforced"),
    "a fraction's multiples, in parts": (
        {"allOf": [{"type": "number", "multipleOf": 0.1}, {"minimum": 0.1, "maximum": 0.15}]},
        "multipleOf (0.1) cannot be enforced",
    ),
    "the same key twice": (
        {"patternProperties": {"^[ab]$": NULL}, "additionalProperties": False, "minProperties": 2},
        "minProperties (2) cannot be enforced",
    ),
    "fewer keys than wanted": (
        {"patternProperties": {"^a$": NULL}, "properties": {"a": {}}, "required": ["a"], "minProperties": 2},
        "minProperties",
    ),
    "too many patterns": ({"patternProperties": {f"^{number}$": NULL for number in range(201)}}, "201 patternProp"),
}


def as_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.keys() & {"type", "$ref", "allOf"}:
        return schema
    return {"type": "object", "additionalProperties": False, **schema}


@pytest.fixture(scope="module")
def walker() -> Walker:
    tokenizer = Tokenizer.load(DEMO)
    return Walker(tokenizer, token_tables(tokenizer, tokenizer.vocab_size))


@pytest.mark.parametrize("name", SERVED)
def test_served(walker: Walker, name: str) -> None:
    schema, ended = as_object(SERVED[name]), 0
    for seed in range(20):
        answer = walker.walk(Constraint(Kind.JSON_SCHEMA, json.dumps(schema)), random.Random(seed))
        if answer is not None:  # else it went on, as draws at random may
            ended += 1
            jsonschema.Draft202012Validator(schema).validate(json.loads(answer))
    assert ended > 15


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    schema, message = REFUSED[name]
    with pytest.raises(ConstraintError, match=re.escape(message)) as refusal:
        compile_constraint(Constraint(Kind.JSON_SCHEMA, json.dumps(as_object(schema))), door_tokenizer())
    assert refusal.value.fix


@pytest.mark.parametrize("name", ["a fraction's multiples", "a fraction's multiples, in parts", "the same key twice"])
def test_a_best_effort_leaves_such_keywords_out(walker: Walker, name: str) -> None:
    text = json.dumps(as_object(REFUSED[name][0]))
    for seed in range(10):
        walker.walk(Constraint(Kind.JSON_SCHEMA, text, best_effort=True), random.Random(seed))


@pytest.mark.parametrize(
    ("regex", "ascii_only"),
    [
        (r"\d{3}-\d{2}", True), (r"\w{3}", True), (r"\s{2}", True), (r"[\d]{2}", True), (r"[\w-]{3}", True),
        (r"[^\W\d]{2}", True), (r"(?i)\w{4}", True), (r"[]\d]{3}", True), (r"\\\d", True), (r"[[:alpha:]\s]{3}", True),
        (r"\D{3}", False), (r"\W{3}", False), (r"[^\d]{3}", False), (r"[é\d]{8}", False),
    ],
)  # fmt: skip
def test_classes_of_regular_expressions_are_ascii(walker: Walker, regex: str, ascii_only: bool) -> None:
    answers = [walker.walk(Constraint(Kind.REGEX, regex), random.Random(seed)) for seed in range(30)]
    assert all(answer is not None for answer in answers)
    assert all(str(answer).isascii() for answer in answers) == ascii_only
    if "[:" not in regex and "[]" not in regex:
        assert all(re.fullmatch(regex, str(answer), re.ASCII) for answer in answers)


@pytest.mark.parametrize("pattern", [r"^\d\w\s$", r"^[\d\s]{3}$", r"^a\s+b$", r"^[^\s]\S$", r"^[\s-]{2}$"])
def test_patterns_of_schemas_hold_in_every_reading(walker: Walker, pattern: str) -> None:
    r"""\s is ECMA-262's, Unicode's or ASCII's, by whoever checks."""
    text = json.dumps({"type": "string", "pattern": pattern})
    for seed in range(20):
        answer = walker.walk(Constraint(Kind.JSON_SCHEMA, text), random.Random(seed))
        assert answer is not None
        value = json.loads(answer)
        assert re.search(pattern, value)
        assert r"[^\s]" in pattern or "-" in pattern or re.search(pattern, value, re.ASCII)
