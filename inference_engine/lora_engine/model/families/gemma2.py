from .family import Family, Norm, every_nth_full

FAMILY = Family(
    model_type="gemma2",
    title="Gemma 2",
    defaults={
        "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
    norm=Norm(offset=1.0, rounded_first=False),
    attention_out_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_out_norm="post_feedforward_layernorm",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    activation="hidden_activation",
    attention_scale=lambda settings: settings["query_pre_attn_scalar"] ** -0.5,
    attention_softcap="attn_logit_softcapping",
    embedding_scale=lambda settings: settings["hidden_size"] ** 0.5,
    embedding_scale_rounded=True,
    logit_softcap="final_logit_softcapping",
    layer_types=every_nth_full(2),
    refused={"use_bidirectional_attention": "attention in both directions"},
)  # fmt: skip
