"""Sizes of published models, as their config.json has them: for the table of cards and for benchmarks."""

from __future__ import annotations

from typing import Any

_LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}  # fmt: skip
_QWEN_3_5: dict[str, Any] = {
    "model_type": "qwen3_5_text", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 12288,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
    "max_position_embeddings": 262144, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
}  # fmt: skip
_GPT_OSS: dict[str, Any] = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": _LLAMA,
    "Qwen3.5-9B": _QWEN_3_5,
    "Gemma-3-27B": {
        "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262208,
        "max_position_embeddings": 131072, "sliding_window": 1024, "query_pre_attn_scalar": 168,
        "tie_word_embeddings": True,
    },
    "Qwen3.5-27B": _QWEN_3_5 | {
        "num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 17408, "num_attention_heads": 24,
        "linear_num_value_heads": 48,
    },
    "Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
    "Qwen3.5-35B-A3B": {
        "model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "Mixtral-8x7B": {
        "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
        "num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1000000.0,
    },
    "GLM-4.5-Air": {
        "model_type": "glm4_moe", "num_hidden_layers": 46, "hidden_size": 4096, "intermediate_size": 10944,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552,
        "max_position_embeddings": 131072, "attention_bias": True, "n_routed_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408, "n_shared_experts": 1, "first_k_dense_replace": 1,
    },
    "Llama-2-7B": {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    },
    "GPT-OSS-20B": _GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32},
    "GPT-OSS-120B": _GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128},
    "Yi-34B": {
        "model_type": "llama", "num_hidden_layers": 60, "hidden_size": 7168, "intermediate_size": 20480,
        "num_attention_heads": 56, "num_key_value_heads": 8, "vocab_size": 64000, "max_position_embeddings": 4096,
    },
    "Llama-3.1-70B": _LLAMA | {
        "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
    },
    "Qwen2.5-72B": {
        "model_type": "qwen2", "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 29568,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768,
    },
}  # fmt: skip
