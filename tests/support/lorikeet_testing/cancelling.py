"""Adapters whose factors cancel each other, so that rounding them changes what they do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def cancelling(source: Path, folder: Path, factor: float = 64.0) -> Path:
    """Write an adapter that adds the same to the base as ``source``, as the difference of two that are ``factor`` times
    as large.

    In FP8 each of the two is rounded by up to 6 %, several times what is left of them.
    """
    shutil.copytree(source, folder)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    twice = 2**0.5 if config.get("use_rslora") else 2  # a scale is alpha divided by the rank, or by its root
    for name, times in (("rank_pattern", 2), ("alpha_pattern", twice)):
        config[name] = {module: times * value for module, value in config[name].items()}
    config |= {"r": 2 * config["r"], "lora_alpha": twice * config["lora_alpha"]}
    path.write_text(json.dumps(config))
    weights = folder / "adapter_model.safetensors"
    tensors = {name: tensor.float() for name, tensor in load_file(weights).items()}
    for name, tensor in tensors.items():
        if "lora_A" in name:
            tensors[name] = torch.cat([tensor, tensor])
        elif "lora_B" in name:
            tensors[name] = torch.cat([tensor * (factor + 1), -tensor * factor], 1).contiguous()
    save_file(tensors, weights, {"format": "pt"})
    return folder
