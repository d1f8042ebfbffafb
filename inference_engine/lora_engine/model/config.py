"""A model's shape, read from the Hugging Face ``config.json`` beside its weights as ``transformers`` reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lora_engine.adapters.targets import TARGET_GROUPS, Interleaving, target_of
from lora_engine.errors import UnsupportedModel

from .families import FAMILIES, Experts, Family, GatedDelta, Settings
from .quantization import Quantization, is_mxfp4, read_quantization
from .rope_config import LARGEST_NUMBER, RopeConfig, read_ropes

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
_LAYER_TYPES = ("full_attention", "sliding_attention")
_DELTA_TYPE = "linear_attention"
# Largest size or count in config.json: no model comes near, and larger ones are no sizes of lists or tensors.
_MAX_SIZE = (1 << 31) - 1
DELTA_BLOCK = "linear_attn"  # name of a gated delta layer's mixer in checkpoints and adapters


class LayerKind(StrEnum):
    """The kinds of a layer's mixer, which mixes the tokens of a sequence."""

    ATTENTION = "attention"
    GATED_DELTA = "gated_delta"


@dataclass(frozen=True, slots=True)
class DeltaConfig:
    """The sizes of gated delta layers; each key head serves ``heads / key_heads`` value heads."""

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    taps: int  # inputs of the convolution before the current one
    norm_eps: float
    max_rate: float = 1.0

    @property
    def parts(self) -> tuple[int, int, int]:
        """Numbers of features of queries, keys and values."""
        keys = self.key_heads * self.key_dim
        return keys, keys, self.values

    @property
    def channels(self) -> int:
        """Number of features of queries, keys and values together."""
        return sum(self.parts)

    @property
    def values(self) -> int:
        """Number of features of values, and of z."""
        return self.heads * self.value_dim


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """The sizes of a mixture of experts; ``inner`` features are between an expert's two products."""

    count: int
    per_token: int
    inner: int
    renormalised: bool  # the weights of a token's experts add up to one
    shared: int = 0  # width of the MLP that all tokens use beside their experts; 0: there is none
    slope: float = 0.0  # of a clamped SwiGLU
    limit: float = 0.0  # of a clamped SwiGLU; 0: experts have the model's activation
    mxfp4: bool = False  # the checkpoint's experts are in MXFP4
    gated_shared: bool = False  # that MLP has a weight
    sigmoid: bool = False  # see ``Experts``
    groups: int = 1
    kept_groups: int = 1
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a base model: its family, its sizes, and the kind of each layer."""

    family: Family
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    norm_eps: float
    activation: str  # "silu" or "gelu_tanh"
    tie_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    windows: tuple[int, ...]  # per layer; 0 is full attention
    ropes: tuple[RopeConfig | None, ...]  # per layer; None: it does not rotate
    attention_scale: float
    attention_softcap: float  # 0: none
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    logit_softcap: float  # 0: none
    quantization: Quantization | None = None  # None: the checkpoint's matrices are not quantised
    delta_layers: frozenset[int] = frozenset()
    delta: DeltaConfig | None = None  # None: no layer is a gated delta layer
    sparse_layers: frozenset[int] = frozenset()  # layers that have experts instead of one MLP
    experts: ExpertsConfig | None = None  # None: no layer has
    is_mtp: bool = False  # the one layer predicts a further token, with the embedding and the head of a base model

    @classmethod
    def load(cls, folder: Path) -> ModelConfig:
        """Read ``folder/config.json``. Raises ``UnsupportedModel``."""
        return cls.from_dict(read_json_object(folder / "config.json"))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Build the configuration from config.json's object. Raises ``UnsupportedModel`` with the key and the fix."""
        family, raw = _family(raw)
        settings: Settings = {**family.defaults, **raw, **_number_of_experts(raw, family)}
        if family.qk_norm_switch and not settings.get(family.qk_norm_switch):
            family = replace(family, qk_norm="")
        for name, meaning in family.refused.items():
            if settings.get(name):
                raise UnsupportedModel(f"config.json sets {name}: {meaning} is not supported; use another model.")
        _refuse_unsupported(settings, family)
        layers, heads = _whole(settings, "num_hidden_layers"), _whole(settings, "num_attention_heads")
        kv_heads, hidden = _whole(settings, "num_key_value_heads", heads), _whole(settings, "hidden_size")
        head_dim = _whole(settings, "head_dim", hidden // heads)
        if heads % kv_heads or (not settings.get("head_dim") and hidden % heads):
            raise UnsupportedModel(
                f"config.json has {heads} attention heads, {kv_heads} key-value heads and a hidden size of {hidden}, "
                "none of which divides the one before; copy config.json from the model's source again."
            )
        types = _layer_types(settings, family, layers)
        windows = _windows(settings, family, types)
        delta_layers = frozenset(layer for layer, kind in enumerate(types) if kind == _DELTA_TYPE)
        if len(delta_layers) == layers:
            raise UnsupportedModel(
                "config.json has no layer with attention: a model of recurrent layers alone is not supported."
            )
        sparse_layers = _sparse_layers(settings, family, layers)
        experts = _experts(settings, family.experts) if sparse_layers and family.experts else None
        max_position = _whole(settings, "max_position_embeddings")
        ropes, max_position = read_ropes(settings, family, windows, head_dim, max_position)
        return cls(
            family=family,
            num_layers=layers,
            hidden_size=hidden,
            intermediate_size=_mlp_width(settings, experts, len(sparse_layers) == layers),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=_whole(settings, "vocab_size"),
            max_position=max_position,
            norm_eps=_number(settings, family.norm.eps),
            activation=_activation(settings, family),
            tie_embeddings=bool(settings.get("tie_word_embeddings", False)),
            qkv_bias=_switch(settings, family.qkv_bias),
            o_bias=_switch(settings, family.o_bias),
            mlp_bias=_switch(settings, family.mlp_bias),
            windows=windows,
            ropes=ropes,
            attention_scale=_computed(settings, family.attention_scale, head_dim**-0.5),
            attention_softcap=_number(settings, family.attention_softcap, 0.0),
            embedding_scale=_computed(settings, family.embedding_scale, 1.0),
            residual_scale=_number(settings, family.residual_scale, 1.0),
            logit_scale=_computed(settings, family.logit_scale, 1.0),
            logit_softcap=_number(settings, family.logit_softcap, 0.0),
            quantization=None if experts and experts.mxfp4 else read_quantization(raw),
            delta_layers=delta_layers,
            delta=_delta(settings, family.gated_delta) if delta_layers and family.gated_delta else None,
            sparse_layers=sparse_layers,
            experts=experts,
        )

    def mtp(self) -> ModelConfig:
        """Return the configuration of the family's layer that predicts a further token.

        It is a layer with full attention, and with experts if other layers have some. Raises ``UnsupportedModel`` for
        families without.
        """
        full = [layer for layer in range(self.num_layers) if not self.windows[layer] and layer not in self.delta_layers]
        if not self.family.mtp or not full:
            raise UnsupportedModel(
                f"the family {self.family.model_type} has no layer that predicts a further token, or none that is "
                "supported; choose --speculation ngram, or eagle3 with a head for this model."
            )
        return replace(
            self,
            num_layers=1,
            windows=(0,),
            ropes=(self.ropes[full[-1]],),
            delta_layers=frozenset(),
            delta=None,
            sparse_layers=frozenset({0} if self.sparse_layers else ()),
            is_mtp=True,
        )

    def has_mlp(self, layer: int) -> bool:
        """Return whether a layer has an MLP that all tokens use, beside experts or instead of them."""
        return layer not in self.sparse_layers or bool(self.experts and self.experts.shared)

    def has_separate_mlp(self, layer: int) -> bool:
        """Return whether that MLP is ``shared_experts``, with targets of its own."""
        experts = self.experts
        return layer in self.sparse_layers and experts is not None and experts.shared > 0 and not experts.gated_shared

    def kind(self, layer: int) -> LayerKind:
        """Return the kind of a layer's mixer."""
        return LayerKind.GATED_DELTA if layer in self.delta_layers else LayerKind.ATTENTION

    @property
    def layer_groups(self) -> tuple[int, ...]:
        """Layer group of each layer (see ``memory.page_pool``): an attention layer and recurrent layers beside it.

        Recurrent layers are spread evenly, in order. Empty if every layer is a layer group.
        """
        if not self.delta_layers:
            return ()
        groups, attention = self.num_layers - len(self.delta_layers), 0
        by_layer, recurrent = [], 0
        for layer in range(self.num_layers):
            if layer in self.delta_layers:
                by_layer.append(recurrent * groups // len(self.delta_layers))
                recurrent += 1
            else:
                by_layer.append(attention)
                attention += 1
        return tuple(by_layer)

    def target_shapes(self, rank: int = 0, world: int = 1) -> dict[str, tuple[int, int]]:
        """Return ``(in_features, out_features)`` of each LoRA target on one tensor-parallel rank."""
        q, kv = self.num_heads * self.head_dim // world, self.num_kv_heads * self.head_dim // world
        hidden, inner = self.hidden_size, self.intermediate_size // world
        qkv = {
            "q_proj": (hidden, 2 * q if self.family.gated_queries else q),
            "k_proj": (hidden, kv),
            "v_proj": (hidden, kv),
        }
        gate_up = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner)}
        mlp = {
            **({"gate_up_proj": (hidden, 2 * inner)} if self.family.fused_gate_up else gate_up),
            "down_proj": (inner, hidden),
        }
        return {
            **({"qkv_proj": (hidden, q + 2 * kv)} if self.family.fused_qkv else qkv),
            "o_proj": (q, hidden),
            **(mlp if any(self.has_mlp(n) and not self.has_separate_mlp(n) for n in range(self.num_layers)) else {}),
            **self._delta_shapes(world),
            **self._router_shapes(),
            **self._shared_shapes(world),
        }

    def _router_shapes(self) -> dict[str, tuple[int, int]]:
        if self.experts is None:
            return {}
        shared = {"shared_expert_gate": (self.hidden_size, 1)} if self.experts.gated_shared else {}
        return {"gate": (self.hidden_size, self.experts.count), **shared}

    def _shared_shapes(self, world: int) -> dict[str, tuple[int, int]]:
        if self.experts is None or not self.experts.shared or self.experts.gated_shared:
            return {}
        hidden, inner = self.hidden_size, self.experts.shared // world
        wide, tall = TARGET_GROUPS[-2], TARGET_GROUPS[-1]
        return {**dict.fromkeys(wide, (hidden, inner)), **dict.fromkeys(tall, (inner, hidden))}

    def _delta_shapes(self, world: int) -> dict[str, tuple[int, int]]:
        if (delta := self.delta) is None or (names := self.family.gated_delta) is None:
            return {}
        hidden, values = self.hidden_size, delta.values
        parts = {1: (delta.channels + values,), 2: (delta.channels, values), 4: (*delta.parts, values)}
        gates = [2 * delta.heads // len(names.gates)] * len(names.gates)
        outputs = zip((*names.inputs, *names.gates), (*parts[len(names.inputs)], *gates), strict=True)
        return {
            **{target_of(f"{DELTA_BLOCK}.{name}"): (hidden, features // world) for name, features in outputs},
            target_of(f"{DELTA_BLOCK}.{names.output}"): (values // world, hidden),
        }

    @property
    def output_parts(self) -> dict[str, tuple[int, ...]]:
        """Output features of each part of the targets that compute several parts, each of which is split over ranks."""
        if (delta := self.delta) is None or (names := self.family.gated_delta) is None:
            return {}
        if names.interleaved:
            return {names.inputs[0]: (*delta.parts, delta.values), names.gates[0]: (delta.heads, delta.heads)}
        return {names.inputs[0]: delta.parts} if len(names.inputs) == 2 else {}

    @property
    def interleaved(self) -> dict[str, Interleaving]:
        """The orders of output features of targets in checkpoints and adapters, where they are not by part."""
        if (delta := self.delta) is None or (names := self.family.gated_delta) is None or not names.interleaved:
            return {}
        return {
            target: Interleaving(delta.key_heads, tuple(part // delta.key_heads for part in self.output_parts[target]))
            for target in (names.inputs[0], names.gates[0])
        }


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a model's folder. Raises ``UnsupportedModel``."""
    if not path.is_file():
        raise UnsupportedModel(f"{path.parent} holds no {path.name}; point --model at a Hugging Face model folder.")
    text = path.read_bytes()
    if text.startswith(b"version https://git-lfs"):
        raise UnsupportedModel(f"{path} is a Git LFS pointer, not the file; run git lfs pull in {path.parent}.")
    try:
        value = json.loads(text)
    except ValueError as error:
        what = "is empty" if not text.strip() else f"is not JSON ({error})"
        raise UnsupportedModel(f"{path} {what}; copy it from the model's source again.") from None
    if not isinstance(value, dict):
        raise UnsupportedModel(f"{path} holds no JSON object; copy it from the model's source again.")
    return value


def _family(raw: Mapping[str, Any]) -> tuple[Family, Mapping[str, Any]]:
    """Return the family and its settings: those of the text model in a multimodal checkpoint."""
    name = raw.get("model_type")
    for family in FAMILIES.values():
        if name == family.multimodal and isinstance(raw.get("text_config"), Mapping):
            whole = {key: raw[key] for key in ("tie_word_embeddings", "quantization_config") if key in raw}
            return family, {**raw["text_config"], **whole}
    if not isinstance(name, str) or name not in FAMILIES:
        named = f"model_type {name!r}" if name else "a config.json without model_type"
        raise UnsupportedModel(f"{named} is not supported; supported are {', '.join(FAMILIES)}.")
    return FAMILIES[name], raw


def _whole(settings: Settings, name: str, default: int | None = None) -> int:
    value = settings.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 < value <= _MAX_SIZE:
        raise UnsupportedModel(f"config.json: {name} must be a whole number above 0, but is {value!r}; {_AGAIN}")
    return value


def _number(settings: Settings, name: str, default: float | None = None) -> float:
    """Return a setting as a number, or ``default`` if it is missing or null."""
    value = settings.get(name) if name else None
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_NUMBER:
        raise UnsupportedModel(f"config.json: {name} must be a number, but is {value!r}; {_AGAIN}")
    return float(value)


def _refuse_unsupported(settings: Settings, family: Family) -> None:
    if family.unsupported is None:
        return
    try:
        what = family.unsupported(settings)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise UnsupportedModel(f"config.json: the kinds of layers cannot be read ({error!r}); {_AGAIN}") from None
    if what:
        raise UnsupportedModel(f"config.json has {what}, which is not supported; use another model.")


_AGAIN = "copy config.json from the model's source again."


def _computed(settings: Settings, compute: Any, default: float) -> float:
    if compute is None:
        return default
    try:
        scale = float(compute(settings))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UnsupportedModel(f"config.json: a scale cannot be computed ({error!r}); {_AGAIN}") from None
    if not abs(scale) <= LARGEST_NUMBER:
        raise UnsupportedModel(f"config.json: a scale would be {scale}; {_AGAIN}")
    return scale


def _switch(settings: Settings, switch: bool | str) -> bool:
    return bool(settings.get(switch, False)) if isinstance(switch, str) else switch


def _activation(settings: Settings, family: Family) -> str:
    name = settings.get(family.activation, "silu")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise UnsupportedModel(f"activation {name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _layer_types(settings: Settings, family: Family, layers: int) -> list[str]:
    """Return the type of each layer, as ``layer_types`` of config.json names it."""
    if family.slides_everywhere:
        return [_LAYER_TYPES[settings.get("sliding_window") is not None]] * layers
    if family.layer_types is None:
        return [_LAYER_TYPES[0]] * layers
    try:
        types = settings.get("layer_types")
        types = family.layer_types(settings) if types is None else types
    except (KeyError, TypeError, IndexError, ZeroDivisionError) as error:
        raise UnsupportedModel(f"config.json: the kinds of layers cannot be read ({error!r}); {_AGAIN}") from None
    known = (_LAYER_TYPES[0], _DELTA_TYPE) if family.gated_delta else _LAYER_TYPES
    if not isinstance(types, list) or len(types) != layers or not set(types) <= set(known):
        raise UnsupportedModel(
            f"config.json: layer_types must name one of {', '.join(known)} for each of {layers} layers; {_AGAIN}"
        )
    return types


def _sparse_layers(settings: Settings, family: Family, layers: int) -> frozenset[int]:
    if family.experts is None:
        return frozenset()
    sparse = family.experts.sparse
    try:
        return frozenset(layer for layer in range(layers) if sparse is None or sparse(settings, layer))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise UnsupportedModel(f"config.json: the layers with experts cannot be read ({error!r}); {_AGAIN}") from None


def _number_of_experts(raw: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return the number of experts under the family's name; ``transformers`` writes and reads either of two."""
    if family.experts is None or not family.experts.either_name or family.experts.count in raw:
        return {}
    other = next((name for name in ("num_experts", "num_local_experts") if name in raw), None)
    return {} if other is None else {family.experts.count: raw[other]}


def _experts(settings: Settings, family: Experts) -> ExpertsConfig:
    inner = _whole(settings, family.inner)
    experts = ExpertsConfig(
        count=_whole(settings, family.count),
        per_token=_whole(settings, family.per_token),
        inner=inner,
        renormalised=_switch(settings, family.renormalised),
        shared=_whole(settings, family.shared)
        if family.shared
        else (inner * _whole(settings, family.shared_count) if family.shared_count else 0),
        slope=_number(settings, family.swiglu[0], 0.0),
        limit=_number(settings, family.swiglu[1], 0.0),
        mxfp4=family.interleaved and is_mxfp4(settings),
        gated_shared=bool(family.shared),
        sigmoid=family.sigmoid,
        groups=_whole(settings, family.groups) if family.sigmoid else 1,
        kept_groups=_whole(settings, family.kept_groups) if family.sigmoid else 1,
        scale=_number(settings, family.scale) if family.sigmoid else 1.0,
    )
    if family.swiglu[1] and not experts.limit:
        raise UnsupportedModel(f"config.json: {family.swiglu[1]} must be above 0; {_AGAIN}")
    of_group, uneven = divmod(experts.count, experts.groups)
    few = experts.kept_groups * of_group < experts.per_token or experts.kept_groups > experts.groups
    if experts.sigmoid and (uneven or few or of_group < 2):
        raise UnsupportedModel(
            f"config.json has {experts.count} experts in {experts.groups} groups, of which {experts.kept_groups} are "
            f"kept for {experts.per_token} experts per token, which cannot be; {_AGAIN}"
        )
    if experts.per_token > experts.count:
        raise UnsupportedModel(
            f"config.json has {experts.per_token} experts per token, but {experts.count} in all; {_AGAIN}"
        )
    return experts


def _mlp_width(settings: Settings, experts: ExpertsConfig | None, only_sparse: bool) -> int:
    """Return the width of the MLPs that all tokens use. Raises ``UnsupportedModel`` if layers differ."""
    shared = experts.shared if experts and experts.gated_shared else 0
    if shared and only_sparse:
        return shared
    width = _whole(settings, "intermediate_size")
    if shared and width != shared:
        raise UnsupportedModel(
            f"config.json: layers without experts have an MLP of width {width}, and shared experts {shared}; such "
            "models are not supported."
        )
    return width


def _delta(settings: Settings, family: GatedDelta) -> DeltaConfig:
    heads = _whole(settings, "num_attention_heads")
    key_heads = _whole(settings, "linear_num_key_heads", heads)
    key_dim = _whole(settings, "linear_key_head_dim", int(0.75 * _whole(settings, "hidden_size") / key_heads))
    delta = DeltaConfig(
        heads=_whole(settings, "linear_num_value_heads", heads),
        key_heads=key_heads,
        key_dim=key_dim,
        value_dim=_whole(settings, "linear_value_head_dim", 2 * key_dim),
        taps=_whole(settings, "linear_conv_kernel_dim") - 1,
        norm_eps=_number(settings, "rms_norm_eps") if family.norm_eps is None else family.norm_eps,
        max_rate=2.0 if _switch(settings, family.doubled_rate) else 1.0,
    )
    if delta.heads % delta.key_heads or not delta.taps:
        raise UnsupportedModel(
            f"config.json has {delta.heads} value heads for {delta.key_heads} key heads and a convolution of "
            f"{delta.taps + 1}; {_AGAIN}"
        )
    return delta


def _windows(settings: Settings, family: Family, types: list[str]) -> tuple[int, ...]:
    """Return the sliding window of each layer, 0 for full attention and for recurrent layers."""
    slides = [kind == "sliding_attention" for kind in types]
    if "use_sliding_window" in family.defaults and not settings.get("use_sliding_window"):
        settings = {**settings, "sliding_window": None}
    window = _whole(settings, "sliding_window") if any(slides) else 0
    return tuple(window if slide else 0 for slide in slides)
