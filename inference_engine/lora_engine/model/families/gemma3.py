from dataclasses import replace

from . import gemma2
from .family import Rope, every_nth_full

FAMILY = replace(
    gemma2.FAMILY,
    model_type="gemma3_text",
    title="Gemma 3, text only",
    defaults={
        **gemma2.FAMILY.defaults, "vocab_size": 262208, "max_position_embeddings": 131072,
        "final_logit_softcapping": None, "attn_logit_softcapping": None,
    },
    rope=Rope(theta=1_000_000.0, local_theta=("rope_local_base_freq", 10_000.0), by_layer_type=True),
    qk_norm="head",
    attention_softcap="",  # config.json may set one, which transformers does not apply
    layer_types=every_nth_full("sliding_window_pattern", 6),
)  # fmt: skip
