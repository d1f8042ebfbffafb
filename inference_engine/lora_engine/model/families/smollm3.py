from .family import Family, Rope, Settings


def rotates(settings: Settings, layer: int) -> bool:
    """Return whether a layer rotates: all but every fourth do."""
    listed = settings.get("no_rope_layers")
    if listed is not None:
        return bool(listed[layer])
    return bool((layer + 1) % settings["no_rope_layer_interval"])


def layer_types(settings: Settings) -> list[str]:
    slides = settings["use_sliding_window"] and settings["sliding_window"] is not None
    return [
        "sliding_attention" if slides and not rotates(settings, layer) else "full_attention"
        for layer in range(settings["num_hidden_layers"])
    ]


FAMILY = Family(
    model_type="smollm3",
    title="SmolLM3",
    defaults={
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": None, "no_rope_layer_interval": 4,
    },
    rope=Rope(theta=2_000_000.0),
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
    layer_types=layer_types,
    rotates=lambda settings, layer, slides: rotates(settings, layer),
)  # fmt: skip
