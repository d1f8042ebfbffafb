"""The supported model families, by the ``model_type`` of their config.json."""

from . import (
    cohere2,
    gemma2,
    gemma3,
    glm,
    glm4,
    glm4_moe,
    gpt_oss,
    granite,
    llama,
    ministral3,
    mistral,
    mixtral,
    olmo2,
    olmo3,
    olmo_hybrid,
    olmoe,
    phi3,
    qwen2,
    qwen3,
    qwen3_5,
    qwen3_5_moe,
    qwen3_moe,
    qwen3_next,
    smollm3,
)
from .family import Experts, Family, GatedDelta, Norm, Rope, Settings

_MODULES = (
    llama,
    mistral,
    ministral3,
    mixtral,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen3_5,
    qwen3_5_moe,
    qwen3_next,
    gemma2,
    gemma3,
    phi3,
    granite,
    olmo2,
    olmo3,
    olmo_hybrid,
    olmoe,
    smollm3,
    glm,
    glm4,
    glm4_moe,
    cohere2,
    gpt_oss,
)
FAMILIES: dict[str, Family] = {module.FAMILY.model_type: module.FAMILY for module in _MODULES}

__all__ = ["FAMILIES", "Experts", "Family", "GatedDelta", "Norm", "Rope", "Settings"]
