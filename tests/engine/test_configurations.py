"""A ``config.json`` means here what it means to ``transformers``: every family, keys missing, null, old and new."""

from __future__ import annotations

import copy
import importlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from lorikeet_testing.tiny_models import FAMILIES as TINY
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto import CONFIG_MAPPING

from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import DeltaConfig, ExpertsConfig, ModelConfig
from lora_engine.model.families import FAMILIES
from lora_engine.model.rope import RotaryPairs, inverse_frequencies, rotary_table

Raw = dict[str, Any]
POSITIONS, LAYERS, HEAD = 24, 3, 16
BASE: Raw = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    "rope_theta": 20_000.0,
}  # fmt: skip
SCALINGS: list[Raw] = [
    {"type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 2.0, "attention_factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"type": "yarn", **YARN},
    {"rope_type": "yarn", "factor": 8.0},
    {"rope_type": "yarn", **YARN, "attention_factor": 1.7, "beta_fast": 16, "beta_slow": 2},
    {"rope_type": "yarn", **YARN, "beta_fast": None, "beta_slow": None, "truncate": False},
    {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
    {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0.0},
    {"rope_type": "llama3", **LLAMA3},
    {"rope_type": "default"},
    {"rope_type": "default", "rope_theta": 777.0},
    {"type": "longrope", "short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]},
    {"type": "su", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 128},
    {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "factor": 6.0},
    {"rope_type": "longrope", "short_factor": [1.5] * 8, "long_factor": [4.0] * 8, "attention_factor": 1.3},
]
VALUES: dict[str, list[Any]] = {
    "num_key_value_heads": [None, 1, 4],
    "head_dim": [HEAD, 32],
    "tie_word_embeddings": [True, False],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "rms_norm_eps": [1e-4, 1e-5],
    "layer_norm_eps": [1e-4],
    "hidden_act": ["silu", "gelu_pytorch_tanh"],
    "hidden_activation": ["silu", "gelu_pytorch_tanh"],
    "rope_theta": [5000.0, 1_000_000, 10_000],
    "rope_local_base_freq": [300.0],
    "rope_scaling": [*SCALINGS, None],
    "rope_parameters": [*SCALINGS, None],
    "partial_rotary_factor": [0.5, 1.0],
    "max_position_embeddings": [256, 1024],
    "original_max_position_embeddings": [64, 256],
    "sliding_window": [32, None],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 3],
    "sliding_window_pattern": [2, 3],
    "layer_types": [["full_attention"] * LAYERS, ["sliding_attention", "full_attention", "sliding_attention"], None],
    "no_rope_layers": [[1, 0, 1], None],
    "linear_num_value_heads": [4, 8],
    "linear_num_key_heads": [2, 4],
    "linear_key_head_dim": [8, 24],
    "linear_conv_kernel_dim": [2, 4],
    "no_rope_layer_interval": [2, 3],
    "query_pre_attn_scalar": [16, 100],
    "attn_logit_softcapping": [None, 20.0],
    "final_logit_softcapping": [None, 10.0],
    "embedding_multiplier": [2.0, 12],
    "logits_scaling": [4.0, 8],
    "residual_multiplier": [0.5],
    "attention_multiplier": [0.2],
    "logit_scale": [0.5],
}
EXPERTS: list[Raw] = [
    {"num_experts": 8, "num_experts_per_tok": 2},
    {"num_local_experts": 4, "num_experts_per_tok": 3},
    {"num_experts_per_tok": 5, "norm_topk_prob": True},
    {"decoder_sparse_step": 2, "moe_intermediate_size": 24},
    {"mlp_only_layers": [0, 2], "norm_topk_prob": False},
    {"decoder_sparse_step": 9},
    {"swiglu_alpha": 1.5, "swiglu_limit": 5.0},
]
SIGMOID_EXPERTS: list[Raw] = [
    {"n_routed_experts": 8, "num_experts_per_tok": 2},
    {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "use_qk_norm": True},
    {"n_shared_experts": 2, "moe_intermediate_size": 24, "norm_topk_prob": False, "routed_scaling_factor": 2.5},
    {"first_k_dense_replace": 0},
    {"first_k_dense_replace": 3},
]
QKV_BIAS = {"qwen2": True, "mistral": False, "mixtral": False, "ministral3": False, "phi3": False}
NO_O_BIAS = ("qwen2", "mistral", "mixtral", "ministral3", "phi3", "glm", "glm4", "glm4_moe")
WITH_MLP_BIAS = ("llama", "granite", "smollm3")


def perturbed(kind: str, rnd: random.Random) -> Raw:
    """A small configuration with up to five keys left out or set."""
    raw: Raw = {"model_type": kind, **BASE}
    for _ in range(rnd.randint(1, 5)):
        if rnd.random() < 0.25:
            raw.pop(rnd.choice([key for key in raw if key != "model_type"]), None)
            continue
        key = rnd.choice(list(VALUES))
        raw[key] = copy.deepcopy(rnd.choice(VALUES[key]))
    if kind in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"):
        raw.setdefault("full_attention_interval", rnd.choice([1, 2, 3]))
    if FAMILIES[kind].experts is not None:
        raw |= rnd.choice(SIGMOID_EXPERTS if kind == "glm4_moe" else EXPERTS)
    if kind == "qwen3_next":  # some configurations have no experts at all
        raw |= rnd.choice([{}, {}, {"num_experts": 0}, {"mlp_only_layers": list(range(48))}])
        raw.setdefault("shared_expert_intermediate_size", rnd.choice([96, 40]))
    if kind == "olmo_hybrid" and rnd.random() < 0.5:
        raw |= rnd.choice(
            [
                {"linear_allow_neg_eigval": False},
                {"rope_theta": None},
                {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
                {"linear_num_value_heads": None, "linear_value_head_dim": None},
            ]
        )
    if kind in ("gemma3_text", "olmo3") and raw.get("rope_parameters"):
        raw["rope_parameters"] = {rnd.choice(["full_attention", "sliding_attention"]): raw["rope_parameters"]}
    return raw


class Theirs:
    """What ``transformers`` makes of a configuration."""

    def __init__(self, raw: Raw) -> None:
        self.kind = raw["model_type"]
        self.config: Any = CONFIG_MAPPING[self.kind].from_dict(copy.deepcopy(raw))
        folder = self.kind.removesuffix("_text")
        module: Any = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        name = next(name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name)
        self._rotary = getattr(module, name)(self.config) if self._has_positions() else None

    def _has_positions(self) -> bool:
        return self.kind != "olmo_hybrid" or self.config.rope_parameters.get("rope_theta") is not None

    def table(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each pair of dimensions, ``[positions, pairs]``."""
        by_type = (self.config.layer_types[layer],) if self.kind in ("gemma3_text", "olmo3") else ()
        assert self._rotary is not None
        cos, sin = self._rotary(torch.zeros(1), torch.arange(POSITIONS)[None], *by_type)
        pairs = cos.shape[-1] if self.kind == "gpt_oss" else cos.shape[-1] // 2
        chosen = slice(0, None, 2) if self.kind == "cohere2" else slice(0, pairs)
        return cos[0][:, chosen], sin[0][:, chosen]

    def window(self, layer: int) -> int:
        c = self.config
        if self.kind in ("llama", "granite", "olmo2", "olmoe", "glm", "glm4", "glm4_moe"):
            return 0
        slides = (
            self.kind in ("mistral", "mixtral", "ministral3", "phi3", "qwen3_moe")
            or c.layer_types[layer] == "sliding_attention"
        )
        if self.kind == "smollm3":
            slides = slides and c.use_sliding_window
        return (c.sliding_window or 0) if slides else 0

    def is_sparse(self, layer: int) -> bool:
        c = self.config
        if self.kind == "glm4_moe":
            return bool(layer >= c.first_k_dense_replace)
        if self.kind not in ("qwen3_moe", "qwen3_next"):
            return True
        return c.num_experts > 0 and layer not in c.mlp_only_layers and (layer + 1) % c.decoder_sparse_step == 0

    def mlp_width(self) -> int:
        """Of the MLPs that all tokens use: those beside experts, if every layer has experts."""
        only_sparse = all(self.is_sparse(layer) for layer in range(self.config.num_hidden_layers))
        if only_sparse and hasattr(self.config, "shared_expert_intermediate_size"):
            return int(self.config.shared_expert_intermediate_size)
        return int(self.config.intermediate_size)

    def longest(self) -> int:
        """With YaRN, what it is stretched to, which transformers leaves to the configuration's author."""
        c = self.config
        by_type = self.kind in ("gemma3_text", "olmo3")
        of_layers = [c.rope_parameters[kind] for kind in set(c.layer_types)] if by_type else [c.rope_parameters]
        yarn = [p for p in of_layers if p["rope_type"] == "yarn"]
        stretched = [round(p["original_max_position_embeddings"] * p["factor"]) for p in yarn if self._has_positions()]
        return max([c.max_position_embeddings, *stretched])

    def rotates(self, layer: int) -> bool:
        if self.kind == "smollm3":
            return bool(self.config.no_rope_layers[layer])
        return self._has_positions() and (self.kind != "cohere2" or self.window(layer) > 0)

    def scale(self, head_dim: int) -> float:
        if self.kind == "granite":
            return float(self.config.attention_multiplier)
        if self.kind.startswith("gemma"):
            return float(self.config.query_pre_attn_scalar**-0.5)
        return float(head_dim**-0.5)


def compare(raw: Raw, ours: ModelConfig, theirs: Theirs) -> None:
    c, kind = theirs.config, theirs.kind
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    bias = QKV_BIAS.get(kind, getattr(c, "attention_bias", False))
    expected = {
        "num_layers": c.num_hidden_layers,
        "hidden_size": c.hidden_size,
        "intermediate_size": theirs.mlp_width(),
        "num_heads": c.num_attention_heads,
        "num_kv_heads": c.num_key_value_heads or c.num_attention_heads,
        "head_dim": head_dim,
        "vocab_size": c.vocab_size,
        "max_position": theirs.longest(),
        "norm_eps": c.layer_norm_eps if kind == "cohere2" else c.rms_norm_eps,
        "activation": {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}[
            c.hidden_activation if kind.startswith("gemma") else c.hidden_act
        ],
        "tie_embeddings": c.tie_word_embeddings,
        "qkv_bias": bias,
        "o_bias": kind not in NO_O_BIAS and c.attention_bias,
        "mlp_bias": kind in WITH_MLP_BIAS and c.mlp_bias,
        "windows": tuple(theirs.window(layer) for layer in range(c.num_hidden_layers)),
        "attention_scale": theirs.scale(head_dim),
        "attention_softcap": getattr(c, "attn_logit_softcapping", None) or 0.0 if kind.startswith("gemma2") else 0.0,
        "embedding_scale": c.hidden_size**0.5
        if kind.startswith("gemma")
        else (c.embedding_multiplier if kind == "granite" else 1.0),
        "residual_scale": c.residual_multiplier if kind == "granite" else 1.0,
        "logit_scale": {"granite": lambda: 1 / c.logits_scaling, "cohere2": lambda: c.logit_scale}.get(
            kind, lambda: 1.0
        )(),
        "logit_softcap": (c.final_logit_softcapping or 0.0) if kind.startswith("gemma") else 0.0,
    }
    assert {key: getattr(ours, key) for key in expected} == expected, raw
    if ours.delta is not None:
        types = {layer for layer, kind in enumerate(c.layer_types) if kind == "linear_attention"}
        sizes = c.linear_num_value_heads, c.linear_num_key_heads, c.linear_key_head_dim, c.linear_value_head_dim
        assert ours.delta_layers == types, raw
        other = (1e-5, 2.0 if c.linear_allow_neg_eigval else 1.0) if kind == "olmo_hybrid" else (c.rms_norm_eps, 1.0)
        assert ours.delta == DeltaConfig(*sizes, c.linear_conv_kernel_dim - 1, *other), raw
    if ours.experts is not None:
        inner = c.intermediate_size if kind in ("mixtral", "olmoe", "gpt_oss") else c.moe_intermediate_size
        renormalised = kind in ("mixtral", "qwen3_5_moe_text", "gpt_oss") or c.norm_topk_prob
        swiglu = (c.swiglu_alpha, c.swiglu_limit) if kind == "gpt_oss" else ()
        shared = getattr(c, "shared_expert_intermediate_size", 0)
        if kind == "glm4_moe":
            groups = c.n_group, c.topk_group, c.routed_scaling_factor
            names = "groups", "kept_groups", "scale"
            wanted = ExpertsConfig(
                c.n_routed_experts, c.num_experts_per_tok, inner, renormalised, inner * c.n_shared_experts,
                sigmoid=True, **dict(zip(names, groups, strict=True)),
            )  # fmt: skip
            assert ours.family.qk_norm == ("head" if c.use_qk_norm else ""), raw
        else:
            sizes = c.num_experts, c.num_experts_per_tok, inner, renormalised, shared
            wanted = ExpertsConfig(*sizes, *swiglu, gated_shared=ours.experts.gated_shared)
            assert ours.experts.gated_shared >= bool(shared)
        assert ours.experts == wanted, raw
    if ours.family.experts is not None:
        assert ours.sparse_layers == {layer for layer in range(c.num_hidden_layers) if theirs.is_sparse(layer)}, raw
    for layer in range(min(c.num_hidden_layers, 4)):
        rope = ours.ropes[layer]
        assert (rope is not None) == theirs.rotates(layer), raw
        if rope is None:
            continue
        pairs = RotaryPairs(head_dim, rope.rotary_dim, ours.family.rope.interleaved)
        table = rotary_table(rope, pairs, POSITIONS, torch.device("cpu"), torch.float32)
        step = slice(1, rope.rotary_dim, 2) if pairs.interleaved else slice(rope.rotary_dim // 2, rope.rotary_dim)
        cos, sin = theirs.table(layer)
        torch.testing.assert_close(table.cos[:, step], cos, msg=lambda text: f"{raw}: {text}")
        torch.testing.assert_close(table.sin[:, step], sin, msg=lambda text: f"{raw}: {text}")
        if rope.kind == "longrope":
            by_type = {"layer_type": c.layer_types[layer]} if kind in ("gemma3_text", "olmo3") else {}
            beyond = rope.original_max_position + 1
            long, factor = ROPE_INIT_FUNCTIONS["longrope"](c, None, seq_len=beyond, **by_type)
            torch.testing.assert_close(inverse_frequencies(rope, beyond), long)
            assert rope.attention_factor == pytest.approx(factor)


# What transformers reads and then breaks on, or ignores, in its forward pass; and sizes that make no model.
REFUSED = (
    "none of which divides",
    "must be a list of",
    "dimensions cannot rotate",
    "partial_rotary_factor",
    "differ by layer type",
    "sliding_window must be",
    "rope type 'longrope'",
    "layer_types must name one of",
    "no layer with attention",
    "value heads for",
    "experts per token",
    "and shared experts",
)


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", FAMILIES)
def test_perturbed_configurations(kind: str, count: int) -> None:
    rnd, compared, tried = random.Random(kind), 0, 0
    while compared < count:
        raw, tried = perturbed(kind, rnd), tried + 1
        ours = outcome(partial(ModelConfig.from_dict, raw), UnsupportedModel)
        theirs = outcome(partial(Theirs, raw), Exception)
        if isinstance(theirs, Exception):
            continue  # nothing to compare with; ours did not raise anything else than what it may
        if isinstance(ours, UnsupportedModel):
            assert any(reason in str(ours) for reason in REFUSED), (raw, str(ours))
            continue
        compare(raw, ours, theirs)
        compared += 1
    assert compared > tried / 3


def outcome(call: Callable[[], Any], refusals: type[Exception] | tuple[type[Exception], ...]) -> Any:
    """What a call returns, or how it refuses."""
    try:
        return call()
    except refusals as error:
        return error


def test_shared_experts_beside_mlps_of_another_width_are_refused() -> None:
    settings = {
        "mlp_only_layers": [0],
        "layer_types": ["linear_attention", "full_attention"] * 3,
        "num_hidden_layers": 6,
    }
    raw = {**BASE, "model_type": "qwen3_next", "shared_expert_intermediate_size": 40, **settings}
    with pytest.raises(UnsupportedModel, match="an MLP of width 96, and shared experts 40"):
        ModelConfig.from_dict(raw)


@pytest.mark.parametrize("groups", [{"n_group": 3}, {"n_group": 8}, {"n_group": 4, "topk_group": 5}, {"n_group": 4}])
def test_groups_of_experts_that_no_token_can_use_are_refused(groups: Raw) -> None:
    raw = {**BASE, "model_type": "glm4_moe", "n_routed_experts": 8, "num_experts_per_tok": 3, **groups}
    with pytest.raises(UnsupportedModel, match=r"8 experts in . groups, of which"):
        ModelConfig.from_dict(raw)


def test_a_step_of_zero_between_sparse_layers_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="layers with experts cannot be read"):
        ModelConfig.from_dict(
            {**BASE, "model_type": "qwen3_next", "decoder_sparse_step": 0, "full_attention_interval": 1}
        )


def test_every_family_has_a_tiny_model() -> None:
    assert {kind for kind, _ in TINY.values()} == set(FAMILIES)
