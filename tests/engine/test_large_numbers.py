"""Constraints that ended the process, took minutes to compile, or were answered with another number than they name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lorikeet_testing.constrained_walks import Walker

from lora_engine.constraints import Constraint, ConstraintError, Kind, compile_constraint, door_tokenizer
from lora_engine.structured.grammars import token_tables
from lora_engine.text import Tokenizer

DEMO = Path(__file__).parents[2] / "demo" / "model"
LEAST, MOST = -(1 << 63), (1 << 63) - 1
SERVED: list[dict[str, Any]] = [
    {"type": "integer", "minimum": LEAST, "maximum": LEAST + 5000},
    {"type": "integer", "minimum": LEAST, "maximum": MOST},
    {"type": "integer", "minimum": LEAST, "maximum": 5},
    {"type": "integer", "minimum": 0, "maximum": 2 * MOST + 1},
    {"type": "integer", "exclusiveMinimum": (1 << 53) + 1, "maximum": (1 << 53) + 9},
    {"type": "integer", "exclusiveMinimum": 1 << 60, "exclusiveMaximum": (1 << 60) + 2048},
    {"type": "integer", "minimum": -(1 << 60) - 2000, "exclusiveMaximum": -(1 << 60)},
    {"type": "number", "minimum": -1e300, "maximum": 1.7e308},
    {"type": ["integer", "null"], "minimum": LEAST, "maximum": MOST},
    {"enum": [1 << 60, 5, 1e22]},
    {"type": "integer", "multipleOf": 9973},
]
REFUSED: dict[str, dict[str, Any]] = {
    "const": {"const": LEAST},
    "enum": {"enum": [[10**400]]},
    "anyOf[0].exclusiveMinimum": {"anyOf": [{"type": "integer", "exclusiveMinimum": 10**400}]},
    "anyOf[1].multipleOf": {"anyOf": [{"multipleOf": 2.5}, {"multipleOf": 10**400 + 1}]},
    "properties.id.enum": {"type": "object", "properties": {"id": {"enum": [1_234_567_890_123_456_789, 5]}}},
    "minimum": {"type": "integer", "minimum": MOST + 1, "maximum": 1e20},
    "exclusiveMaximum": {"type": "integer", "exclusiveMaximum": LEAST},
    "multipleOf": {"type": "integer", "multipleOf": 1_000_003},
    "anyOf[0].multipleOf": {"type": "integer", "multipleOf": 7919, "anyOf": [{"multipleOf": 7907}]},
}


@pytest.fixture(scope="module")
def walker() -> Walker:
    tokenizer = Tokenizer.load(DEMO)
    return Walker(tokenizer, token_tables(tokenizer, tokenizer.vocab_size))


@pytest.mark.parametrize("schema", SERVED, ids=json.dumps)
def test_answers_have_the_numbers_of_the_schema(walker: Walker, schema: dict[str, Any]) -> None:
    for seed in range(5):
        answer = walker.walk(Constraint(Kind.JSON_SCHEMA, json.dumps(schema)), random.Random(seed))
        if answer is not None:  # a multiple may not come within the walk's tokens
            jsonschema.Draft202012Validator(schema).validate(json.loads(answer))


@pytest.mark.parametrize("path", REFUSED)
def test_numbers_that_cannot_be_written_are_refused_with_their_place(walker: Walker, path: str) -> None:
    text = json.dumps(REFUSED[path])
    with pytest.raises(ConstraintError) as caught:
        walker.walk(Constraint(Kind.JSON_SCHEMA, text), random.Random(1))
    assert caught.value.path == path
    walker.walk(Constraint(Kind.JSON_SCHEMA, text, best_effort=True), random.Random(1))


def test_schemas_in_grammars_are_read_alike(walker: Walker) -> None:
    for schema in ('{"const": -9223372036854775808}', '{"multipleOf": 1000003, "type": "integer"}'):
        with pytest.raises(ConstraintError):
            walker.walk(Constraint(Kind.GRAMMAR, f'start: "a" %json {schema} "b"'), random.Random(1))
    bounded = '{"type": "integer", "minimum": -9223372036854775808, "maximum": -9223372036854770000}'
    answer = walker.walk(Constraint(Kind.GRAMMAR, f'start: "%json" %json {bounded} "b"'), random.Random(1))
    assert answer is not None and LEAST <= int(answer[len("%json") : -1]) <= -9223372036854770000


@pytest.mark.parametrize("kind", ["properties", "anyOf", "allOf"])
def test_long_chains_of_references_do_not_overflow_the_stack(kind: str) -> None:
    def part(number: int) -> dict[str, Any]:
        following = {"$ref": f"#/$defs/{number + 1}"}
        more = {"properties": {"a": following}, "anyOf": [following, {"type": "null"}], "allOf": [following, {}]}
        return {kind: more[kind]}

    length = 2500 if kind == "anyOf" else 1200
    parts = {str(number): part(number) for number in range(length)} | {str(length): {"type": "null"}}
    schema = {"$ref": "#/$defs/0", "$defs": parts}
    compile_constraint(Constraint(Kind.JSON_SCHEMA, json.dumps(schema)), door_tokenizer())


def test_a_regular_expression_has_a_length(walker: Walker) -> None:
    with pytest.raises(ConstraintError, match="20000"):
        walker.walk(Constraint(Kind.REGEX, "a?" * 50_000), random.Random(1))
