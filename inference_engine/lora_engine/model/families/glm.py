from .family import Family, Rope

FAMILY = Family(
    model_type="glm",
    title="GLM-4 9B and GLM-Edge",
    defaults={
        "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072,
        "rms_norm_eps": 1.5625e-07, "attention_bias": True,
    },
    rope=Rope(partial=True, partial_default=0.5, interleaved=True),
    fused_gate_up=True,
    qkv_bias="attention_bias",
)  # fmt: skip
