from .family import Experts, Family, Rope

FAMILY = Family(
    model_type="mixtral",
    title="Mixtral",
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    rope=Rope(theta=1_000_000.0),
    experts=Experts(
        count="num_local_experts",
        inner="intermediate_size",
        renormalised=True,
        stored_block="block_sparse_moe",
        stored_modules=("w1", "w3", "w2"),
    ),
    slides_everywhere=True,
)  # fmt: skip
