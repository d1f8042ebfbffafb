"""The names and shapes of a base model's tensors in checkpoints, and which of them become one matrix of a layer."""

from __future__ import annotations

from lora_engine.adapters.targets import target_of
from lora_engine.errors import UnsupportedModel
from lora_kernels.mxfp4 import MXFP4_BLOCK

from .checkpoint import Shape
from .config import DELTA_BLOCK, LayerKind, ModelConfig
from .weights import MATRICES

# Modules of a layer with experts, and of each expert.
ROUTER, EXPERTS = "mlp.gate", "mlp.experts"
# The product whose sigmoid is the weight of the MLP that all tokens use beside their experts, and that MLP's block in
# checkpoints.
SHARED_GATE, SHARED = "mlp.shared_expert_gate", "shared_expert"
# The sinks of a layer's attention.
SINKS = "self_attn.sinks"
# Such an MLP that has no weight, and the correction of the router's scores for each expert.
SEPARATE_SHARED, CORRECTION = "mlp.shared_experts", "mlp.gate.e_score_correction_bias"
EXPERT_MODULES = ("gate_proj", "up_proj", "down_proj")
EMBEDDING, FINAL_NORM, LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
# The norms of the inputs of a layer that predicts a further token, an embedding and a hidden state, and the product
# that joins them; beside those of any layer.
MTP_NAMES = ("model.layers.0.enorm.weight", "model.layers.0.hnorm.weight", "model.layers.0.eh_proj.weight")


