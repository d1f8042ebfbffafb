from .family import Family
from .qwen2 import DEFAULTS, layer_types

FAMILY = Family(
    model_type="qwen3",
    title="Qwen 3",
    defaults={**DEFAULTS, "head_dim": 128},
    qk_norm="head",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    layer_types=layer_types,
)
