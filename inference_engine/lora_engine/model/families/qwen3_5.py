from .family import Family, GatedDelta, Norm, Rope, every_nth_full

FAMILY = Family(
    model_type="qwen3_5_text",
    title="Qwen 3.5, text only",
    defaults={
        "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    },
    # Positions of text are the same in all three sections of the multimodal rotary embedding.
    rope=Rope(theta=10_000.0, partial=True, partial_default=0.25),
    norm=Norm(offset=1.0, rounded_first=False),
    qk_norm="head",
    gated_queries=True,
    gated_delta=GatedDelta(),
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    layer_types=every_nth_full("full_attention_interval", 4, other="linear_attention"),
    multimodal="qwen3_5",
    mtp={
        "mtp.layers.0.": "model.layers.0.",
        "mtp.pre_fc_norm_embedding.": "model.layers.0.enorm.",
        "mtp.pre_fc_norm_hidden.": "model.layers.0.hnorm.",
        "mtp.fc.": "model.layers.0.eh_proj.",
        "mtp.norm.": "model.norm.",
    },
)  # fmt: skip
