from .family import Family, Norm, Rope, every_nth_full

FAMILY = Family(
    model_type="cohere2",
    title="Command A and Command R7B (Cohere 2)",
    defaults={
        "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
        "num_attention_heads": 64, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "tie_word_embeddings": True,
        "logit_scale": 0.0625, "sliding_window": 4096,
    },
    norm=Norm(centred=True, rounded_first=False, eps="layer_norm_eps"),
    rope=Rope(interleaved=True),
    mlp_norm="",
    parallel_mlp=True,
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    logit_scale=lambda settings: settings["logit_scale"],
    layer_types=every_nth_full("sliding_window_pattern", 4),
    rotates=lambda settings, layer, slides: slides,
)  # fmt: skip
