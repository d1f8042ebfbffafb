from typing import Any

from .family import Family, Rope, Settings


def rope_parameters(settings: Settings) -> dict[str, Any]:
    return {
        "type": "yarn", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
    }  # fmt: skip


FAMILY = Family(
    model_type="ministral3",
    title="Ministral 3",
    defaults={
        "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
    },
    rope=Rope(parameters=rope_parameters),
    slides_everywhere=True,
    query_growth=True,
)  # fmt: skip
