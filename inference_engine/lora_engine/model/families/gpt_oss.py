from .family import Experts, Family, Norm, Rope, every_nth_full

_YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip

FAMILY = Family(
    model_type="gpt_oss",
    title="GPT-OSS",
    defaults={
        "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "sliding_window": 128, "attention_bias": True, "num_local_experts": 128,
        "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    },
    rope=Rope(theta=150_000.0, parameters=lambda settings: dict(_YARN)),
    norm=Norm(rounded_first=False),
    sinks=True,
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    experts=Experts(
        count="num_local_experts",
        inner="intermediate_size",
        renormalised=True,  # the softmax over the chosen experts alone is the same
        biased=True,
        swiglu=("swiglu_alpha", "swiglu_limit"),
        interleaved=True,
        router="router",
    ),
    layer_types=every_nth_full(2),
)  # fmt: skip
