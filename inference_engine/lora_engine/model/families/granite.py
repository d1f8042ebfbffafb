from .family import Family

FAMILY = Family(
    model_type="granite",
    title="Granite 3 and 4, dense",
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
    },
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
    attention_scale=lambda settings: settings["attention_multiplier"],
    embedding_scale=lambda settings: settings["embedding_multiplier"],
    residual_scale="residual_multiplier",
    logit_scale=lambda settings: 1 / settings["logits_scaling"],
)  # fmt: skip
