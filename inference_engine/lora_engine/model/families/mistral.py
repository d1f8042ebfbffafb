from .family import Family

FAMILY = Family(
    model_type="mistral",
    title="Mistral 7B, Nemo, Small",
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
    },
    slides_everywhere=True,
)  # fmt: skip
