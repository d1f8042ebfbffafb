from .family import Experts, Family

FAMILY = Family(
    model_type="olmoe",
    title="OLMoE",
    defaults={
        "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "num_experts": 64,
        "num_experts_per_tok": 8,
    },
    qk_norm="all",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    experts=Experts(inner="intermediate_size"),
    refused={"clip_qkv": "limiting the values of queries, keys and values"},
)  # fmt: skip
