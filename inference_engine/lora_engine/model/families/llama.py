from .family import Family

FAMILY = Family(
    model_type="llama",
    title="Llama 2 and 3, and models of the same architecture (SmolLM, TinyLlama, Yi, …)",
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
    },
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
)  # fmt: skip