def target_of_weight(name: str) -> str:
    """Return the target whose weights are the tensor ``name`` of a layer."""
    return target_of(name.split(".", 3)[3].removesuffix(".weight"))


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every tensor of the model by its name in checkpoints; tied embeddings count once."""
    family, hidden, head_dim = config.family, config.hidden_size, config.head_dim
    shapes: dict[str, Shape] = {FINAL_NORM: (hidden,)}
    if config.is_mtp:
        shapes |= zip(MTP_NAMES, ((hidden,), (hidden,), (hidden, 2 * hidden)), strict=True)
    else:
        of_tokens = (EMBEDDING,) if config.tie_embeddings else (EMBEDDING, LM_HEAD)
        shapes |= dict.fromkeys(of_tokens, (config.vocab_size, hidden))
    whole = family.qk_norm == "all"
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        kind = config.kind(layer)
        for name in family.norms(gated_delta=kind is LayerKind.GATED_DELTA):
            if name:
                shapes[f"{prefix}{name}.weight"] = (hidden,)
        if kind is LayerKind.GATED_DELTA:
            shapes |= _delta_shapes(config, prefix)
        elif family.qk_norm:
            shapes[f"{prefix}self_attn.q_norm.weight"] = (config.num_heads * head_dim if whole else head_dim,)
            shapes[f"{prefix}self_attn.k_norm.weight"] = (config.num_kv_heads * head_dim if whole else head_dim,)
        if family.sinks:
            shapes[f"{prefix}{SINKS}"] = (config.num_heads,)
        if layer in config.sparse_layers:
            shapes |= _expert_shapes(config, prefix)
        biased = biased_blocks(config, kind)
        for block in MATRICES if config.has_mlp(layer) else MATRICES[:2]:
            for module in modules_of(config, block, kind, separate=config.has_separate_mlp(layer)):
                wide, tall = config.target_shapes()[target_of(module)]
                shapes[f"{prefix}{module}.weight"] = (tall, wide)
                if block in biased:
                    shapes[f"{prefix}{module}.bias"] = (tall,)
    return shapes


def _expert_shapes(config: ModelConfig, prefix: str) -> dict[str, Shape]:
    """Return the shapes of the router's and the experts' tensors of a layer; those of ``mxfp4_shapes`` are not there.

    ``interleaved`` experts have one tensor for each product.
    """
    experts, hidden, family = config.experts, config.hidden_size, config.family.experts
    assert experts is not None and family is not None, "the layer has experts"
    count, inner = experts.count, experts.inner
    shapes: dict[str, Shape] = {f"{prefix}{ROUTER}.weight": (count, hidden)}
    if family.biased:
        shapes[f"{prefix}{ROUTER}.bias"] = (count,)
        shapes[f"{prefix}{EXPERTS}.gate_up_proj_bias"] = (count, 2 * inner)
        shapes[f"{prefix}{EXPERTS}.down_proj_bias"] = (count, hidden)
    if family.interleaved:
        if not experts.mxfp4:
            shapes[f"{prefix}{EXPERTS}.gate_up_proj"] = (count, hidden, 2 * inner)
            shapes[f"{prefix}{EXPERTS}.down_proj"] = (count, inner, hidden)
        return shapes
    if experts.sigmoid:
        shapes[f"{prefix}{CORRECTION}"] = (experts.count,)
    if experts.gated_shared:
        shapes[f"{prefix}{SHARED_GATE}.weight"] = (1, hidden)
    for expert in range(experts.count):
        for module in EXPERT_MODULES:
            shape = (hidden, experts.inner) if module == "down_proj" else (experts.inner, hidden)
            shapes[f"{prefix}{EXPERTS}.{expert}.{module}.weight"] = shape
    return shapes


def mxfp4_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every tensor of bytes by name, of experts in MXFP4. Raises ``UnsupportedModel``."""
    experts, hidden, shapes = config.experts, config.hidden_size, dict[str, Shape]()
    if experts is None or not experts.mxfp4:
        return shapes
    if hidden % MXFP4_BLOCK or experts.inner % MXFP4_BLOCK:
        raise UnsupportedModel(
            f"config.json has a hidden size of {hidden} and experts of {experts.inner}, but MXFP4 needs multiples of "
            f"{MXFP4_BLOCK}: config.json is another model's."
        )
    for layer in sorted(config.sparse_layers):
        for product, rows, columns in (
            ("gate_up_proj", 2 * experts.inner, hidden),
            ("down_proj", hidden, experts.inner),
        ):
            name = f"model.layers.{layer}.{EXPERTS}.{product}"
            shapes[f"{name}_blocks"] = (experts.count, rows, columns // MXFP4_BLOCK, MXFP4_BLOCK // 2)
            shapes[f"{name}_scales"] = (experts.count, rows, columns // MXFP4_BLOCK)
    return shapes


def _delta_shapes(config: ModelConfig, prefix: str) -> dict[str, Shape]:
    """Return the shapes of a gated delta layer's tensors beside its wide projections."""
    delta, names = config.delta, config.family.gated_delta
    assert delta is not None and names is not None, "the layer is a gated delta layer"
    rows = 2 * delta.heads // len(names.gates)
    shapes: dict[str, Shape] = {f"{gate}.weight": (rows, config.hidden_size) for gate in names.gates}
    shapes |= {
        "conv1d.weight": (delta.channels, 1, delta.taps + 1),
        "A_log": (delta.heads,),
        "dt_bias": (delta.heads,),
        f"{names.norm}.weight": (delta.value_dim,),
    }
    return {f"{prefix}{DELTA_BLOCK}.{name}": shape for name, shape in shapes.items()}


def biased_blocks(config: ModelConfig, kind: LayerKind) -> frozenset[str]:
    """Return the blocks of a layer whose modules have biases."""
    attention = kind is LayerKind.ATTENTION
    blocks = {
        "mixer_in": config.qkv_bias and attention,
        "mixer_out": config.o_bias and attention,
        "gate_up": config.mlp_bias,
        "down": config.mlp_bias,
    }
    return frozenset(block for block, biased in blocks.items() if biased)


def biased_targets(config: ModelConfig) -> frozenset[str]:
    """Return the names of modules that have biases."""
    kinds = {config.kind(layer) for layer in range(config.num_layers)}
    biased = frozenset(
        target_of(module)
        for kind in kinds
        for block in biased_blocks(config, kind)
        for module in modules_of(config, block, kind)
    )
    router = {target_of(ROUTER)} if config.family.experts is not None and config.family.experts.biased else set()
    return biased | router


def modules_of(
    config: ModelConfig, block: str, kind: LayerKind = LayerKind.ATTENTION, *, separate: bool = False
) -> list[str]:
    """Return the modules whose concatenated rows are the matrix of a block, in layers of a kind.

    ``separate``: in a layer with ``has_separate_mlp``.
    """
    delta = config.family.gated_delta
    if kind is LayerKind.GATED_DELTA and delta is not None and block in ("mixer_in", "mixer_out"):
        return [f"{DELTA_BLOCK}.{name}" for name in (delta.inputs if block == "mixer_in" else (delta.output,))]
    names = {"mixer_in": ("q_proj", "k_proj", "v_proj"), "mixer_out": ("o_proj",),
             "gate_up": ("gate_proj", "up_proj"), "down": ("down_proj",)}[block]  # fmt: skip
    if block == "mixer_in" and config.family.fused_qkv:
        names = ("qkv_proj",)
    if block == "gate_up" and config.family.fused_gate_up:
        names = ("gate_up_proj",)
    part = "self_attn" if block in ("mixer_in", "mixer_out") else SEPARATE_SHARED if separate else "mlp"
    return [f"{part}.{name}" for name in names]
