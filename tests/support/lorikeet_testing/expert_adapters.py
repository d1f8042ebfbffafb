"""Adapters on experts in each form in which tools write them, and models with their deltas in the weights."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from .tiny_models import Adapter, adapter_at

# Forms of the same deltas; see ``peft_format.experts``. In the last two a factor is the same for all experts, or the
# experts have different ranks.
FORMS = ("parameters", "exchanged parameters", "each expert", "w1 w2 w3", "stacked", "doubled", "shared", "uneven")
# Forms of a model whose experts have the outputs of gate and up in turn.
FORMS_ALTERNATING = ("parameters", "exchanged parameters", "listed", "each expert", "stacked", "shared", "uneven")
RANK, ALPHA = 4, 8


@dataclass
class ExpertFactorsOf:
    """The factors of a layer: ``a [experts, rank, in]``, ``b [experts, out, rank]`` of gate and up, and of down.

    ``alternates``: outputs of gate and up are in turn.
    """

    gate_up_a: torch.Tensor
    gate_up_b: torch.Tensor
    down_a: torch.Tensor
    down_b: torch.Tensor
    alternates: bool = False


def sparse_layers(model: Any) -> list[int]:
    return [index for index, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "experts")]


def random_factors(model: Any, seed: int, form: str, size: float = 0.3) -> dict[int, ExpertFactorsOf]:
    generator, factors = torch.Generator().manual_seed(seed), {}

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * size

    for layer in sparse_layers(model):
        experts = model.model.layers[layer].mlp.experts
        count, rows, hidden = experts.gate_up_proj.shape
        if alternates := model.config.model_type == "gpt_oss":
            rows, hidden = hidden, rows
        of = ExpertFactorsOf(
            random(count, RANK, hidden), random(count, rows, RANK), random(count, RANK, rows // 2),
            random(count, hidden, RANK), alternates,
        )  # fmt: skip
        if form == "shared":
            of.gate_up_a[:], of.down_b[:] = of.gate_up_a[:1].clone(), of.down_b[:1].clone()
        if form == "uneven":
            for rows_of in (of.gate_up_a, of.down_a):
                rows_of[1, 2:] = 0
                rows_of[2] = 0
        factors[layer] = of
    return factors


def with_deltas(model: Any, factors: dict[int, ExpertFactorsOf], scale: float = ALPHA / RANK) -> Any:
    """Return a copy of the model with the deltas in its weights."""
    changed = copy.deepcopy(model)
    for layer, of in factors.items():
        experts = changed.model.layers[layer].mlp.experts
        gate_up, down = scale * of.gate_up_b @ of.gate_up_a, scale * of.down_b @ of.down_a
        experts.gate_up_proj.data += gate_up.transpose(1, 2) if of.alternates else gate_up
        experts.down_proj.data += down.transpose(1, 2) if of.alternates else down
    return changed


def tensors_of(factors: dict[int, ExpertFactorsOf], form: str, block: str = "mlp") -> dict[str, torch.Tensor]:
    """Return the tensors of a file by name."""
    tensors: dict[str, torch.Tensor] = {}
    for layer, of in factors.items():
        prefix = f"base_model.model.model.layers.{layer}.{block}.experts"
        count, inner = len(of.down_a), of.down_a.shape[2]
        gate_b, up_b = of.gate_up_b[:, :inner], of.gate_up_b[:, inner:]
        if of.alternates:
            gate_b, up_b = of.gate_up_b[:, 0::2], of.gate_up_b[:, 1::2]

        def put(name: str, a: torch.Tensor, b: torch.Tensor, prefix: str = prefix) -> None:
            tensors[f"{prefix}{name}.lora_A.weight"] = a.clone().contiguous()
            tensors[f"{prefix}{name}.lora_B.weight"] = b.clone().contiguous()

        def rows(matrices: torch.Tensor) -> torch.Tensor:
            return matrices.flatten(0, 1)

        def columns(matrices: torch.Tensor) -> torch.Tensor:
            return matrices.permute(1, 2, 0).flatten(1)

        if form == "parameters":
            put("", rows(of.down_a), columns(of.down_b))
            put(".base_layer", rows(of.gate_up_a), columns(of.gate_up_b))
        elif form == "exchanged parameters":
            put("", rows(of.gate_up_b.transpose(1, 2)), columns(of.gate_up_a.transpose(1, 2)))
            put(".base_layer", rows(of.down_b.transpose(1, 2)), columns(of.down_a.transpose(1, 2)))
        elif form == "listed":
            for expert in range(count):
                put(f".gate_up_projs.{expert}", of.gate_up_a[expert], of.gate_up_b[expert])
                put(f".down_projs.{expert}", of.down_a[expert], of.down_b[expert])
        elif form in ("each expert", "uneven"):
            names = ("w1", "w3", "w2") if block == "block_sparse_moe" else ("gate_proj", "up_proj", "down_proj")
            for expert in range(count):
                if form == "uneven" and expert == 2:
                    continue
                rank = 2 if form == "uneven" and expert == 1 else RANK
                pairs = (of.gate_up_a, gate_b), (of.gate_up_a, up_b), (of.down_a, of.down_b)
                for name, (a, b) in zip(names, pairs, strict=True):
                    put(f".{expert}.{name}", a[expert, :rank], b[expert, :, :rank])
        elif form == "doubled":
            put(".gate_up_proj", of.gate_up_a.repeat(1, 2, 1), of.gate_up_b)
            put(".down_proj", of.down_a, of.down_b)
        elif form == "stacked":
            put(".gate_up_proj", of.gate_up_a, of.gate_up_b)
            put(".down_proj", of.down_a, of.down_b)
        else:
            few = slice(0, 1) if form == "shared" else slice(None)
            put(".w1", of.gate_up_a[few], gate_b)
            put(".w3", of.gate_up_a[few], up_b)
            put(".w2", of.down_a, of.down_b[few])
    return tensors


def config_of(form: str, **changes: Any) -> dict[str, Any]:
    modules: Any = r".*\.experts\..*"
    config: dict[str, Any] = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": modules,
        "base_model_name_or_path": "base",
    }  # fmt: skip
    if "parameters" in form:
        parameters = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
        config |= {"target_modules": [], "target_parameters": parameters}
    if form == "uneven":
        # The scale stays that of the others: expert 2 has no LoRA.
        config |= {"rank_pattern": {r".*experts\.1\..*": 2}, "alpha_pattern": {r".*experts\.1\..*": ALPHA // 2}}
        config |= {"exclude_modules": r".*experts\.2\..*"}
    return config | changes


def save_experts(
    root: Path, factors: dict[int, ExpertFactorsOf], form: str, block: str = "mlp", **changes: Any
) -> Adapter:
    """Write an adapter into ``root``."""
    root.mkdir(parents=True)
    save_file(tensors_of(factors, form, block), root / "adapter_model.safetensors")
    (root / "adapter_config.json").write_text(json.dumps(config_of(form, **changes)))
    return adapter_at(root.name, root)
