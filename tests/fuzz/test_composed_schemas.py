"""JSON Schemas whose keywords meet in every way: refused at once, or each answer ends, and fits or is named."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
from hypothesis import strategies as st
from lorikeet_testing.composed_schemas import composed_schema
from lorikeet_testing.constrained_walks import Walker
from lorikeet_testing.fuzzing import fuzz

from lora_engine.constraints import Constraint, ConstraintError, Kind, violations
from lora_engine.structured.grammars import token_tables
from lora_engine.text import Tokenizer

DEMO = Path(__file__).parents[2] / "demo" / "model"


@dataclass(frozen=True)
class Case:
    seed: int
    best_effort: bool


CASES = st.builds(Case, st.integers(0, 1 << 32), st.sampled_from([False, False, True]))


@cache
def walker() -> Walker:
    tokenizer = Tokenizer.load(DEMO)
    return Walker(tokenizer, token_tables(tokenizer, tokenizer.vocab_size))


def try_case(case: Case) -> str:
    rnd = random.Random(case.seed)
    text = json.dumps(composed_schema(rnd))
    # Decimals: in floats 0.3 is no multiple of 0.1.
    schema = json.loads(text, parse_float=Decimal)
    outcomes = set()
    for _ in range(2):
        try:
            answer = walker().walk(Constraint(Kind.JSON_SCHEMA, text, case.best_effort), rnd)
        except ConstraintError as error:
            assert error.message and error.fix
            return "refused"
        except AssertionError as error:
            error.add_note(text)
            raise
        outcomes.add("long" if answer is None else "ended")
        if answer is not None:
            value = json.loads(answer, parse_float=Decimal)
            if not case.best_effort:
                try:
                    jsonschema.Draft202012Validator(schema).validate(value)
                except RecursionError:
                    return "not judged"  # the validator follows a reference to itself without end
                except jsonschema.ValidationError as error:
                    if violations(json.loads(text), answer):
                        return "named"  # by a keyword that is checked at the end
                    raise AssertionError(f"{answer} is not of {text}: {error.message}") from None
    return "/".join(sorted(outcomes))


def vary(case: Case, rnd: random.Random) -> Case:
    return replace(case, seed=rnd.randrange(1 << 32))


def test_composed_schemas() -> None:
    fuzz("composed schemas", CASES, try_case, vary=vary, long_cases=10_000)
