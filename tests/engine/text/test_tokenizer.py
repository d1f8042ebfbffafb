from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import decoders

from lora_engine.text import Tokenizer, TokenizerError
from lora_engine.text.model_files import TEXT_FILES, text_digest
from lora_engine.text.token_bytes import rules_from_decoder


def test_round_trip_and_special_ids(tokenizer_folders):
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    ids = tokenizer.encode("hello 🦜", add_special_tokens=True)
    assert ids[0] == tokenizer.bos_token_id == 0
    assert tokenizer.encode("hello 🦜", add_special_tokens=False) == ids[1:]
    assert tokenizer.decode(ids) == "hello 🦜"
    assert tokenizer.eos_token_id == 1
    assert tokenizer.eos_token_ids == {1}
    assert tokenizer.is_special(0) and not tokenizer.is_special(ids[1])


def test_token_bytes_concatenate_to_the_text(tokenizer_folders):
    for kind in ("byte_level", "sentence_pieces"):
        tokenizer = Tokenizer.load(tokenizer_folders[kind])
        text = "naïve 🦜 世 x"
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(map(tokenizer.token_bytes, ids)).decode().lstrip() == text
    assert tokenizer.token_text(1) == "<s>"
    assert tokenizer.token_bytes(10**6) == b""


def test_byte_tables_cover_every_byte(tokenizer_folders):
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    singles = {tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
    assert {bytes([byte]) for byte in range(256)} <= singles


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [(None, None, {1}), ([5, 6], 7, {1, 5, 6}), (None, 7, {1, 7}), (5, None, {1, 5})],
)
def test_eos_ids_come_from_all_files(tokenizer_folders, tmp_path, generation, config, expected):
    for path in tokenizer_folders["byte_level"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, value in (("generation_config.json", generation), ("config.json", config)):
        if value is not None:
            (tmp_path / name).write_text(json.dumps({"eos_token_id": value}))
    assert Tokenizer.load(tmp_path).eos_token_ids == expected


def test_missing_and_broken_files_say_what_to_do(tmp_path):
    with pytest.raises(TokenizerError, match="save_pretrained"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="download"):
        Tokenizer.load(tmp_path)


def test_unknown_decoders_are_refused():
    with pytest.raises(TokenizerError, match="WordPiece"):
        rules_from_decoder(json.loads(decoders.WordPiece().__getstate__()))
    assert rules_from_decoder(None).kind == "words"


def test_the_digest_of_text_files_tells_every_one_of_them(tmp_path: Path):
    empty = text_digest(tmp_path)
    seen = {empty}
    for name in TEXT_FILES:
        (tmp_path / name).write_text("{}")
        seen.add(text_digest(tmp_path))
        (tmp_path / name).write_text("{ }")
        seen.add(text_digest(tmp_path))
    assert len(seen) == 1 + 2 * len(TEXT_FILES)
    assert all(digest.startswith("sha256:") for digest in seen)


@pytest.mark.parametrize("kind", ["byte_level", "sentence_pieces"])
@pytest.mark.parametrize(
    "text",
    ["hello, you there! ", "hello ", "a", " ", "\n", "-", "世", "🦜", "\t \r\n", "abcdefghij" * 30, ""],
)
def test_a_text_that_fits_is_never_called_longer(tokenizer_folders, kind: str, text: str):
    tokenizer = Tokenizer.load(tokenizer_folders[kind])
    for size in (1, 700, 9_000, 40_000):
        long = (text * size)[:size]
        tokens = len(tokenizer.encode(long, add_special_tokens=True))
        assert not tokenizer.is_longer(long, tokens)


def test_a_text_that_is_far_too_long_is_found_out_soon(tokenizer_folders):
    """Wherever its tokens lie: before them may be as many characters as one likes that become few."""
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    encoded: list[int] = []
    encode = tokenizer.encode
    tokenizer.encode = lambda text, **more: encoded.append(len(text)) or encode(text, **more)  # type: ignore[method-assign,func-returns-value]
    assert tokenizer.is_longer("hello " * 500_000, 1_000)
    assert sum(encoded) < 20_000
    assert not tokenizer.is_longer("hello " * 1_000, 1_001)


def test_others_run_while_a_long_text_becomes_tokens(tokenizer_folders):
    """Else one prompt of megabytes would hold up every stream of its host, and look as if that had died."""
    tokenizer = Tokenizer.load(tokenizer_folders["byte_level"])
    with ThreadPoolExecutor(1) as threads:
        encoded, ticks = threads.submit(tokenizer.encode, "hello " * 200_000, False), 0
        while not encoded.done():
            time.sleep(0.002)
            ticks += 1
    assert ticks > 5
    assert len(encoded.result()) > 200_000
