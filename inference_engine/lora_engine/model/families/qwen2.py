from .family import Family, Settings


def layer_types(settings: Settings) -> list[str]:
    """Return layer types: layers below ``max_window_layers`` have full attention."""
    slides = settings["use_sliding_window"] and settings["sliding_window"] is not None
    return [
        "sliding_attention" if slides and layer >= settings["max_window_layers"] else "full_attention"
        for layer in range(settings["num_hidden_layers"])
    ]


DEFAULTS = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
}  # fmt: skip
FAMILY = Family(
    model_type="qwen2",
    title="Qwen 2 and 2.5",
    defaults=DEFAULTS,
    qkv_bias=True,
    layer_types=layer_types,
)
