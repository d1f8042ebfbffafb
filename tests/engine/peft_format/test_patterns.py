"""The bounded matcher agrees with Python's ``re`` wherever it accepts a pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key

from lora_engine.peft_format.patterns import PatternError, PatternMatcher, TailPatterns

ATOMS = st.sampled_from(["a", "b", ".", r"\.", r"\d", r"\w", "[ab]", "[^a]", "^", "$", r"\b", "(?=a)", "(?!b)", "x1"])

QUANTIFIERS = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "*?", "{1,}"])


def combine(parts):
    return st.one_of(
        st.lists(parts, min_size=1, max_size=3).map("".join),
        st.lists(parts, min_size=1, max_size=3).map(lambda items: f"({'|'.join(items)})"),
        st.tuples(parts, QUANTIFIERS).map(lambda p: f"({p[0]}){p[1]}"),
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(ATOMS, combine, max_leaves=6), st.text("ab.1x", max_size=7))
def test_agrees_with_re(pattern, text):
    assert PatternMatcher().matches_fully(pattern, text) == (re.fullmatch(pattern, text) is not None)


KEYS = [f"model.layers.{i}.{b}.{t}" for i in (0, 1, 10, 11) for b, t in (("self_attn", "q_proj"), ("mlp", "up_proj"))]
PATTERNS = [
    "q_proj", "up_proj", "_proj", "proj", "layers.1.self_attn.q_proj", r"model\.layers\.1\.self_attn\.q_proj",
    "^model.layers.1.self_attn.q_proj", r"layers\.(0|1)\..*", r".*\.1\..*", "1.self_attn.q_proj",
    r"[0-9]+\.mlp.up_proj", "q_proj|up_proj", "a)|(.*", "mlp", r"layers.\d.mlp.up_proj$",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_tail_matching_is_pefts(pattern, key):
    expected = get_pattern_key([pattern], key)
    found = TailPatterns([pattern], PatternMatcher()).first(key)
    assert (found is not None) == (expected == pattern)


REFUSED = [r"(a)\1", "(?<=a)b", "(?i)a", "(?i:a)", "(", "a{99999999999}", "(" * 390, "a" * 401]


@pytest.mark.parametrize("pattern", REFUSED)
def test_refused_patterns(pattern):
    with pytest.raises(PatternError):
        PatternMatcher().matches_fully(pattern + "b*", "ab")


def test_the_budget_ends_a_long_match():
    with pytest.raises(PatternError, match="too long"):
        PatternMatcher(budget=1000).matches_fully("(a*)*" * 40 + "b", "a" * 60)
