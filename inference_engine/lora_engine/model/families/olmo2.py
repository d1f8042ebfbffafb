from .family import Family, Norm

FAMILY = Family(
    model_type="olmo2",
    title="OLMo 2",
    defaults={
        "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    },
    norm=Norm(rounded_first=False),
    attention_norm="",
    attention_out_norm="post_attention_layernorm",
    mlp_norm="",
    mlp_out_norm="post_feedforward_layernorm",
    qk_norm="all",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
)  # fmt: skip
