"""The description of a model family: its norms, scales and caps, and which layers rotate and which slide.

One transformer (`transformer.py`) runs them all. A family is one file beside this one that fills in a ``Family``, with
the defaults that ``transformers`` has for keys that `config.json` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# The family's defaults, overridden by config.json.
Settings = Mapping[str, Any]
# A fixed value, or the name of the setting that decides.
Switch = bool | str


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm, ``x / rms(x)`` times a weight, computed in float32.

    ``centred``: the mean is subtracted first (LayerNorm). ``offset`` is added to the stored weight. ``rounded_first``:
    the result is rounded to the activations' precision before it is multiplied by the weight, instead of after.
    """

    centred: bool = False
    offset: float = 0.0
    rounded_first: bool = True
    eps: str = "rms_norm_eps"  # name of the setting


@dataclass(frozen=True, slots=True)
class Rope:
    """The rotary embeddings of a family: how config.json is read, and how the dimensions of a head are paired.

    ``by_layer_type``: full and sliding layers have separate parameters. ``partial``: only a share of a head's first
    dimensions may rotate; ``partial_default`` is the share if config.json has none. ``interleaved``: dimensions 2i and
    2i + 1 are a pair, otherwise i and i + half.
    """

    theta: float = 10_000.0
    local_theta: tuple[str, float] | None = None  # theta of sliding layers: name of the setting, and default
    by_layer_type: bool = False
    partial: bool = False
    partial_default: float = 1.0
    interleaved: bool = False
    parameters: Callable[[Settings], dict[str, Any]] | None = None  # default if config.json has none
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of kinds
    kinds: tuple[str, ...] = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """The gated delta layers of a family, which config.json calls linear_attention: the names of their modules.

    ``inputs`` are the modules of queries, keys, values and z, in this order: one, two or four; ``gates`` are those of
    the rates and the decays, one or two. ``interleaved``: there is one of each, and its output features are stored by
    key head. ``attention_norm``, ``mlp_norm`` and so on are the norms of such a layer where they are not the family's,
    see ``Family``.
    """

    inputs: tuple[str, ...] = ("in_proj_qkv", "in_proj_z")
    gates: tuple[str, ...] = ("in_proj_b", "in_proj_a")
    interleaved: bool = False
    output: str = "out_proj"
    norm: str = "norm"  # of the output by head
    norm_eps: float | None = None  # None: that of the other norms
    doubled_rate: Switch = False  # rates are up to two, so that eigenvalues of a state's change may be negative
    attention_norm: str | None = None
    attention_out_norm: str | None = None
    mlp_norm: str | None = None
    mlp_out_norm: str | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts that some layers of a family have instead of one MLP; fields name settings.

    A router scores all experts of a layer, and each token's output is the sum of the best ``per_token`` of them, by
    the softmax of their scores over all experts. ``renormalised``: these weights are divided by their sum. ``shared``:
    the width of an MLP that every token uses beside its experts, times the sigmoid of a product of its own.
    ``shared_count``: such an MLP is as wide as so many experts, has the name ``shared_experts``, and no such weight.

    ``sigmoid``: weights are the sigmoids of scores. Experts are chosen by the sum of these and of a correction for each
    expert, among the experts of the ``kept_groups`` of ``groups`` whose two best sums are largest. Weights are
    multiplied by ``scale``.
    """

    count: str = "num_experts"
    either_name: bool = True  # `count` may have the name num_experts or num_local_experts
    per_token: str = "num_experts_per_tok"
    inner: str = "moe_intermediate_size"  # features between an expert's two products
    renormalised: Switch = "norm_topk_prob"
    shared: str = ""  # "": no such MLP
    shared_count: str = ""  # "": no such MLP
    sigmoid: bool = False
    groups: str = "n_group"  # this and the next two only with sigmoids
    kept_groups: str = "topk_group"
    scale: str = "routed_scaling_factor"
    sparse: Callable[[Settings, int], bool] | None = None  # (settings, layer): has experts; None: every layer has
    biased: bool = False  # the router and the experts' products have biases
    swiglu: tuple[str, str] = ("", "")  # slope and limit of a clamped SwiGLU, instead of the family's activation
    # Checkpoints and adapters have one tensor of all experts for each product, ``[experts, in, out]``, and outputs of
    # gate and up in turn.
    interleaved: bool = False
    router: str = "gate"  # module of the block mlp in checkpoints and adapters
    # Other names in checkpoints: of the block mlp, and of an expert's gate_proj, up_proj and down_proj.
    stored_block: str = "mlp"
    stored_modules: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Family:
    """A model family; all fields but the first three default to the value of most families."""

    model_type: str  # in config.json
    title: str  # for display
    defaults: Settings
    rope: Rope = Rope()
    # Names of the norms' weights ("": no norm): of the input and the output of attention, and of the MLP.
    norm: Norm = Norm()
    attention_norm: str = "input_layernorm"
    attention_out_norm: str = ""
    mlp_norm: str = "post_attention_layernorm"
    mlp_out_norm: str = ""
    parallel_mlp: bool = False  # attention and MLP read the same input
    qk_norm: str = ""  # "head": queries and keys are normed by head; "all": all heads together
    sinks: bool = False  # each head has a score without a value, beside those of the keys
    qk_norm_switch: str = ""  # name of the setting without which they are not normed; "": there is none
    gated_queries: bool = False  # q_proj computes for each head its query and a gate of its output
    gated_delta: GatedDelta | None = None  # layers of the type linear_attention
    experts: Experts | None = None
    # Projections.
    fused_qkv: bool = False  # one module qkv_proj in checkpoints and adapters
    fused_gate_up: bool = False  # one module gate_up_proj
    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    activation: str = "hidden_act"  # name of the setting
    # Other names in checkpoints: of modules in a layer, and of a layer's tensors that are stored in parts, by row.
    stored_names: Mapping[str, str] = field(default_factory=dict)
    joined_tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Scales and caps.
    attention_scale: Callable[[Settings], float] | None = None  # None: 1 / sqrt(head_dim)
    query_growth: bool = False  # queries grow with the logarithm of their position
    attention_softcap: str = ""  # name of the setting
    embedding_scale: Callable[[Settings], float] | None = None
    embedding_scale_rounded: bool = False  # to the weights' precision
    residual_scale: str = ""  # name of the setting: factor of the outputs of attention and MLP
    logit_scale: Callable[[Settings], float] | None = None
    logit_softcap: str = ""  # name of the setting
    # Layers.
    layer_types: Callable[[Settings], list[str]] | None = None  # default if config.json has no list
    slides_everywhere: bool = False  # sliding_window, if set, holds for every layer
    rotates: Callable[[Settings, int, bool], bool] | None = None  # (settings, layer, slides); None: every layer does
    refused: Mapping[str, str] = field(default_factory=dict)  # unsupported settings, which must not be true: meaning
    unsupported: Callable[[Settings], str] | None = None  # returns what config.json asks for that is not; "": nothing
    multimodal: str = ""  # model_type of checkpoints that contain this model beside a vision tower
    # Tensors of a layer that predicts a further token, in checkpoints that have one: how their names begin ("{layers}"
    # is the number of the other layers), and how they begin where they are loaded, see ``tensor_shapes.MTP_NAMES``.
    mtp: Mapping[str, str] = field(default_factory=dict)

    def norms(self, *, gated_delta: bool) -> tuple[str, str, str, str]:
        """Return the names of a layer's norms: before and after its mixer, before and after its MLP ("": none)."""
        names = (self.attention_norm, self.attention_out_norm, self.mlp_norm, self.mlp_out_norm)
        if not gated_delta or (delta := self.gated_delta) is None:
            return names
        others = (delta.attention_norm, delta.attention_out_norm, delta.mlp_norm, delta.mlp_out_norm)
        first, second, third, fourth = (a if b is None else b for a, b in zip(names, others, strict=True))
        return first, second, third, fourth


def every_nth_full(
    period: int | str, default: int = 0, other: str = "sliding_attention"
) -> Callable[[Settings], list[str]]:
    """Return layer types that are ``other`` in all layers but every n-th; ``period`` is n, or the name of its
    setting.
    """

    def layer_types(settings: Settings) -> list[str]:
        n = settings.get(period, default) if isinstance(period, str) else period
        return [other if (layer + 1) % n else "full_attention" for layer in range(settings["num_hidden_layers"])]

    return layer_types
