"""A model's folder that cannot be served is refused with one sentence and a fix, before anything is loaded."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.tiny_models import save_model
from safetensors.torch import load_file, save_file

from lora_engine.config import EngineConfig
from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import ModelConfig
from lora_engine.model.families import FAMILIES
from lora_engine.model.loading import load_model

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "model"
            save_model(name, made[name])
        return made[name]

    return make


def refusal(folder: Path, **settings: Any) -> str:
    """Why the folder is not served: one sentence or two, no traceback."""
    with pytest.raises(UnsupportedModel) as caught:
        load_model(EngineConfig(model=folder, pool_mb=2, **settings))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400 and text.endswith(".")
    return text


def change_config(folder: Path, **values: Any) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, **values}))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def change_entry(folder: Path, name: str, **values: Any) -> None:
    """Say something else of a tensor in the header: that one of bytes is of a quantised type, for example."""
    data = (folder / WEIGHTS).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header[name] |= values
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


@pytest.fixture
def folder(models: Callable[[str], Path], tmp_path: Path) -> Path:
    return shutil.copytree(models("llama2-mha"), tmp_path / "model")


CONFIGS = {
    "is empty": b"",
    "holds no JSON object": b"[1, 2]",
    "is not JSON": b'{"model_type": ',
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n",
    "model_type 'gpt_neox' is not supported; supported are llama": b'{"model_type": "gpt_neox"}',
    "without model_type": b"{}",
}


@pytest.mark.parametrize("expected", CONFIGS)
def test_a_damaged_config(folder: Path, expected: str) -> None:
    (folder / "config.json").write_bytes(CONFIGS[expected])
    assert expected in refusal(folder)


def test_an_unknown_model_is_told_all_families(folder: Path) -> None:
    change_config(folder, model_type="gpt_neox")
    assert all(family in refusal(folder) for family in FAMILIES)


def test_a_missing_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "holds no config.json" in refusal(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "64"), ("num_hidden_layers", 0), ("num_attention_heads", 3), ("vocab_size", None),
        ("rms_norm_eps", "small"), ("hidden_act", "relu"), ("rope_parameters", [1]), ("rope_theta", "x"),
        ("rope_parameters", {"rope_type": "yarn", "factor": "four"}), ("rope_parameters", {"rope_type": "spiral"}),
        ("rope_parameters", {"rope_type": "llama3", "factor": 8.0}), ("head_dim", 15), ("num_key_value_heads", True),
        ("rms_norm_eps", float("inf")), ("rms_norm_eps", 10**50), ("vocab_size", 10**30),
        ("rope_parameters", {"rope_type": "yarn", "factor": 0}),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}),
        ("rope_parameters", {"rope_type": "linear", "factor": 10**50}),
        ("rope_parameters", {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [float("nan")] * 8}),
    ],
)  # fmt: skip
def test_a_setting_that_means_nothing(folder: Path, key: str, value: Any) -> None:
    change_config(folder, **{"rope_parameters": None, key: value})
    refusal(folder)


def test_a_scale_that_is_no_number() -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "attention_multiplier": float("nan")}
    with pytest.raises(UnsupportedModel, match="a scale would be nan"):
        ModelConfig.from_dict({"model_type": "granite", **sizes})


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes", "gptq", "compressed-tensors"])
def test_quantised_weights_by_config(folder: Path, method: str) -> None:
    change_config(folder, quantization_config={"quant_method": method})
    assert method in refusal(folder)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "U8"])
def test_quantised_weights_without_a_word_in_the_config(folder: Path, dtype: str) -> None:
    change_tensors(folder, lambda tensors: tensors.update({Q: tensors[Q].to(torch.uint8)}))
    change_entry(folder, Q, dtype=dtype)
    assert f"{Q} is stored as {dtype}: the weights are quantised" in refusal(folder)


def test_four_bit_checkpoints(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({f"{Q}.absmax": torch.ones(4)}))
    assert "the weights are quantised" in refusal(folder)


def test_another_models_shapes(folder: Path) -> None:
    change_config(folder, intermediate_size=160)
    assert "by config.json it must be [160, 64]" in refusal(folder)


def test_a_missing_tensor(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.pop(Q))
    assert f"the checkpoint lacks {Q}" in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers(folder: Path, value: float) -> None:
    change_tensors(folder, lambda tensors: tensors[Q][3].fill_(value))
    assert "NaN or infinite" in refusal(folder)


def test_weights_too_large_for_float16(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors["model.norm.weight"].fill_(1e6))
    assert "start with --dtype bfloat16" in refusal(folder, dtype="float16")


def test_a_file_that_was_cut(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        (folder / WEIGHTS).write_bytes(whole[:size])
        assert "truncated" in refusal(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"shape": None}, {"shape": [64, 65]}, {"shape": [-64, -64]}, {"dtype": "F16"}, {"data_offsets": [0, 16384]},
        {"data_offsets": [16384, 0]}, {"data_offsets": [0.0, 0.0]}, {"dtype": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_header_that_contradicts_itself(folder: Path, values: dict[str, Any]) -> None:
    """Tensors of which one lies where another does would be read as they are on a GPU."""
    change_entry(folder, Q, **values)
    assert re.search("do not fit together|is not a safetensors file", refusal(folder))


def test_a_pointer_of_git_lfs(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(CONFIGS["Git LFS pointer"])
    assert "run git lfs pull" in refusal(folder)


def test_no_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    assert "no safetensors weights but pytorch_model.bin" in refusal(folder)


def test_a_missing_shard(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("qwen2-qkv-bias"), tmp_path / "model")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[-1].unlink()
    assert f"1 of the {len(shards)} files" in refusal(folder)
    (folder / INDEX).write_text("{}")
    assert "has no weight_map" in refusal(folder)


def test_an_index_that_names_files_elsewhere(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("qwen2-qkv-bias"), tmp_path / "model")
    outside = shutil.copy(next(folder.glob("model-*.safetensors")), tmp_path / "outside.safetensors")
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][Q] = f"../{Path(outside).name}"
    (folder / INDEX).write_text(json.dumps(index))
    assert "are missing" in refusal(folder)


@pytest.mark.parametrize("other", [True, False])
def test_a_saved_lm_head_beside_tied_embeddings(folder: Path, other: bool) -> None:
    """As transformers does: of its own if it differs, the embedding if not."""
    change_config(folder, tie_word_embeddings=True)

    def save(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + (1.0 if other else 0.0)

    change_tensors(folder, save)
    weights = load_model(EngineConfig(model=folder, pool_mb=2)).model.weights
    assert torch.equal(weights.lm_head, weights.embedding + 1) if other else weights.lm_head is weights.embedding


def test_tied_embeddings_of_which_only_the_head_is_saved(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")

    change_tensors(folder, rename)
    weights = load_model(EngineConfig(model=folder, pool_mb=2)).model.weights
    assert weights.lm_head is weights.embedding


def test_a_yarn_model_is_served_at_its_stretched_length(folder: Path) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    change_config(folder, rope_parameters=None, rope_scaling=scaling)
    assert ModelConfig.load(folder).max_position == 2048
    assert load_model(EngineConfig(model=folder, pool_mb=8)).max_context == 2048
