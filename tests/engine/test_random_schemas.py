"""Whatever the schema: an answer that ends by itself is JSON, and of that schema."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers

from lora_engine.constraints import Constraint, Kind
from lora_engine.structured import Grammars, TokenMasks
from lora_engine.text import Tokenizer

DEMO = Path(__file__).parents[2] / "demo" / "model"
NAMES = st.sampled_from(["a", "b", "name", "größe", "a b", 'quo"te', "x" * 12])
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
              st.integers(-50, 50), st.integers(0, 1000)),
    st.builds(lambda low: {"type": "number", "minimum": low, "maximum": low + 2.5}, st.integers(-9, 9)),
    st.builds(lambda low, span: {"type": "string", "minLength": low, "maxLength": low + span},
              st.integers(0, 3), st.integers(0, 6)),
    st.builds(lambda values: {"enum": values}, st.lists(st.one_of(st.none(), st.booleans(), st.integers(-5, 5), NAMES),
              min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, st.one_of(NAMES, st.integers(-5, 5))),
    st.sampled_from([{"type": "string", "format": kind} for kind in ("date", "time", "uuid", "ipv4")]),
    st.sampled_from([{"type": "string", "pattern": text} for text in ("^[a-c]{2,4}$", "^x.?y$", "^(le|ri)-[0-9]+$")]),
    st.sampled_from([{"type": ["string", "null"], "maxLength": 3}, {"type": "integer", "multipleOf": 5, "maximum": 500,
                                                                    "minimum": 0}]),
)  # fmt: skip


def _object(properties: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    required = [name for name in properties if name not in left_out]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_object, st.dictionaries(NAMES, inner, max_size=4), st.sets(NAMES, max_size=2)),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda first: {"type": "array", "prefixItems": first, "items": False, "minItems": len(first)},
                  st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)  # fmt: skip


def save_pieces(folder: Path) -> Path:
    """A tokeniser as SentencePiece makes them: it puts a space before every text that it reads."""
    characters = [chr(code) for code in range(33, 127)]
    words = ["▁", "ß", "ö", "▁a", "name", "▁name", '":', '▁"', "null", "▁le", "ri", "▁x", "00", '"}', '",']
    names = ["<unk>", "<s>", "</s>", *dict.fromkeys([*characters, *words]), *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[], byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    return folder


@pytest.fixture(scope="module", params=["bytes", "pieces"])
def grammars(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grammars]:
    folder = DEMO if request.param == "bytes" else save_pieces(tmp_path_factory.mktemp("pieces"))
    tokenizer = Tokenizer.load(folder)
    made = Grammars(tokenizer, tokenizer.vocab_size + 37)  # logits wider than the vocabulary, as many models have them
    yield made
    made.close()


def begin(masks: TokenMasks) -> None:
    masks.begin_mask()
    while not masks.ready:
        time.sleep(0.0001)


def allowed(mask: Any) -> list[int]:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()


def write(grammars: Grammars, schema: object, rnd: random.Random) -> str | None:
    """An answer of tokens drawn from the masks; None if it did not end within 400 of them."""
    tokenizer = grammars._tokenizer
    grammar = grammars.compile(Constraint(Kind.JSON_SCHEMA, json.dumps(schema)))
    masks, reference, text = grammar.start(), grammar.matcher.deep_copy(), b""
    for _ in range(400):
        choices = allowed(masks.mask)
        assert bytes(masks.mask) == reference.compute_bitmask()[: masks.mask.nbytes], "not llguidance's own mask"
        assert all(token < tokenizer.vocab_size for token in choices)
        ends = [token for token in choices if token in tokenizer.eos_token_ids]
        assert bool(ends) == reference.is_accepting(), "the end is allowed where the schema is not satisfied"
        # What closes something, half of the time: answers should end.
        closing = [token for token in choices if tokenizer.token_bytes(token)[:1] in (b'"', b"}", b"]", b",")]
        token = rnd.choice(ends or (closing if closing and rnd.random() < 0.5 else choices))
        if token in tokenizer.eos_token_ids:
            return text.decode()
        text += tokenizer.token_bytes(token)
        assert reference.consume_token(token)
        if masks.take(token):
            return text.decode()
        begin(masks)
    return None


@given(schema=SCHEMAS, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_answers_are_of_their_schema(grammars: Grammars, schema: dict[str, Any], seed: int) -> None:
    text = write(grammars, schema, random.Random(seed))
    if text is not None:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_text_that_is_forced_is_written_whatever_the_tokeniser_does_to_texts(grammars: Grammars) -> None:
    choice = "other 0 näme\n"
    grammar = grammars.compile(Constraint(Kind.CHOICE, json.dumps([choice])))
    masks, text = grammar.start(), b""
    while text != choice.encode():
        (token,) = allowed(masks.mask)[:1]
        text += grammars._tokenizer.token_bytes(token)
        masks.take(token)
        begin(masks)
        assert choice.encode().startswith(text)


def test_names_of_special_tokens_are_written_as_text(grammars: Grammars) -> None:
    tokenizer = grammars._tokenizer
    end = tokenizer.token_text(min(tokenizer.eos_token_ids))
    for constraint in (Constraint(Kind.CHOICE, json.dumps([f"a{end}b"])),
                       Constraint(Kind.JSON_SCHEMA, json.dumps({"const": f"a{end}b"}))):  # fmt: skip
        masks, text = grammars.compile(constraint).start(), b""
        while not (tokenizer.eos_token_ids & {*allowed(masks.mask)}):
            (token,) = allowed(masks.mask)[:1]
            assert not tokenizer.is_special(token), text
            text += tokenizer.token_bytes(token)
            if masks.take(token):
                break
            begin(masks)
        assert text.decode().strip('"') == f"a{end}b"
