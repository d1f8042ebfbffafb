"""PEFT adapter files, good and bad, written byte by byte: no torch, and every fault can be asked for."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, AdapterLimits, BaseGeometry

GEOMETRY = BaseGeometry(
    name="fake-base",
    digest="sha256:" + "ba5e" * 16,
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=32,
)
Tensors = dict[str, np.ndarray[Any, Any]]


def tensors(
    rank: int = 4, targets: tuple[str, ...] = ("q_proj", "v_proj"), geometry: BaseGeometry = GEOMETRY, seed: int = 0
) -> Tensors:
    """Both matrices of each target in each layer, float32."""
    random = np.random.default_rng(seed)
    made: Tensors = {}
    for layer in range(geometry.num_layers):
        for target in targets:
            block = "mlp" if target in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            name = f"base_model.model.model.layers.{layer}.{block}.{target}"
            inputs, outputs = geometry.features(target)
            made[f"{name}.lora_A.weight"] = random.standard_normal((rank, inputs)).astype(np.float32)
            made[f"{name}.lora_B.weight"] = random.standard_normal((outputs, rank)).astype(np.float32)
    return made


PEFT_METADATA = {"format": "pt"}


def safetensors_bytes(of: Tensors, metadata: dict[str, str] | None = PEFT_METADATA) -> bytes:
    """The safetensors encoding: header length, JSON header, data."""
    header: dict[str, Any] = {"__metadata__": metadata}
    data = b""
    for name, array in of.items():
        raw = array.tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def config_bytes(rank: int = 4, targets: tuple[str, ...] = ("q_proj", "v_proj"), **changes: Any) -> bytes:
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "fake-base",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": list(targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_dora": False,
        "use_rslora": False,
        "modules_to_save": None,
        **changes,
    }
    return json.dumps(config).encode()


def adapter_files(rank: int = 4, seed: int = 0) -> dict[str, bytes]:
    """A valid adapter: file name -> content."""
    return {CONFIG_FILE: config_bytes(rank), WEIGHTS_FILE: safetensors_bytes(tensors(rank, seed=seed))}


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_gz_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_bomb(size: int = 256 << 20) -> bytes:
    """An archive whose weights are `size` zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CONFIG_FILE, config_bytes())
        with archive.open(WEIGHTS_FILE, "w", force_zip64=True) as member:
            block = bytes(1 << 20)
            for _ in range(size >> 20):
                member.write(block)
    return buffer.getvalue()


def as_candidate(geometry: BaseGeometry = GEOMETRY, **limits: int) -> dict[str, Any]:
    """A base model that an upload may be for, as the child that checks it is told."""
    bounds = AdapterLimits(**{"max_bytes": 64 << 20, **limits})
    return {"names": [geometry.name], "geometry": asdict(geometry), "limits": asdict(bounds)}
