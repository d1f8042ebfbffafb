from dataclasses import replace

from . import glm

FAMILY = replace(
    glm.FAMILY,
    model_type="glm4",
    title="GLM-4-0414, 9B and 32B",
    attention_out_norm="post_self_attn_layernorm",
    mlp_out_norm="post_mlp_layernorm",
)
