from dataclasses import replace

from . import qwen3_5
from .family import GatedDelta, Settings


def _experts(settings: Settings) -> str:
    dense = settings["mlp_only_layers"] or ()
    for layer in range(settings["num_hidden_layers"]):
        if layer not in dense and settings["num_experts"] and (layer + 1) % settings["decoder_sparse_step"] == 0:
            return f"a mixture of {settings['num_experts']} experts (num_experts) in layer {layer}"
    return ""


FAMILY = replace(
    qwen3_5.FAMILY,
    model_type="qwen3_next",
    title="Qwen3-Next",
    defaults={
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "decoder_sparse_step": 1, "num_experts": 512,
        "mlp_only_layers": None,
    },
    gated_delta=GatedDelta(inputs=("in_proj_qkvz",), gates=("in_proj_ba",), interleaved=True),
    unsupported=_experts,
    multimodal="",
)  # fmt: skip
