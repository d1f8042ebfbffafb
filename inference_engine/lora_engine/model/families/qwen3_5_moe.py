from dataclasses import replace

from . import qwen3_5
from .family import Experts

FAMILY = replace(
    qwen3_5.FAMILY,
    model_type="qwen3_5_moe_text",
    title="Qwen 3.5, mixture of experts, text only",
    defaults={
        "vocab_size": 248320, "hidden_size": 2048, "intermediate_size": 512, "num_hidden_layers": 40,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256,
    },
    # Weights are divided by their sum, whatever the configuration says.
    experts=Experts(either_name=False, renormalised=True, shared="shared_expert_intermediate_size"),
    multimodal="qwen3_5_moe",
)  # fmt: skip
