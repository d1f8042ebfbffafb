"""Streaming gives the same text as decoding at once, one whole character at a time, up to the stop string."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lora_engine.text import IncrementalDetokenizer, Tokenizer

PARTS = ["👩‍👩‍👧", "🇩🇪", "é", "e\u0301", "你好", " ", "  ", "a", "<|end|>", "<tool>", "\u00a0"]
TEXT = st.one_of(
    st.text(max_size=30),
    st.text("hello wrd▁ \n", max_size=30),
    st.lists(st.sampled_from(PARTS)).map("".join),
)
SETTINGS = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["byte_level", "sentence_pieces", "metaspace"])
def tokenizer(request, tokenizer_folders):
    return Tokenizer.load(tokenizer_folders[request.param])


def stream(detokenizer, ids):
    deltas = [detokenizer.append(token_id) for token_id in ids]
    return [*deltas, detokenizer.flush()]


@SETTINGS
@given(text=TEXT)
def test_text_streams_as_it_decodes(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    expected = tokenizer.decode(ids)
    deltas = stream(IncrementalDetokenizer(tokenizer), ids)
    assert "".join(deltas) == expected
    if "\ufffd" not in expected:
        assert not any("\ufffd" in delta for delta in deltas)


@SETTINGS
@given(data=st.data())
def test_random_tokens_stream_as_they_decode(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    expected = tokenizer.decode(ids)
    streamed = "".join(stream(IncrementalDetokenizer(tokenizer), ids))
    # SentencePiece decoders replace a whole run of bytes if any of it is broken, which a stream cannot know.
    if tokenizer.rules.kind == "bytes" or "\ufffd" not in expected:
        assert streamed == expected
    else:
        assert "\ufffd" in streamed


@SETTINGS
@given(text=TEXT, stops=st.lists(st.text("ab hello", min_size=1, max_size=5), max_size=4), include=st.booleans())
def test_the_first_completed_stop_ends_the_text(tokenizer, text, stops, include):
    ids = tokenizer.encode(text, add_special_tokens=False)
    full = tokenizer.decode(ids)
    hits = [(full.index(stop) + len(stop), full.index(stop), stop) for stop in stops if stop in full]
    detokenizer = IncrementalDetokenizer(tokenizer, tuple(stops), include)
    streamed = "".join(stream(detokenizer, ids))
    if not hits:
        assert detokenizer.stopped is None
        assert streamed == full
    else:
        end, start, stop = min(hits)
        assert detokenizer.stopped == stop
        assert streamed == full[: end if include else start]


def test_stop_across_tokens_is_never_sent_in_part(tokenizer_folders):
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    detokenizer = IncrementalDetokenizer(tokenizer, ("END",))
    ids = tokenizer.encode("x E EN ENDx", add_special_tokens=False)
    sent = ""
    for token_id in ids:
        sent += detokenizer.append(token_id)
        assert not sent.endswith(("E", "EN"))
    assert sent == "x E EN "
    assert detokenizer.stopped == "END"
    assert detokenizer.append(ids[0]) == detokenizer.flush() == ""


def test_text_that_only_looked_like_a_stop_is_released(tokenizer_folders):
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    detokenizer = IncrementalDetokenizer(tokenizer, ("\n\nUser:",))
    ids = tokenizer.encode("hi\n\nUs", add_special_tokens=False)
    sent = "".join(detokenizer.append(token_id) for token_id in ids)
    assert sent == "hi"
    assert detokenizer.flush() == "\n\nUs"


def test_a_continuation_keeps_its_leading_space(tokenizer_folders):
    for kind in ("sentence_pieces", "metaspace"):
        tokenizer = Tokenizer.load(tokenizer_folders[kind])
        ids = tokenizer.encode("world", add_special_tokens=False)
        assert "".join(stream(IncrementalDetokenizer(tokenizer), ids)) == "world"
        assert "".join(stream(IncrementalDetokenizer(tokenizer, continues_text=True), ids)) == " world"


def test_work_per_token_does_not_grow(tokenizer_folders):
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    ids = tokenizer.encode("hello world " * 50, add_special_tokens=False)
    broken = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\xff")
    detokenizer = IncrementalDetokenizer(tokenizer, ("never", "n" * 500))
    started = time.process_time()
    for token_id in (ids + [broken] * 500) * 20:
        detokenizer.append(token_id)
    assert time.process_time() - started < 5


def test_stop_strings_count_after_the_least_tokens(tokenizer):
    ids = tokenizer.encode("hello world hello world", add_special_tokens=False)
    text = tokenizer.decode(ids)
    for least in range(len(ids) + 1):
        detokenizer = IncrementalDetokenizer(tokenizer, ("world",), min_tokens=least)
        streamed = "".join(detokenizer.append(token_id) for token_id in ids)
        free = tokenizer.decode(ids[:least])
        if "world" in text[len(free) :]:
            assert detokenizer.stopped and streamed == text[: text.index("world", len(free))]
        else:
            assert not detokenizer.stopped


def test_special_tokens_can_show(tokenizer):
    ids = [*tokenizer.encode("hello", add_special_tokens=False), tokenizer._fast.token_to_id("<|end|>")]
    assert "".join(stream(IncrementalDetokenizer(tokenizer), ids)) == "hello"
    assert "".join(stream(IncrementalDetokenizer(tokenizer, shown=tokenizer.special_ids), ids)) == "hello<|end|>"
    assert tokenizer.decode(ids, keep_special_tokens=True).endswith("<|end|>")
