"""The geometry is the base model's shape, as far as an adapter must fit it."""

from __future__ import annotations

from dataclasses import dataclass, replace

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_DELTA = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
_DELTA_FUSED = ("in_proj_qkvz", "in_proj_ba", "out_proj")
# Named with their block, since attention has modules of the same names.
_DELTA_SPLIT = tuple(f"linear_attn.{part}_proj" for part in "qkvgbao")
_GATED_DELTA = frozenset({*_DELTA, *_DELTA_FUSED})
ROUTER, SHARED_GATE = "gate", "shared_expert_gate"
# Modules of the MLP beside experts, named apart where layers without experts have an MLP of another width.
_SEPARATE = tuple(f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down"))
_MLP = frozenset({"gate_proj", "up_proj", "gate_up_proj", "down_proj"})
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj"})


@dataclass(frozen=True, slots=True)
class BaseGeometry:
    """The shape of a base model that adapters are checked against; ``name`` and ``digest`` are for messages."""

    name: str
    digest: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    fused_qkv: int = 0  # 1: q, k and v are one module, qkv_proj
    fused_gate_up: int = 0  # 1: gate and up are one module, gate_up_proj
    # 1: lm_head has a separate matrix; 0: it is tied to embed_tokens, or an older engine did not report it
    untied_head: int = 0
    gated_queries: int = 0  # 1: q_proj has a gate beside each head's query
    # Kind of each layer: "a" attention, "d" gated delta rule, "e" and "x" the same with experts instead of one MLP;
    # empty: all are "a".
    layer_kinds: str = ""
    delta_channels: int = 0  # outputs of in_proj_qkv, that is queries, keys and values
    delta_values: int = 0  # outputs of in_proj_z
    delta_heads: int = 0  # outputs of in_proj_b and in_proj_a
    split_delta: int = (
        0  # 1: a gated delta layer has the modules q_proj, k_proj, v_proj, g_proj, b_proj, a_proj, o_proj
    )
    fused_delta: int = 0  # 1: a gated delta layer has the modules in_proj_qkvz, in_proj_ba, out_proj
    experts: int = 0  # of each layer of kind "e" or "x"
    expert_features: int = 0  # between an expert's two products
    shared_features: int = 0  # of the MLP shared_experts, which layers with experts have without such a weight
    shared_expert: int = 0  # 1: layers with experts also have an MLP, shared_expert, whose weight is shared_expert_gate
    # 1: an expert's gate_up_proj has the outputs of gate and up in turn, and the router is the module router
    interleaved_experts: int = 0

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the modules that can have LoRA, in the order in which they are computed."""
        only_experts = self.layer_kinds and not self.layer_kinds.strip("ex") and not self.shared_expert
        mlp = () if only_experts else self._mlp()
        delta = self._delta() if set("dx") & set(self.layer_kinds) else ()
        shared = _SEPARATE if self.shared_features and self.has_experts else ()
        return (*self._attention(), *delta, *(self._router() if self.has_experts else ()), *mlp, *shared)

    @property
    def has_experts(self) -> bool:
        return self.experts > 0 and bool(set("ex") & set(self.layer_kinds))

    @property
    def sparse_layers(self) -> list[int]:
        """Indices of the layers with experts."""
        return [layer for layer, kind in enumerate(self.layer_kinds) if kind in "ex" and self.experts]

    def target_of(self, block: str, module: str) -> str | None:
        """Return the target that is ``module`` of a layer's ``block`` (such as self_attn), None if there is none."""
        if block == "mlp.shared_expert":
            return module if self.shared_expert and module in self._mlp() else None
        named = f"{block}.{module}"
        target = named if named in (*_DELTA_SPLIT, *_SEPARATE) else module
        return target if target in self.targets and module_name(target) == named else None

    def targets_of(self, layer: int) -> tuple[str, ...]:
        """Names of a layer's modules that can have LoRA."""
        kind = self.layer_kinds[layer] if layer < len(self.layer_kinds) else "a"
        mixer = self._delta() if kind in "dx" else self._attention()
        if kind not in "ex":
            return (*mixer, *self._mlp())
        mlp = self._mlp() if self.shared_expert else _SEPARATE if self.shared_features else ()
        return (*mixer, *(self._router() if self.experts else ()), *mlp)

    def _router(self) -> tuple[str, ...]:
        return (ROUTER, SHARED_GATE) if self.shared_expert else (ROUTER,)

    def module_key(self, layer: int, target: str, root: str = "model") -> str:
        """Return the module's name inside the base model, against which PEFT's patterns are matched."""
        key = module_key(layer, target, root)
        if self.shared_expert and target in _MLP and layer in self.sparse_layers:
            return key.replace(".mlp.", ".mlp.shared_expert.")
        if self.interleaved_experts and target == ROUTER:
            return f"{key.removesuffix(ROUTER)}router"
        return key

    def _attention(self) -> tuple[str, ...]:
        return (*(("qkv_proj",) if self.fused_qkv else TARGETS[:3]), "o_proj")

    def _delta(self) -> tuple[str, ...]:
        return _DELTA_SPLIT if self.split_delta else _DELTA_FUSED if self.fused_delta else _DELTA

    def _mlp(self) -> tuple[str, ...]:
        return (*(("gate_up_proj",) if self.fused_gate_up else TARGETS[4:6]), "down_proj")

    def features(self, target: str) -> tuple[int, int]:
        """Return ``(in_features, out_features)`` of a target projection."""
        q = self.num_attention_heads * self.head_dim
        kv = self.num_key_value_heads * self.head_dim
        delta_keys = (self.delta_channels - self.delta_values) // 2
        return {
            "q_proj": (self.hidden_size, 2 * q if self.gated_queries else q),
            "k_proj": (self.hidden_size, kv),
            "v_proj": (self.hidden_size, kv),
            "qkv_proj": (self.hidden_size, q + 2 * kv),
            "o_proj": (q, self.hidden_size),
            "gate_proj": (self.hidden_size, self.intermediate_size),
            "up_proj": (self.hidden_size, self.intermediate_size),
            "gate_up_proj": (self.hidden_size, 2 * self.intermediate_size),
            "down_proj": (self.intermediate_size, self.hidden_size),
            ROUTER: (self.hidden_size, self.experts),
            SHARED_GATE: (self.hidden_size, 1),
            **dict.fromkeys(_SEPARATE[:2], (self.hidden_size, self.shared_features)),
            _SEPARATE[2]: (self.shared_features, self.hidden_size),
            "in_proj_qkv": (self.hidden_size, self.delta_channels),
            "in_proj_z": (self.hidden_size, self.delta_values),
            "in_proj_b": (self.hidden_size, self.delta_heads),
            "in_proj_a": (self.hidden_size, self.delta_heads),
            "in_proj_qkvz": (self.hidden_size, self.delta_channels + self.delta_values),
            "in_proj_ba": (self.hidden_size, 2 * self.delta_heads),
            "out_proj": (self.delta_values, self.hidden_size),
            "linear_attn.q_proj": (self.hidden_size, delta_keys),
            "linear_attn.k_proj": (self.hidden_size, delta_keys),
            "linear_attn.v_proj": (self.hidden_size, self.delta_values),
            "linear_attn.g_proj": (self.hidden_size, self.delta_values),
            "linear_attn.b_proj": (self.hidden_size, self.delta_heads),
            "linear_attn.a_proj": (self.hidden_size, self.delta_heads),
            "linear_attn.o_proj": (self.delta_values, self.hidden_size),
        }[target]


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """The limits of an adapter's size, in bytes where not counts."""

    max_rank: int = 256
    max_bytes: int = 2 << 30
    max_header_bytes: int = 16 << 20
    max_tensors: int = 20_000
    max_expert_tensors: int = 100_000  # further tensors, of experts; the base must have these

    @classmethod
    def of_base(cls, geometry: BaseGeometry, max_rank: int) -> AdapterLimits:
        """Return the limits of a base model's adapters: those with LoRA on all experts have further bytes, up to those
        of rank 64 in 16 bits.
        """
        features = 3 * (geometry.hidden_size + geometry.expert_features) * geometry.experts
        of_experts = 2 * min(64, max_rank) * features * len(geometry.sparse_layers)
        limits = cls(max_rank=max_rank)
        return replace(limits, max_bytes=limits.max_bytes + of_experts)


def module_key(layer: int, target: str, root: str = "model") -> str:
    """Return the module's name inside the base model, against which PEFT's patterns are matched.

    ``root`` differs where that model was part of a larger one, e.g. ``model.language_model``.
    """
    return f"{root}.layers.{layer}.{module_name(target)}"


def module_name(target: str) -> str:
    """Return a target's module with its block, such as ``self_attn.q_proj``."""
    if target in _DELTA_SPLIT or target in _SEPARATE:
        return target
    block = "self_attn" if target in _ATTENTION else "linear_attn" if target in _GATED_DELTA else "mlp"
    return f"{block}.{target}"
