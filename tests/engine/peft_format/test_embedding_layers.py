"""The embedding and the head in an adapter's files: names, sizes, and what the config says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lorikeet_testing.peft_files import GEOMETRY, config_bytes, safetensors_bytes, tensors

from lora_engine.peft_format import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    AdapterLimits,
    ValidationReport,
    inspect_adapter,
    resolve_patterns,
    to_peft_form,
)
from lora_engine.peft_format.tensor_names import read_name

EMBED, HEAD = "base_model.model.model.embed_tokens.", "base_model.model.lm_head."
LINEAR = ["q_proj", "v_proj"]
LORA_HEAD = {f"{HEAD}lora_A.weight": (4, 64), f"{HEAD}lora_B.weight": (32, 4)}
LORA_EMBED = {f"{EMBED}lora_embedding_A": (4, 32), f"{EMBED}lora_embedding_B": (64, 4)}
TOKENS = {f"{EMBED}token_adapter.trainable_tokens_delta": (2, 64)}


def save(folder: Path, shapes: dict[str, tuple[int, ...]], **config: Any) -> Path:
    more = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    (folder / WEIGHTS_FILE).write_bytes(safetensors_bytes(tensors() | more))
    (folder / CONFIG_FILE).write_bytes(config_bytes(**config))
    return folder


def inspect(folder: Path, shapes: dict[str, tuple[int, ...]], **config: Any) -> ValidationReport:
    return inspect_adapter(save(folder, shapes, **config), GEOMETRY)


@pytest.mark.parametrize(
    ("shapes", "config", "code", "words"),
    [
        (LORA_HEAD, {}, "extra_tensor", "lm_head's lora_A is in the file"),
        (LORA_HEAD, {"target_modules": [*LINEAR, "lm_head"], "r": 4, "rank_pattern": {"lm_head": 2}},
         "rank_mismatch", "says rank 2"),
        (LORA_HEAD, {"target_modules": [*LINEAR, "lm_head"], "use_dora": True}, "unsupported_feature",
         "use_dora on lm_head"),
        (LORA_EMBED, {"target_modules": [*LINEAR, "embed_tokens"], "alora_invocation_tokens": [1]},
         "unsupported_feature", "alora_invocation_tokens beside changes of embed_tokens"),
        (LORA_EMBED | {f"{EMBED}lora_embedding_A": (4, 33)}, {"target_modules": [*LINEAR, "embed_tokens"]},
         "vocabulary_mismatch", "the matrix of embed_tokens is not in the file"),
        ({f"{HEAD}weight": (32, 48)}, {"modules_to_save": ["lm_head"]}, "shape_mismatch", "needs 64"),
        ({f"{HEAD}weight": (32,)}, {"modules_to_save": ["lm_head"]}, "shape_mismatch", "must be a matrix"),
        ({f"{HEAD}weight": (0, 64)}, {"modules_to_save": ["lm_head"]}, "empty_tensor", "holds no values"),
        ({f"{HEAD}weight": (35, 64)}, {"modules_to_save": ["lm_head"]}, "vocabulary_mismatch", "35 tokens"),
        ({f"{HEAD}weight": (35, 64), f"{EMBED}weight": (34, 64)}, {}, "vocabulary_mismatch", "34 and 35"),
        ({f"{HEAD}weight": (5000, 64), f"{EMBED}weight": (5000, 64)}, {}, "vocabulary_mismatch", "at most 4096 more"),
        ({f"{HEAD}weight": (32, 64), f"{HEAD}base_layer.weight": (32, 64)}, {}, "unexpected_tensor", "lm_head"),
        ({f"{HEAD}bias": (32,)}, {"modules_to_save": ["lm_head"]}, "unexpected_tensor", "lm_head.bias"),
        (TOKENS, {}, "shape_mismatch", "lists 0"),
        (TOKENS, {"trainable_token_indices": [1, 2, 3]}, "shape_mismatch", "lists 3"),
        (TOKENS, {"trainable_token_indices": [1, 32]}, "vocabulary_mismatch", "names token 32"),
        (TOKENS, {"trainable_token_indices": [1, 9999]}, "invalid_config", "from 0 to 31"),
        ({}, {"modules_to_save": "lm_head"}, "unsupported_feature", "modules_to_save"),
    ],
)  # fmt: skip
def test_embedding_layers_that_cannot_be_served(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], config: dict[str, Any], code: str, words: str
) -> None:
    report = inspect(tmp_path, shapes, **config)
    assert code in {problem.code for problem in report.problems}, report.problems
    assert any(words in problem.message for problem in report.problems), report.problems
    assert all(problem.fix for problem in report.problems)


def test_a_not_finite_embedding_layer_is_found(tmp_path: Path) -> None:
    save(tmp_path, {}, modules_to_save=["lm_head"])
    matrix = np.ones((32, 64), np.float32)
    matrix[7, 5] = np.nan
    (tmp_path / WEIGHTS_FILE).write_bytes(safetensors_bytes(tensors() | {f"{HEAD}weight": matrix}))
    (problem,) = inspect_adapter(tmp_path, GEOMETRY).problems
    assert problem.message.startswith("lm_head's matrix holds 1 NaN or infinite value, the first at row 7, column 5")


def test_notes_say_what_of_an_embedding_layer_is_served(tmp_path: Path) -> None:
    shapes = {f"{HEAD}weight": (35, 64), f"{EMBED}weight": (35, 64)} | TOKENS
    manifest = inspect(tmp_path, shapes, trainable_token_indices=[3, 34]).manifest
    assert manifest is not None
    notes = [layer.note(GEOMETRY.vocab_size) for layer in manifest.embedding_layers]
    assert "embed_tokens is changed: a whole matrix" in notes[0] and "rows of 2 tokens" in notes[0]
    assert all("its 3 tokens more than the base's can be generated, but they have no text here" in n for n in notes)


def test_a_smaller_vocabulary_needs_no_matrix(tmp_path: Path) -> None:
    """The base has every row of it."""
    shapes = {f"{HEAD}lora_A.weight": (4, 64), f"{HEAD}lora_B.weight": (29, 4)}
    manifest = inspect(tmp_path, shapes, target_modules=[*LINEAR, "lm_head"]).manifest
    assert manifest is not None and manifest.targets == ("lm_head", "q_proj", "v_proj")
    embedding, head = manifest.embedding_layers
    assert embedding.vocab == head.vocab == 29
    assert embedding.note(GEOMETRY.vocab_size) == "embed_tokens is the base's, as far as the adapter's 29 tokens go"


@pytest.mark.parametrize(
    ("name", "wanted", "adapter", "root"),
    [
        (f"{HEAD}lora_A.default.weight", f"{HEAD}lora_A.weight", "default", "model"),
        (f"{EMBED}lora_embedding_A.default", f"{EMBED}lora_embedding_A", "default", "model"),
        (f"{EMBED}lora_embedding_B", f"{EMBED}lora_embedding_B", "", "model"),
        ("module._orig_mod.lm_head.weight", f"{HEAD}weight", "", "model"),
        ("model.embed_tokens.weight", f"{EMBED}weight", "", "model"),
        ("base_model.model.model.language_model.embed_tokens.weight", f"{EMBED}weight", "", "model.language_model"),
        ("base_model.model.language_model.lm_head.lora_B.weight", f"{HEAD}lora_B.weight", "", "model"),
        ("base_model.model.model.norm.weight", "base_model.model.model.norm.weight", "", "model"),
    ],
)
def test_names_of_embedding_layers(name: str, wanted: str, adapter: str, root: str) -> None:
    found = read_name(name)
    assert (found.name, found.adapter, found.root) == (wanted, adapter, root)


def test_patterns_that_stand_for_embedding_layers_are_written_out(tmp_path: Path) -> None:
    shapes = LORA_HEAD | {f"{EMBED}weight": (32, 64)}
    shapes[f"{HEAD}token_adapter.trainable_tokens_delta"] = (2, 64)
    config = {
        "target_modules": r".*(q_proj|v_proj|lm_head)",
        "alpha_pattern": {"lm_head": 3},
        "modules_to_save": ["model.embed_tokens"],
        "trainable_token_indices": {"lm_head": [5, 3]},
    }
    manifest = inspect(tmp_path, shapes, **config).manifest
    assert manifest is not None
    assert resolve_patterns(tmp_path, manifest, GEOMETRY)
    again = inspect_adapter(tmp_path, GEOMETRY).manifest
    assert again is not None
    assert (again.embedding_layers, again.modules) == (manifest.embedding_layers, manifest.modules)


def test_embedding_layers_of_a_vision_language_model(tmp_path: Path) -> None:
    """Both layers as such models call them; what its config says of them holds after the names were changed."""
    of_language = {
        name.replace(".model.layers.", ".model.language_model.layers."): array for name, array in tensors().items()
    }
    of_language["base_model.model.model.language_model.embed_tokens.weight"] = np.ones((32, 64), np.float32)
    of_language |= {name: np.ones(shape, np.float32) for name, shape in LORA_HEAD.items()}
    (tmp_path / WEIGHTS_FILE).write_bytes(safetensors_bytes(of_language))
    (tmp_path / CONFIG_FILE).write_bytes(
        config_bytes(target_modules=[*LINEAR, "lm_head"], modules_to_save=["model.language_model.embed_tokens"])
    )
    form = to_peft_form(tmp_path, AdapterLimits())
    report = inspect_adapter(tmp_path, GEOMETRY, root=form.root)
    assert report.manifest is not None, report.problems
    assert resolve_patterns(tmp_path, report.manifest, GEOMETRY, form.root)
    again = inspect_adapter(tmp_path, GEOMETRY).manifest
    assert again is not None and again.embedding_layers == report.manifest.embedding_layers
    assert [(layer.target, layer.alone, layer.lora is None) for layer in again.embedding_layers] == [
        ("embed_tokens", True, True), ("lm_head", False, False),
    ]  # fmt: skip
