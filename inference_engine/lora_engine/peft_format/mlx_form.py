"""Adapters of mlx-lm have ``lora_a`` and ``lora_b`` transposed, DoRA's ``m``, and a config with ``lora_parameters``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from .adapter_config import number_of
from .problems import FormatError, printable
from .tensor_names import PEFT_PREFIX, read_name

MLX_WEIGHTS_FILE = "adapters.safetensors"
_TENSOR = re.compile(r"(.*\.)lora_([ab])", re.ASCII)
_MAGNITUDE = re.compile(r"(.*_proj\.)m", re.ASCII)


def is_mlx_config(raw: dict[str, Any]) -> bool:
    return "peft_type" not in raw and isinstance(raw.get("lora_parameters"), dict)


def peft_name(name: str) -> str | None:
    """Return the PEFT name of a matrix, whose PEFT form is its transpose; None for anything else."""
    match = _TENSOR.fullmatch(name)
    return read_name(f"{match[1]}lora_{match[2].upper()}.weight").name if match else None


def peft_vector_name(name: str) -> str | None:
    """Return the PEFT name of DoRA's magnitudes; None for anything else."""
    match = _MAGNITUDE.fullmatch(name)
    return read_name(f"{match[1]}lora_magnitude_vector").name if match else None


def peft_config(raw: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the config that PEFT would write for tensors of these PEFT names. Raises ``FormatError``."""
    kind = raw.get("fine_tune_type", "dora" if raw.get("use_dora") else "lora")
    if kind not in ("lora", "dora"):
        raise FormatError(
            "unsupported_feature",
            f"mlx-lm trained this with fine_tune_type {printable(kind)}; it cannot be served.",
            "Train with fine_tune_type: lora or dora.",
        )
    names = list(names)
    if any(name.rpartition(".lora_")[0].endswith(".embed_tokens") for name in names):
        raise FormatError(
            "unsupported_feature",
            "mlx-lm put LoRA on embed_tokens, which is another matrix in a model that ties it to its head than in one "
            "that does not; it cannot be served.",
            "Train without it: leave embed_tokens out of the keys of lora_parameters.",
        )
    parameters = raw["lora_parameters"]
    if "alpha" in parameters:
        raise FormatError(
            "ambiguous_scale",
            "lora_parameters holds alpha, which early versions of mlx-lm multiply into the scale, and others ignore.",
            "Remove alpha from adapter_config.json; for an early version, set scale to scale * alpha / rank too.",
        )
    rank, scale = parameters.get("rank"), number_of(parameters.get("scale"))
    if type(rank) is not int or not 1 <= rank <= 1 << 20 or scale is None or not math.isfinite(scale * rank):
        raise FormatError(
            "invalid_config",
            "adapter_config.json: lora_parameters holds no whole number `rank` and no number `scale`.",
            "Upload the adapter_config.json that mlx-lm wrote, unedited.",
        )
    alpha = scale * rank
    base = raw.get("model") or raw.get("base_model_name_or_path")  # Unsloth writes the latter
    return {
        "base_model_name_or_path": base if isinstance(base, str) else None,
        "bias": "none",
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted({name.removeprefix(PEFT_PREFIX).rpartition(".lora_")[0] for name in names}),
        "task_type": "CAUSAL_LM",
    } | ({"use_dora": True} if kind == "dora" else {})
