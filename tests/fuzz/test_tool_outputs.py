"""What models write, with calls and reasoning in every format, whole or damaged, cut into pieces at random."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from lorikeet_testing.fuzzing import fuzz
from lorikeet_testing.tool_outputs import FORMATS, THINK, cut, output_of, random_output, read


@dataclass(frozen=True)
class Case:
    format: str
    seed: int
    certain: bool
    reasoning: bool


CASES = st.builds(Case, st.sampled_from(FORMATS), st.integers(0, 1 << 32), st.booleans(), st.booleans())


def try_case(case: Case) -> str:
    """The same is read whole, character by character, and from pieces cut at random; of some, cut in two anywhere."""
    rng = random.Random(case.seed)
    text = random_output(case.format, rng)
    opened = case.reasoning and rng.random() < 0.5
    output = output_of(
        case.format,
        certain=case.certain,
        single=rng.random() < 0.2,
        reasoning=THINK if case.reasoning else None,
        reasoning_opened=opened,
    )
    if case.reasoning:
        text = ("" if opened else "<think>") + rng.choice(("", "hm\n", "a < b")) + rng.choice(("</think>", "")) + text
    whole = read(output, [text])
    assert read(output, text) == whole, text
    for pieces in (1, 2, 6):
        at = [rng.randrange(len(text) + 1) for _ in range(pieces)]
        assert read(output, cut(text, at)) == whole, (text, at)
    if rng.random() < 0.1:  # what streams have in one piece hides what they have in two
        assert all(read(output, cut(text, [at])) == whole for at in range(len(text))), text
    if not case.certain:
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in whole.calls), text
    return f"{case.format}: {min(len(whole.calls), 2)} calls"


def vary(case: Case, rng: random.Random) -> Case:
    return replace(case, seed=rng.randrange(1 << 32))


def test_tool_outputs() -> None:
    fuzz("tool_outputs", CASES, try_case, vary=vary, long_cases=50_000)
