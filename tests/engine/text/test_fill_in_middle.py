"""The text between a prefix and a suffix: prompts as each family's model card and transformers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, processors
from transformers import CodeLlamaTokenizer

from lora_engine.errors import RequestError
from lora_engine.server.chat import ChatFormat
from lora_engine.server.input_processor import InputProcessor
from lora_engine.structured import Grammars
from lora_engine.text import ChatTemplate, FillInMiddle, Tokenizer
from lora_engine.text.fill_in_middle import FAMILIES
from lora_engine.wire import engine_pb2 as pb

from .conftest import byte_level, sentence_pieces

PREFIX, SUFFIX = "def f(x):\n    return ", "\n\nworld = f(1)  # 🦜"
CODE_LLAMA = FAMILIES[-1]


def saved(folder: Path, kind: str, family: Any) -> Tokenizer:
    made = {"byte_level": byte_level, "sentence_pieces": sentence_pieces}[kind]()
    names = [getattr(family, name) for name in ("prefix", "suffix", "middle")] + list(family.ends)[:1]
    made.add_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    start = made.token_to_id("<s>")
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return Tokenizer.load(folder)


def processor(tokenizer: Tokenizer) -> InputProcessor:
    chat = ChatFormat(ChatTemplate("{{ messages }}", {}), tokenizer)
    return InputProcessor(tokenizer, chat, Grammars(tokenizer, tokenizer.vocab_size), pb.EngineDescription())


@pytest.mark.parametrize("family", FAMILIES[:-1], ids=lambda family: family.prefix)
def test_a_family_of_byte_level_tokens(tmp_path: Path, family: Any) -> None:
    tokenizer = saved(tmp_path, "byte_level", family)
    text = f"{family.prefix}{PREFIX}{family.suffix}{SUFFIX}{family.middle}"
    for special in (True, False):
        submit = pb.Submit(text=PREFIX, suffix=SUFFIX, add_special_tokens=special)
        request, _ = processor(tokenizer).convert(submit)
        assert request.prompt_token_ids == tokenizer.encode(text, add_special_tokens=special)
        ends = [tokenizer.token_id(name) for name in family.ends[:1]]
        assert list(request.sampling.stop_token_ids) == ends
    plain, _ = processor(tokenizer).convert(pb.Submit(text=PREFIX))
    assert plain.prompt_token_ids == tokenizer.encode(PREFIX, add_special_tokens=True)
    assert not plain.sampling.stop_token_ids


def test_code_llama_as_transformers(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, "sentence_pieces", CODE_LLAMA)
    theirs = CodeLlamaTokenizer()
    theirs._tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = FillInMiddle.of(tokenizer)
    assert ours is not None
    for prefix, suffix in ((PREFIX, SUFFIX), ("hello", " world"), ("x", "café"), (" x", "  return x")):
        ids = ours.prompt(prefix, suffix, add_special_tokens=True).token_ids
        assert ids == theirs(f"{prefix}<FILL_ME>{suffix}")["input_ids"], (prefix, suffix)


def test_a_prefix_of_token_ids(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, "byte_level", FAMILIES[0])
    request, _ = processor(tokenizer).convert(pb.Submit(token_ids=pb.TokenIds(ids=[5, 6]), suffix="x"))
    ids = [tokenizer.token_id(name) for name in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")]
    assert request.prompt_token_ids == [ids[0], 5, 6, ids[1], *tokenizer.encode("x", False), ids[2]]


def test_a_tokenizer_without_the_tokens_says_so(tokenizer_folders: dict[str, Path]) -> None:
    with pytest.raises(RequestError, match="fill in a middle") as refused:
        processor(Tokenizer.load(tokenizer_folders["byte_level"])).convert(pb.Submit(text="x", suffix="y"))
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "suffix")


def test_a_suffix_beyond_the_context_is_refused_before_it_is_tokenised(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, "byte_level", FAMILIES[0])
    made = processor(tokenizer)
    made._description.max_context = 100
    with pytest.raises(RequestError) as refused:
        made.convert(pb.Submit(text="x", suffix="y " * 100_000))
    assert refused.value.code == "context_length_exceeded"
