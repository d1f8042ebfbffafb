from .family import Family, GatedDelta, Norm, Settings, every_nth_full


def _layer_types(settings: Settings) -> list[str]:
    """Return every fourth layer as attention, and the last one of a model that has no fourth."""
    types = every_nth_full(4, other="linear_attention")(settings)
    return types if "full_attention" in types else [*types[:-1], "full_attention"]


def _rotates(settings: Settings, layer: int, slides: bool) -> bool:
    """Return whether attention has positions: the published checkpoints have none, by a rope_theta of null."""
    parameters = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    return parameters.get("rope_theta", settings.get("rope_theta", 10_000.0)) is not None


FAMILY = Family(
    model_type="olmo_hybrid",
    title="OLMo Hybrid",
    defaults={
        "vocab_size": 100352, "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 30, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
        "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True,
    },
    norm=Norm(rounded_first=False),
    # Attention layers are normed behind attention and MLP as in OLMo 3, gated delta layers before as in Llama.
    attention_norm="",
    attention_out_norm="post_attention_layernorm",
    mlp_norm="",
    mlp_out_norm="post_feedforward_layernorm",
    qk_norm="all",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    gated_delta=GatedDelta(
        inputs=("q_proj", "k_proj", "v_proj", "g_proj"),
        gates=("b_proj", "a_proj"),
        output="o_proj",
        norm="o_norm",
        norm_eps=1e-5,
        doubled_rate="linear_allow_neg_eigval",
        attention_norm="input_layernorm",
        attention_out_norm="",
        mlp_norm="post_attention_layernorm",
        mlp_out_norm="",
    ),
    # Checkpoints have the names of the training code.
    stored_names={"attention_layer_norm": "input_layernorm", "feedforward_layer_norm": "post_attention_layernorm"},
    joined_tensors={"linear_attn.conv1d.weight": tuple(f"linear_attn.{part}_conv1d.weight" for part in "qkv")},
    layer_types=_layer_types,
    rotates=_rotates,
)  # fmt: skip
