from .family import Family, Rope

FAMILY = Family(
    model_type="phi3",
    title="Phi-3, Phi-3.5, Phi-4 and Phi-4-mini",
    defaults={
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
    rope=Rope(partial=True, aliases={"su": "longrope", "yarn": "longrope"}, kinds=("default", "longrope")),
    fused_qkv=True,
    fused_gate_up=True,
    slides_everywhere=True,
)  # fmt: skip
