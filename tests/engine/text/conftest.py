"""Small tokenisers of the two families, trained on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["hello world, the quick brown fox", "naïve café Straße", "你好世界", "def f(x):\n    return x", "🦜🦜 ok"] * 4
SPECIAL = ["<s>", "</s>", "<|end|>"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def sentence_pieces() -> Tokenizer:
    """Llama 2's construction: Prepend and Replace, byte fallback, strip one space on the left."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["▁" + line.replace(" ", "▁") for line in CORPUS], trainer)
    raw = json.loads(tokenizer.to_str())
    # Byte pieces are ordinary pieces in Llama's file, not added tokens.
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(raw))


def metaspace() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


BUILDERS = {"byte_level": byte_level, "sentence_pieces": sentence_pieces, "metaspace": metaspace}


@pytest.fixture(scope="session")
def tokenizer_folders(tmp_path_factory) -> dict[str, Path]:
    """kind → a model folder with that tokeniser."""
    folders = {}
    for kind, build in BUILDERS.items():
        folder = folders[kind] = tmp_path_factory.mktemp(kind)
        build().save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folders
