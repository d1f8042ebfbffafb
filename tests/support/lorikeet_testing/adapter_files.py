"""Small adapters, valid and broken, written without PEFT and without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from lora_engine.peft_format import TARGETS, BaseGeometry
from lora_engine.peft_format.geometry import module_key

GEOMETRY = BaseGeometry(
    name="tiny-demo",
    digest="sha256:" + "0" * 64,
    num_layers=2,
    hidden_size=16,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    vocab_size=64,
)

Tensors = dict[str, np.ndarray[Any, Any]]


def make_tensors(rank: int = 4, targets: tuple[str, ...] = ("q_proj", "v_proj"), dtype: str = "<f4") -> Tensors:
    """Random A and B for ``targets`` of every layer, under PEFT's names."""
    assert set(targets) <= set(TARGETS)
    random = np.random.default_rng(0)
    result: Tensors = {}
    for layer in range(GEOMETRY.num_layers):
        for target in targets:
            wide, tall = GEOMETRY.features(target)
            prefix = f"base_model.model.{module_key(layer, target)}"
            result[f"{prefix}.lora_A.weight"] = random.standard_normal((rank, wide)).astype(dtype)
            result[f"{prefix}.lora_B.weight"] = random.standard_normal((tall, rank)).astype(dtype)
    return result


def save_adapter(folder: Path, tensors: Tensors, **config: Any) -> Path:
    """Write the two files; ``config`` overrides a plain LoRA config, a value of ``...`` removes the key."""
    folder.mkdir(parents=True, exist_ok=True)
    full: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    } | config
    kept = {key: value for key, value in full.items() if value is not ...}
    (folder / "adapter_config.json").write_text(json.dumps(kept))
    (folder / "adapter_model.safetensors").write_bytes(encode(tensors))
    return folder


def encode(tensors: Tensors, header: dict[str, Any] | None = None, tail: bytes = b"") -> bytes:
    """Safetensors bytes; ``header`` entries override the true ones."""
    names = {"float32": "F32", "float16": "F16", "uint16": "BF16", "float64": "F64"}
    entries: dict[str, Any] = {}
    data = b""
    for name, array in tensors.items():
        end = len(data) + array.nbytes
        entries[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(entries | (header or {})).encode()
    return struct.pack("<Q", len(text)) + text + data + tail
