from dataclasses import replace

from . import qwen3_5
from .family import Experts, GatedDelta, Settings


def _sparse(settings: Settings, layer: int) -> bool:
    dense = layer in (settings["mlp_only_layers"] or ()) or not settings["num_experts"]
    return not dense and (layer + 1) % settings["decoder_sparse_step"] == 0


FAMILY = replace(
    qwen3_5.FAMILY,
    model_type="qwen3_next",
    title="Qwen3-Next",
    defaults={
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "decoder_sparse_step": 1, "num_experts": 512,
        "mlp_only_layers": None, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 10, "norm_topk_prob": True,
    },
    gated_delta=GatedDelta(inputs=("in_proj_qkvz",), gates=("in_proj_ba",), interleaved=True),
    experts=Experts(sparse=_sparse, either_name=False, shared="shared_expert_intermediate_size"),
    multimodal="",
)  # fmt: skip
