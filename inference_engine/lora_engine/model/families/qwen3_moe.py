from .family import Experts, Family, Settings


def _sparse(settings: Settings, layer: int) -> bool:
    return layer not in (settings["mlp_only_layers"] or ()) and (layer + 1) % settings["decoder_sparse_step"] == 0


def _layer_types(settings: Settings) -> list[str]:
    slides = settings["use_sliding_window"] and settings["sliding_window"] is not None
    return ["sliding_attention" if slides else "full_attention"] * settings["num_hidden_layers"]


FAMILY = Family(
    model_type="qwen3_moe",
    title="Qwen 3, mixture of experts",
    defaults={
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "use_sliding_window": False, "sliding_window": 4096, "decoder_sparse_step": 1, "moe_intermediate_size": 768,
        "num_experts_per_tok": 8, "num_experts": 128, "mlp_only_layers": None,
    },
    qk_norm="head",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    experts=Experts(sparse=_sparse),
    layer_types=_layer_types,
)  # fmt: skip
