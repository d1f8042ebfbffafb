"""Quantised copies of checkpoints, in each form of FP8 that is served."""

from __future__ import annotations

from typing import Any

import torch

from lora_kernels.fp8_tensors import BLOCK, FP8, LARGEST, quantise

# A module that is not quantised.
IGNORED = "model.layers.1.mlp.down_proj"
COMPRESSED: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
    "ignore": ["lm_head", IGNORED], "kv_cache_scheme": None, "global_compression_ratio": 1.5, "sparsity_config": {},
    "transform_config": {}, "version": "0.11.0",
}  # fmt: skip
_TYPE: dict[str, Any] = {
    "num_bits": 8, "type": "float", "symmetric": True, "actorder": None, "block_structure": None, "group_size": None,
    "observer": None, "observer_kwargs": {},
}  # fmt: skip


def group(strategy: str, activations: str, dynamic: bool) -> dict[str, Any]:
    weights = {**_TYPE, "strategy": strategy, "dynamic": False, "observer": "minmax"}
    inputs = {**_TYPE, "strategy": activations, "dynamic": dynamic}
    if strategy == "block":
        weights["block_structure"], inputs["group_size"] = [128, 128], 128
    one = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {**COMPRESSED, "config_groups": {"group_0": one}}


FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # how scales are shaped, what they are called, config.json
    "fp8-tensor-static": (
        "tensor", "weight_scale", {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": [IGNORED]},
    ),
    "fp8-tensor": (
        "tensor", "weight_scale_inv",
        {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": [IGNORED]},
    ),
    "fp8-block": (
        "block", "weight_scale_inv",
        {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128],
         "ignored_layers": ["re:.*layers.1.mlp.down.*"]},
    ),
    "fp8-tensor-static-transformers": (
        "tensor", "weight_scale_inv",
        {"quant_method": "fp8", "activation_scheme": "static", "dequantize": False, "weight_block_size": None,
         "modules_to_not_convert": ["model.vision_tower", "lm_head", IGNORED]},
    ),
    "compressed-tensors-channel": ("channel", "weight_scale", group("channel", "token", True)),
    "compressed-tensors-tensor-static": ("tensor", "weight_scale", group("tensor", "tensor", False)),
    "compressed-tensors-block": ("block", "weight_scale", group("block", "group", True)),
}  # fmt: skip


def in_fp8(weight: torch.Tensor, shape: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Data and scale, as checkpoints hold them."""
    if shape == "channel":
        matrix = quantise(weight)
        return matrix.data, matrix.scale[:, None].bfloat16()
    if shape == "tensor":
        scale = weight.abs().amax() / LARGEST
        return (weight / scale).to(FP8), scale.reshape(1)
    rows, columns = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-columns // BLOCK) * BLOCK)
    padded[:rows, :columns] = weight
    blocks = padded.view(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)) / LARGEST
    return (blocks / scale[:, None, :, None]).to(FP8).view(padded.shape)[:rows, :columns].contiguous(), scale


def plain_values(data: torch.Tensor, scale: torch.Tensor, shape: str) -> torch.Tensor:
    """Return what FP8 data and their scale mean, in float32."""
    wide = scale.float()
    if shape == "block":
        wide = wide.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: data.shape[0], : data.shape[1]]
    return data.float() * wide


def rounded_to_fp8(x: torch.Tensor, group: int) -> torch.Tensor:
    """Round rows to E4M3 and back, with a scale for each ``group`` of columns, as kernels quantise activations."""
    parts = [part.float() for part in x.split(group, dim=-1)]
    scales = [part.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0 for part in parts]
    return torch.cat(
        [(part / scale).to(torch.float8_e4m3fn).float() * scale for part, scale in zip(parts, scales, strict=True)], -1
    )
