"""Evaluation sets and names of combined adapters, as a tenant may send them: read, or refused by name."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from lorikeet_testing.fuzzing import changed, fuzz

from control_plane.adapters.evaluations.item_files import read_items
from control_plane.adapters.registry.combinations import is_combination, read_combination
from control_plane.adapters.registry.models import EvaluationMetric
from control_plane.core.errors import LorikeetError
from lora_engine.peft_format import LARGEST_WEIGHT, MAX_PARTS

TEXTS = st.sampled_from(["2 + 2 =", "4", " ", "", "é\u2028", "\0", "\ud83d", "x" * 5000]) | st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = TEXTS | st.sampled_from(
    [None, 1, 1.5, True, [], {}, [{"role": "user", "content": "a"}]]
)
ITEMS = st.dictionaries(st.sampled_from(["prompt", "messages", "expected", "extra"]), VALUES, max_size=4)
WHOLE = st.fixed_dictionaries({"prompt": TEXTS, "expected": TEXTS}) | st.fixed_dictionaries(
    {"messages": st.just([{"role": "user", "content": "a"}]), "expected": TEXTS}
)
GOOD = st.builds(
    lambda prompt, expected: {"prompt": f"Is {prompt}?", "expected": f"{expected}!"}, *[st.text(max_size=8)] * 2
)
ODD_NUMBERS = [
    f'{{"messages": [{{"role": "user", "content": {number}}}], "expected": "a"}}'
    for number in ("NaN", "1e999", "-Infinity", "9" * 5000)
]
ODD_LINES = ["", "\r", "null", "[]", '{"prompt": "a"', "NaN", *ODD_NUMBERS]
DEEP = st.integers(1, 12).map(lambda power: '{"prompt": "a", "expected": ' + "[" * 3**power + "]" * 3**power + "}")
LINES = (WHOLE | ITEMS).map(json.dumps) | DEEP | st.sampled_from(ODD_LINES)
SETS = (st.lists(GOOD.map(json.dumps), min_size=1, max_size=5) | st.lists(LINES, max_size=6)).map(
    lambda lines: "\n".join(lines).encode()
)

NAMES = st.sampled_from(["a", "b@v2", "c@live", "", "@", "base", "hub:o/n", "ü", "a" * 70])
GOOD_NUMBERS = st.sampled_from(["0.5", "-10", "1", "10.0", "0.0001", "-0.3"])
NUMBERS = GOOD_NUMBERS | st.sampled_from(["10.0001", "0", "-0", "0.0", "1e3", "NaN", "inf", "٣", "", " 1", "99.99999"])


def parts(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda name, weight: name if weight is None else f"{name}:{weight}", NAMES, st.none() | numbers)


MODELS = (
    st.lists(parts(GOOD_NUMBERS), min_size=1, max_size=4) | st.lists(parts(NUMBERS), min_size=1, max_size=18)
).map("+".join)


def told(error: LorikeetError) -> str:
    assert error.code and error.message and error.fix and error.status in (400, 413)
    return error.code


def test_evaluation_sets() -> None:
    def run(content: bytes) -> str:
        said = set()
        for metric in EvaluationMetric:
            try:
                items = read_items(content, metric)
            except LorikeetError as error:
                said.add(told(error))
                continue
            assert items and all(
                item["expected"].strip() and ("prompt" in item) != ("messages" in item) for item in items
            )
            json.dumps(items, ensure_ascii=False, allow_nan=False).encode()  # as it is stored and sent
            said.add("read")
        return " or ".join(sorted(said))

    fuzz("evaluation sets", SETS, run, vary=changed)


def test_names_of_combinations() -> None:
    def run(name: str) -> str:
        if not is_combination(name):
            return "one adapter"
        try:
            parts = read_combination(name)
        except LorikeetError as error:
            return told(error)
        assert 1 <= len(parts) <= MAX_PARTS and len({part for part, _ in parts}) == len(parts)
        assert all(part and 0 < abs(weight) <= LARGEST_WEIGHT for part, weight in parts)
        return f"{len(parts)} adapters"

    fuzz("names of combined adapters", MODELS, run)
