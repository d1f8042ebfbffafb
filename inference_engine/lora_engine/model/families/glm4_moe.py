from .family import Experts, Family, Rope

FAMILY = Family(
    model_type="glm4_moe",
    title="GLM-4.5 to 4.7",
    defaults={
        "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46,
        "num_attention_heads": 96, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128,
        "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
    },
    rope=Rope(partial=True, partial_default=0.5),
    qk_norm="head",
    qk_norm_switch="use_qk_norm",
    qkv_bias="attention_bias",
    experts=Experts(
        count="n_routed_experts",
        either_name=False,
        shared_count="n_shared_experts",
        sigmoid=True,
        sparse=lambda settings, layer: layer >= settings["first_k_dense_replace"],
    ),
    mtp={
        "model.layers.{layers}.shared_head.norm.": "model.norm.",
        "model.layers.{layers}.shared_head.head.": "",  # copies of the model's
        "model.layers.{layers}.embed_tokens.": "",
        "model.layers.{layers}.": "model.layers.0.",
    },
)  # fmt: skip
