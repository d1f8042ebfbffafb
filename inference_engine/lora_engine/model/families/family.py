"""What makes a model family: where the norms stand, what is scaled or capped, which layers rotate and which slide.

One transformer (`transformer.py`) runs them all. A family is one file beside this one that fills in a ``Family``, with
the defaults that ``transformers`` has for keys that `config.json` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Mapping[str, Any]  # config.json over the family's defaults
Switch = bool | str  # fixed, or the setting that says so


@dataclass(frozen=True, slots=True)
class Norm:
    """``x / rms(x)`` times a weight, computed in float32.

    ``centred``: the mean is taken off first (LayerNorm). ``offset`` is added to the stored weight. ``rounded_first``:
    rounded to the activations' precision before it is multiplied with the weight, instead of after.
    """

    centred: bool = False
    offset: float = 0.0
    rounded_first: bool = True
    eps: str = "rms_norm_eps"  # the setting


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embeddings: how `config.json` is read, and how pairs of a head's dimensions lie.

    ``by_layer_type``: full and sliding layers have parameters of their own. ``partial``: the family knows heads of
    which only the first dimensions rotate; ``partial_default`` is their share where config.json does not say.
    ``interleaved``: dimensions 2i and 2i + 1 are a pair, else i and i + half.
    """

    theta: float = 10_000.0
    local_theta: tuple[str, float] | None = None  # of sliding layers: its setting and default
    by_layer_type: bool = False
    partial: bool = False
    partial_default: float = 1.0
    interleaved: bool = False
    parameters: Callable[[Settings], dict[str, Any]] | None = None  # where config.json has none
    aliases: Mapping[str, str] = field(default_factory=dict)  # of kinds
    kinds: tuple[str, ...] = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Family:
    """One family; every field but the first three has the value that most families share."""

    model_type: str  # as config.json names it
    title: str  # for people
    defaults: Settings
    rope: Rope = Rope()
    # Norms, by the names of their weights ("": none): before attention, of what attention adds to the residual stream,
    # before the MLP, and of what that adds.
    norm: Norm = Norm()
    attention_norm: str = "input_layernorm"
    attention_out_norm: str = ""
    mlp_norm: str = "post_attention_layernorm"
    mlp_out_norm: str = ""
    parallel_mlp: bool = False  # the MLP reads what attention reads
    qk_norm: str = ""  # "head": queries and keys are normed by head; "all": all heads together
    # Projections.
    fused_qkv: bool = False  # one module qkv_proj in checkpoints and adapters
    fused_gate_up: bool = False  # one module gate_up_proj
    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    activation: str = "hidden_act"  # the setting
    # What is scaled and capped.
    attention_scale: Callable[[Settings], float] | None = None  # None: 1 / sqrt(head_dim)
    query_growth: bool = False  # queries grow with the logarithm of their position
    attention_softcap: str = ""  # the setting
    embedding_scale: Callable[[Settings], float] | None = None
    embedding_scale_rounded: bool = False  # to the weights' precision
    residual_scale: str = ""  # the setting: what of attention and MLP is added
    logit_scale: Callable[[Settings], float] | None = None
    logit_softcap: str = ""  # the setting
    # Layers.
    layer_types: Callable[[Settings], list[str]] | None = None  # where config.json has no list
    slides_everywhere: bool = False  # sliding_window, if set, holds for every layer
    rotates: Callable[[Settings, int, bool], bool] | None = None  # (settings, layer, slides); None: every layer does
    refused: Mapping[str, str] = field(default_factory=dict)  # settings that must not be true: what they would mean


def every_nth_full(period: int | str, default: int = 0) -> Callable[[Settings], list[str]]:
    """Sliding layers, but every n-th; ``period`` may be the setting that says n."""

    def layer_types(settings: Settings) -> list[str]:
        n = settings.get(period, default) if isinstance(period, str) else period
        return [
            "sliding_attention" if (layer + 1) % n else "full_attention"
            for layer in range(settings["num_hidden_layers"])
        ]

    return layer_types
