"""The base model's weights: the names and shapes of its tensors, and their merging and sharding for the layers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch

from lora_engine.adapters.targets import Interleaving, target_of
from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import (
    BLOCK,
    FP8,
    Fp8Matrix,
    Fp8Stack,
    columns_of,
    concatenated,
    fits,
    quantise,
    rows_of,
)
from lora_kernels.mxfp4 import MXFP4_BLOCK, MXFP4_NARROW, Mxfp4Stack, dequantised, factors

from .checkpoint import LANGUAGE_MODEL, Checkpoint, ScaleNames, Shape, Tensors
from .config import DELTA_BLOCK, LayerKind, ModelConfig
from .device_reads import THREADS, DeviceCheckpoint, ShapesOnly
from .parallel import Parallel
from .vocabulary import Vocabulary

log = logging.getLogger(__name__)

Matrix = torch.Tensor | Fp8Matrix
# The matrices of a layer's experts.
Stack = torch.Tensor | Fp8Stack | Mxfp4Stack
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


@dataclass(frozen=True, slots=True)
class DeltaParameters:
    """The parameters of a gated delta layer beside its wide projections.

    ``gates [2 * heads, hidden]`` are those of b, then those of a; None: they are the last rows of the layer's
    ``mixer_in``, as where that is not in FP8. ``convolution [channels, taps + 1]``; ``a_log`` and ``dt_bias``
    ``[heads]`` are float32, ``norm [value_dim]``.
    """

    gates: torch.Tensor | None
    convolution: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor

    @property
    def nbytes(self) -> int:
        tensors = self.gates, self.convolution, self.a_log, self.dt_bias, self.norm
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """A layer's experts on this rank: ``router [experts, hidden]``, ``gate_up [experts, 2 * inner, hidden]`` (the rows
    of gate first), ``down [experts, hidden, inner]``. Each expert is split over ranks by its inner features. Beside an
    MLP that all tokens use, the router's last row is that of the MLP's weight. The router is never in FP8. Biases are
    ``[experts]``, ``[experts, 2 * inner]`` and ``[experts, hidden]``; only one rank has that of down.
    """

    router: torch.Tensor
    gate_up: Stack
    down: Stack
    router_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    correction: torch.Tensor | None = None  # [experts] float32, added to sigmoids for the choice of experts
    separate_mlp: bool = False  # the layer's MLP has targets of its own and no weight

    @property
    def nbytes(self) -> int:
        biases = (self.router_bias, self.gate_up_bias, self.down_bias)
        matrices = self.router.nbytes + self.gate_up.nbytes + self.down.nbytes
        return matrices + sum(bias.nbytes for bias in biases if bias is not None)

    def dequantised(self, dtype: torch.dtype) -> ExpertWeights:
        """Return the same experts in ``dtype``."""
        return replace(self, gate_up=_plain_stack(self.gate_up, dtype), down=_plain_stack(self.down, dtype))


def of_expert(stack: Stack, expert: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrices of an expert ``[rows, columns]``, in ``dtype`` if they are quantised."""
    return stack[expert] if isinstance(stack, torch.Tensor) else stack.dequantised(expert, dtype)


def _plain_stack(stack: Stack, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(stack, torch.Tensor):
        return stack
    out = torch.empty(stack.shape, dtype=dtype, device=stack.data.device)
    for expert in range(len(stack)):
        out[expert].copy_(stack.dequantised(expert, dtype))
    return out


@dataclass(slots=True)
class LayerWeights:
    """The weights of a transformer block; matrices are ``[out, in]``, local to this rank. For norms see ``Family``.

    ``mixer_in`` and ``mixer_out`` are the projections of attention (q, k and v; o), or of a gated delta layer
    (queries, keys, values and z; out_proj). A layer has ``experts``, or ``gate_up`` and ``down`` of an MLP; or both,
    if all tokens use an MLP beside their experts.
    """

    attention_norm: torch.Tensor | None
    mixer_in: Matrix
    mixer_in_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    mixer_out: Matrix
    mixer_out_bias: torch.Tensor | None
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor | None
    gate_up: Matrix | None
    gate_up_bias: torch.Tensor | None
    down: Matrix | None
    down_bias: torch.Tensor | None
    mlp_out_norm: torch.Tensor | None
    delta: DeltaParameters | None = None  # only of gated delta layers
    experts: ExpertWeights | None = None
    sinks: torch.Tensor | None = None  # [heads] float32

    @property
    def router_bias(self) -> torch.Tensor | None:
        return None if self.experts is None else self.experts.router_bias

    @property
    def mlp_in(self) -> Matrix:
        """The matrix that reads the MLP's input: that of gate and up, or the router."""
        matrix = self.gate_up if self.experts is None else self.experts.router
        assert matrix is not None, "the layer has no experts"
        return matrix

    def num_bytes(self) -> int:
        values = (getattr(self, name) for name in LayerWeights.__slots__)
        return sum(value.nbytes for value in values if value is not None)

    def in_fp8(self) -> tuple[str, ...]:
        """Return the names of the matrices that are in FP8, without those of experts."""
        return tuple(name for name in MATRICES if isinstance(getattr(self, name), Fp8Matrix))

    def kind_of_experts(self) -> tuple[object, ...]:
        """Return what the kernels of the layer's experts depend on; empty without experts."""
        stacks = () if self.experts is None else (self.experts.gate_up, self.experts.down)
        return tuple((type(stack), isinstance(stack, Fp8Stack) and stack.in_blocks) for stack in stacks)

    def experts_in_fp8(self) -> int:
        """Return the number of matrices of experts that are in FP8."""
        return self._experts_in(Fp8Stack)

    def experts_in_mxfp4(self) -> int:
        """Return the number of matrices of experts that are in MXFP4."""
        return self._experts_in(Mxfp4Stack)

    def _experts_in(self, kind: type[Fp8Stack | Mxfp4Stack]) -> int:
        stacks = () if self.experts is None else (self.experts.gate_up, self.experts.down)
        return sum(len(stack) for stack in stacks if isinstance(stack, kind))

    def matrix(self, group: int) -> Matrix | None:
        """Return the matrix of a target group (``TARGET_GROUPS``), None if the layer has none."""
        if (group in _OF_ATTENTION and self.delta is not None) or (group in _OF_DELTA and self.delta is None):
            return None
        separate = self.experts is not None and self.experts.separate_mlp
        if group in (_OF_MLP if separate else _OF_SHARED):
            return None
        name = GROUP_MATRICES[group]
        if name == "router":
            return None if self.experts is None else self.experts.router
        matrix: Matrix | None = getattr(self, name)
        return matrix

    def matrix_at(self, group: int, row: int) -> tuple[Matrix, int]:
        """Return the matrix with output ``row`` of a target group that the layer has, and the output's row in it."""
        matrix = self.matrix(group)
        assert matrix is not None, "the layer has the target"
        if group in _OF_DELTA and self.delta is not None and self.delta.gates is not None and row >= matrix.shape[0]:
            return self.delta.gates, row - matrix.shape[0]
        return matrix, row

    def join_gates(self) -> None:
        """Put the gates of a gated delta layer behind ``mixer_in``, unless that is in FP8."""
        if self.delta is not None and self.delta.gates is not None and isinstance(self.mixer_in, torch.Tensor):
            self.mixer_in = _laid_out(torch.cat((self.mixer_in, self.delta.gates)).contiguous())
            self.delta = replace(self.delta, gates=None)

    def norms(self) -> list[float]:
        """Return squared Frobenius norms by target group, then of the experts' modules; 0 without a matrix.

        Waits for the device once.
        """
        matrices = [self.matrix(group) for group in range(len(GROUP_MATRICES))]
        norms = [None if matrix is None else _squared_norm(matrix) for matrix in matrices]
        inputs = norms[_DELTA_IN]
        if inputs is not None and self.delta is not None and self.delta.gates is not None:
            norms[_DELTA_IN] = inputs + _squared_norm(self.delta.gates)
        experts = self.experts
        norms.append(None if experts is None else _squared_norm(experts.gate_up) + _squared_norm(experts.down))
        present = torch.stack([norm for norm in norms if norm is not None]).tolist()
        return [0.0 if norm is None else present.pop(0) for norm in norms]


MATRICES = ("mixer_in", "mixer_out", "gate_up", "down")
# Names of the matrices by the index of their target group.
GROUP_MATRICES = ("mixer_in", "mixer_out", "gate_up", "down", "mixer_in", "mixer_out", "router", "gate_up", "down")
_OF_MLP, _OF_SHARED = frozenset({2, 3}), frozenset({7, 8})
_DELTA_IN = 4
_OF_ATTENTION, _OF_DELTA = frozenset({0, 1}), frozenset({_DELTA_IN, 5})
# Called with the index and the weights of each layer that was read.
OnLayer = Callable[[int, LayerWeights], None]
# Rows of a matrix converted to float32 at a time; a multiple of an FP8 block's.
_NORM_ROWS = 1024


def change_by_quantisation(layer: LayerWeights) -> float:
    """Return the norm of the change by rounding plain matrices to FP8, divided by their norm. Waits for the device."""
    squares = torch.zeros(2, dtype=torch.float64)
    matrices = [getattr(layer, name) for name in MATRICES]
    if layer.delta is not None and layer.delta.gates is None:  # which stay as they are
        matrices[0] = matrices[0][: -2 * len(layer.delta.a_log)]
    parts = [(rows, fits(m)) for m in matrices if isinstance(m, torch.Tensor) for rows in m.split(_NORM_ROWS)]
    stacks = () if layer.experts is None else (layer.experts.gate_up, layer.experts.down)
    parts += [(expert, True) for stack in stacks if isinstance(stack, torch.Tensor) for expert in stack]
    for rows, quantised in parts:
        plain = rows.float()
        rounded = quantise(rows).dequantised(torch.float32) if quantised else plain
        squares += torch.stack([(rounded - plain).square().sum(), plain.square().sum()]).double().cpu()
    changed, whole = squares.tolist()
    return float((changed / whole) ** 0.5) if whole else 0.0


def _squared_norm(matrix: Matrix | Stack) -> torch.Tensor:
    if isinstance(matrix, torch.Tensor):
        norm: torch.Tensor = torch.linalg.vector_norm(matrix, dtype=torch.float32)
        return norm.square()
    if isinstance(matrix, Fp8Stack | Mxfp4Stack):
        by_expert = (matrix.dequantised(expert, torch.float32) for expert in range(len(matrix)))
        return torch.stack([torch.linalg.vector_norm(plain) for plain in by_expert]).square().sum()
    rows = matrix.shape[0]
    blocks = (rows_of(matrix, start, min(start + _NORM_ROWS, rows)) for start in range(0, rows, _NORM_ROWS))
    norms = [torch.linalg.vector_norm(block.dequantised(torch.float32)) for block in blocks if block is not None]
    return torch.stack(norms).square().sum()


class Layers(Protocol):
    """A sequence of a model's layers: a list, or ``StreamedLayers``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> LayerWeights: ...
    def __iter__(self) -> Iterator[LayerWeights]: ...


@dataclass(slots=True)
class ModelWeights:
    """The base model's weights on this rank's device; embedding and head have the rows of this rank's tokens."""

    embedding: torch.Tensor
    layers: Layers
    final_norm: torch.Tensor
    lm_head: torch.Tensor

    def num_bytes(self) -> int:
        tensors = {id(self.embedding): self.embedding, id(self.lm_head): self.lm_head}
        total = sum(t.nbytes for t in tensors.values()) + self.final_norm.nbytes
        return total + sum(layer.num_bytes() for layer in self.layers)

    def num_quantised(self) -> int:
        """Return the number of matrices in FP8."""
        return sum(len(layer.in_fp8()) + layer.experts_in_fp8() for layer in self.layers)

    def dequantise(self) -> None:
        """Dequantise every matrix to the dtype of the other weights, for a backend of plain products."""
        dtype = self.embedding.dtype
        for layer in self.layers:
            for name in layer.in_fp8():
                setattr(layer, name, _laid_out(getattr(layer, name).dequantised(dtype)))
            layer.join_gates()
            if layer.experts is not None and (layer.experts_in_fp8() or layer.experts_in_mxfp4()):
                layer.experts = layer.experts.dequantised(dtype)


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
        for block, bias in _biases(config, kind).items():
            if block in ("gate_up", "down") and not config.has_mlp(layer):
                continue
            for module in modules_of(config, block, kind, separate=config.has_separate_mlp(layer)):
                wide, tall = config.target_shapes()[target_of(module)]
                shapes[f"{prefix}{module}.weight"] = (tall, wide)
                if bias:
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


def _biases(config: ModelConfig, kind: LayerKind) -> dict[str, bool]:
    """Return whether the modules of each block of a layer have biases."""
    attention = kind is LayerKind.ATTENTION
    return {
        "mixer_in": config.qkv_bias and attention,
        "mixer_out": config.o_bias and attention,
        "gate_up": config.mlp_bias,
        "down": config.mlp_bias,
    }


def uneven_blocks(config: ModelConfig, world: int) -> str:
    """Return why experts in blocks of scales cannot be split over ``world`` ranks, and what to do; "": they can be."""
    experts, quantization = config.experts, config.quantization
    if experts is None or quantization is None or not quantization.in_blocks or world == 1:
        return ""
    if experts.inner // world % BLOCK == 0:
        return ""
    blocks = experts.inner // BLOCK if experts.inner % BLOCK == 0 else 1
    ranks = [str(n) for n in range(1, world) if blocks % n == 0]
    return (
        f"each expert has {experts.inner} inner features with a scale for every {BLOCK}, which cannot be split over "
        f"{world} GPUs; use {' or '.join(ranks)}, or the float16 or bfloat16 checkpoint with --quantization fp8."
    )


def biased_targets(config: ModelConfig) -> frozenset[str]:
    """Return the names of modules that have biases."""
    kinds = {config.kind(layer) for layer in range(config.num_layers)}
    biased = frozenset(
        target_of(module)
        for kind in kinds
        for block, bias in _biases(config, kind).items()
        if bias
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


def load_weights(
    folder: Path,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    parallel: Parallel,
    quantised: bool = False,
    progress: Callable[[float], None] = lambda share: None,
    by_threads: bool = False,
) -> ModelWeights:
    """Check the folder's files, read, shard, merge (q,k,v and gate,up) and move the base model to ``device``.

    Layers' matrices are in FP8 if the files have them in FP8, or if ``quantised``. Raises ``UnsupportedModel`` with the
    cause and the fix.
    """
    checkpoint = _open(folder, config, device, by_threads)
    tied = config.tie_embeddings
    if tied and LM_HEAD in checkpoint.files and EMBEDDING not in checkpoint.files:
        checkpoint.rename(LM_HEAD, EMBEDDING)
    in_fp8, scales = _fp8_tensors(checkpoint, config)
    checkpoint.check(tensor_shapes(config), in_fp8, scales, mxfp4_shapes(config))
    if tied and LM_HEAD in checkpoint.files:
        checkpoint.check({LM_HEAD: (config.vocab_size, config.hidden_size)}, scales=scales)
        tied = device.type == "meta" or torch.equal(checkpoint.tensor(LM_HEAD), checkpoint.tensor(EMBEDDING))
        if not tied:  # transformers uses it too
            log.warning("tie_word_embeddings is true, but the checkpoint has a separate lm_head, which is used")
    weights = build_weights(checkpoint, config, device, dtype, parallel, tied, quantised, in_fp8, progress)
    checkpoint.raise_for_values(dtype)
    return weights


def stream_weights(
    folder: Path, config: ModelConfig, served: ModelWeights, device: torch.device, on_layer: OnLayer
) -> ModelWeights:
    """Return the whole model as the files have it, on ``device``; each layer is read on access.

    ``served`` are weights from the same files; their embedding and head are reused if they are whole and on ``device``.
    """
    checkpoint = _open(folder, config, device, by_threads=True)
    in_fp8, _ = _fp8_tensors(checkpoint, config)
    loader = _Loader(checkpoint, config, device, served.embedding.dtype, Parallel(), False, in_fp8)
    embedding, head = served.embedding, served.lm_head
    if embedding.device != device or len(embedding) != config.vocab_size:
        host_embedding, host_head = embedding_and_head(folder, served)
        embedding = host_embedding.to(device)
        head = embedding if host_head is host_embedding else host_head.to(device)
    layers = StreamedLayers(loader, config.num_layers, on_layer)
    return ModelWeights(embedding, layers, served.final_norm.to(device), head)


def embedding_and_head(folder: Path, weights: ModelWeights) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the whole embedding and head in host memory, in the dtype of ``weights``.

    With several ranks, each has only a part of them on its device. Where the files have that dtype, they are mapped,
    and only accessed parts are read. Tied ones are the same tensor.
    """
    checkpoint = Checkpoint(folder)
    tied = weights.embedding is weights.lm_head
    name = EMBEDDING if EMBEDDING in checkpoint.files else LM_HEAD
    embedding = checkpoint.tensor(name).to(weights.embedding.dtype)
    return embedding, embedding if tied else checkpoint.tensor(LM_HEAD).to(weights.embedding.dtype)


class WholeVocabulary:
    """The whole embedding and head of a base model with several ranks, on this rank's device, for a draft head.

    Each rank has only a part of them. They are read from the model's folder when they are used first.
    """

    def __init__(self, folder: Path, weights: ModelWeights) -> None:
        self._folder, self._weights = folder, weights

    @cached_property
    def embedding(self) -> torch.Tensor:
        return self._matrix(0)

    @cached_property
    def lm_head(self) -> torch.Tensor:
        return self.embedding if self._weights.embedding is self._weights.lm_head else self._matrix(1)

    def _matrix(self, index: int) -> torch.Tensor:
        return embedding_and_head(self._folder, self._weights)[index].to(self._weights.embedding.device)


# Embedding and head of a base model that a draft head shares.
SharedMatrices = ModelWeights | WholeVocabulary


def _files(folder: Path, device: torch.device, by_threads: bool) -> Checkpoint:
    if device.type == "meta":
        return ShapesOnly(folder)
    return DeviceCheckpoint(folder, device) if by_threads and device.type == "cuda" else Checkpoint(folder)


def _open(folder: Path, config: ModelConfig, device: torch.device, by_threads: bool) -> Checkpoint:
    checkpoint = _files(folder, device, by_threads)
    checkpoint.drop_layers(config.num_layers)
    _find_tensors(checkpoint, config)
    return checkpoint


def _find_tensors(checkpoint: Checkpoint, config: ModelConfig) -> None:
    """Name the layers' tensors as the other functions do, where the files name them otherwise."""
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        for stored, name in config.family.stored_names.items():
            if f"{prefix}{stored}.weight" in checkpoint.files:
                checkpoint.rename(f"{prefix}{stored}.weight", f"{prefix}{name}.weight")
        for name, parts in config.family.joined_tensors.items():
            names = tuple(prefix + part for part in parts)
            if all(part in checkpoint.files for part in names):
                checkpoint.join(names, prefix + name)
        if layer in config.sparse_layers:
            _find_experts(checkpoint, config, prefix)


def _find_experts(checkpoint: Checkpoint, config: ModelConfig, prefix: str) -> None:
    """Name the tensors of a layer's experts as ``transformers`` 4 does: stored so, under other names, or stacked.

    Stacked are ``gate_up_proj [experts, 2 * inner, hidden]`` and ``down_proj [experts, hidden, inner]``.
    """
    names, experts = config.family.experts, config.experts
    assert names is not None and experts is not None, "the layer has experts"
    router, stored = f"{prefix}{ROUTER}", f"{prefix}{names.stored_block}"
    for kind in ("weight", "bias"):
        if f"{router}.{kind}" not in checkpoint.files and f"{stored}.{names.router}.{kind}" in checkpoint.files:
            checkpoint.rename(f"{stored}.{names.router}.{kind}", f"{router}.{kind}")
    if names.interleaved:
        return
    for module in EXPERT_MODULES if experts.gated_shared else ():
        checkpoint.rename_module(f"{stored}.{SHARED}.{module}", f"{prefix}mlp.{module}")
    inner, hidden = experts.inner, config.hidden_size
    stacked = {
        "gate_up_proj": ((experts.count, 2 * inner, hidden), (("gate_proj", 0, inner), ("up_proj", inner, 2 * inner))),
        "down_proj": ((experts.count, hidden, inner), (("down_proj", 0, hidden),)),
    }
    for module, (shape, parts) in stacked.items():
        name = f"{prefix}{EXPERTS}.{module}"
        if name not in checkpoint.files:
            continue
        scale = f"{name}_scale_inv" if config.quantization is not None and checkpoint.in_fp8(name) else None
        in_fp8 = {} if scale is None else {scale: (_blocks_of_stack(name, shape, parts, config),)}
        checkpoint.check_entries({name: shape}, [name] if in_fp8 else [], in_fp8)
        for expert in range(experts.count):
            for part, start, stop in parts:
                module = f"{prefix}{EXPERTS}.{expert}.{part}"
                checkpoint.slice(name, expert, start, stop, f"{module}.weight")
                if scale is not None:
                    rows = start // BLOCK, -(-stop // BLOCK)
                    checkpoint.slice(scale, expert, *rows, f"{module}.weight_scale_inv")
    for expert in range(experts.count):
        for module, stored_module in zip(EXPERT_MODULES, names.stored_modules, strict=True):
            checkpoint.rename_module(
                f"{stored}.experts.{expert}.{stored_module}", f"{prefix}{EXPERTS}.{expert}.{module}"
            )


def _blocks_of_stack(
    name: str, shape: Shape, parts: Sequence[tuple[str, int, int]], config: ModelConfig
) -> tuple[int, int, int]:
    """Return the shape of the scales of stacked experts in FP8. Raises ``UnsupportedModel`` for other forms."""
    quantization = config.quantization
    cut = any(start % BLOCK for _, start, _ in parts)
    if quantization is None or not quantization.in_blocks or quantization.static or cut:
        raise UnsupportedModel(
            f"{name} holds all experts in FP8 in a form that is not supported; use a checkpoint with a module for each "
            f"expert, or with a scale for each block of {BLOCK} and experts of a multiple of {BLOCK} features."
        )
    return shape[0], -(-shape[1] // BLOCK), -(-shape[2] // BLOCK)


def _fp8_tensors(
    checkpoint: Checkpoint, config: ModelConfig
) -> tuple[dict[str, ScaleNames], dict[str, tuple[Shape, ...]]]:
    """Return the scale names of each FP8 weight, and the possible shapes of each scale."""
    in_fp8: dict[str, ScaleNames] = {}
    scales: dict[str, tuple[Shape, ...]] = {}
    if config.quantization is None:
        return in_fp8, scales
    for name, shape in tensor_shapes(config).items():
        module = name.removesuffix(".weight")
        stored = checkpoint.stored_name(name).removesuffix(".weight").replace(LANGUAGE_MODEL, "model.")
        if not name.startswith("model.layers.") or len(shape) != 2:
            continue
        if config.is_mtp:  # whose modules are rarely among the ignored ones, whether they are in FP8 or not
            if not checkpoint.in_fp8(name):
                continue
        elif not (config.quantization.covers(module) and config.quantization.covers(stored)):
            continue
        if module.endswith((f".{ROUTER}", f".{SHARED_GATE}")) and not checkpoint.in_fp8(name):
            continue  # no linear module to some programs that quantise
        names = checkpoint.scales_of(module, config.quantization.static)
        in_fp8[name] = names
        scales[names.weight] = config.quantization.scale_shapes(*shape)
        if names.input:
            scales[names.input] = ((), (1,))
    return in_fp8, scales


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The weights of a layer that predicts a further token, beside the embedding and the head of its base model.

    ``joined [hidden, 2 * hidden]`` is the product that reads the normed embedding, then the normed hidden state.
    """

    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    joined: Matrix
    layer: LayerWeights
    final_norm: torch.Tensor

    def num_bytes(self) -> int:
        norms = self.embedding_norm.nbytes + self.hidden_norm.nbytes + self.final_norm.nbytes
        return norms + self.joined.nbytes + self.layer.num_bytes()


def load_mtp_weights(
    folder: Path,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    quantised: bool = False,
    by_threads: bool = False,
) -> MtpWeights:
    """Load the layer of a base model that predicts a further token; ``config`` is that of the base model.

    Its matrices are in FP8 where the files have them so, or if ``quantised``. Raises ``UnsupportedModel``.
    """
    checkpoint, config = open_mtp(folder, config, device, by_threads), config.mtp()
    in_fp8, scales = _fp8_tensors(checkpoint, config)
    checkpoint.check(tensor_shapes(config), in_fp8, scales, mxfp4_shapes(config))
    weights = _Loader(checkpoint, config, device, dtype, Parallel(), quantised and not in_fp8, in_fp8).mtp()
    checkpoint.raise_for_values(dtype)
    return weights


def open_mtp(
    folder: Path, config: ModelConfig, device: torch.device | None = None, by_threads: bool = False
) -> Checkpoint:
    """Find the tensors of the layer that predicts a further token. Raises ``UnsupportedModel`` if there are none."""
    layer, checkpoint = config.mtp(), _files(folder, device or torch.device("cpu"), by_threads)
    checkpoint.keep_renamed({start.format(layers=config.num_layers): to for start, to in config.family.mtp.items()})
    if MTP_NAMES[-1] not in checkpoint.files:
        raise UnsupportedModel(
            f"{folder} has no layer that predicts a further token: many copies of models leave its tensors out; use "
            "the checkpoint as it was published, or choose --speculation ngram."
        )
    _find_tensors(checkpoint, layer)
    return checkpoint


def random_mtp_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0, quantised: bool = False
) -> MtpWeights:
    """Return random weights for a base model's layer that predicts a further token, for measurements."""
    config = config.mtp()
    return _Loader(_Random(config, device, dtype, seed), config, device, dtype, Parallel(), quantised, {}).mtp()


def random_weights(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    parallel: Parallel,
    seed: int = 0,
    quantised: bool = False,
) -> ModelWeights:
    """Return random weights of the right shapes, for measurements and for comparison of backends."""
    source = _Random(config, device, dtype, seed)
    return build_weights(source, config, device, dtype, parallel, config.tie_embeddings, quantised)


def weight_bytes(config: ModelConfig, dtype: torch.dtype, parallel: Parallel, quantised: bool = False) -> int:
    """Return the bytes of a model's weights on one rank, from its configuration alone."""
    device = torch.device("meta")
    loader = _Loader(_Empty(config, dtype), config, device, dtype, parallel, quantised, {})
    if config.is_mtp:
        return loader.mtp().num_bytes()
    total = loader.of_tokens(EMBEDDING).nbytes * (1 if config.tie_embeddings else 2) + loader.norm(FINAL_NORM).nbytes
    alike: dict[tuple[LayerKind, bool], int] = {}  # layers of a kind have tensors of the same shapes
    for layer in range(config.num_layers):
        kind = config.kind(layer), layer in config.sparse_layers
        if kind not in alike:
            alike[kind] = loader.layer(layer).num_bytes()
        total += alike[kind]
    return total


class _Empty:
    """A source of tensors without values instead of a checkpoint."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self._shapes, self._bytes, self._dtype = tensor_shapes(config), mxfp4_shapes(config), dtype

    def tensor(self, name: str) -> torch.Tensor:
        if name in self._bytes:
            return torch.empty(*self._bytes[name], device="meta", dtype=torch.uint8)
        return torch.empty(*self._shapes[name], device="meta", dtype=self._dtype)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.tensor(name)[start:stop]

    def placed(self, name: str, tensor: torch.Tensor) -> None:
        """Do nothing: there are no values to check."""

    def placed_fp8(self, name: str, matrix: Fp8Matrix | Fp8Stack) -> None:
        """Do nothing: there are no values to check."""


class _Random:
    """A source of random tensors instead of a checkpoint. Norms are near one, with any offset of the family."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        self._shapes, self._dtype, self._device = tensor_shapes(config), dtype, device
        self._packed = mxfp4_shapes(config)
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._norm = 1.0 - config.family.norm.offset

    def tensor(self, name: str) -> torch.Tensor:
        if name in self._packed:
            # Scales of 1/64, so that values are as large as those of other matrices.
            low, high = (121, 122) if name.endswith("_scales") else (0, 256)
            packed = torch.empty(self._packed[name], dtype=torch.uint8, device=self._device)
            return packed.random_(low, high, generator=self._generator)
        shape = self._shapes[name]
        values = torch.randn(*shape, generator=self._generator, device=self._device, dtype=self._dtype)
        if DELTA_BLOCK in name and len(shape) == 1 and name.endswith(".weight"):  # no family has an offset there
            return values.mul_(0.1).add_(1.0)
        norm = len(shape) == 1 and name.endswith(".weight")
        return values.mul_(0.1).add_(self._norm) if norm else values.mul_(0.02)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.tensor(name)[start:stop]

    def placed(self, name: str, tensor: torch.Tensor) -> None:
        """Do nothing: random values need no check."""

    def placed_fp8(self, name: str, matrix: Fp8Matrix | Fp8Stack) -> None:
        """Do nothing: random values need no check."""


def build_weights(
    tensors: Tensors,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    parallel: Parallel,
    tied: bool,
    quantised: bool = False,
    in_fp8: Mapping[str, ScaleNames] | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> ModelWeights:
    """Build the weights from a source of tensors; several threads read a ``DeviceCheckpoint``.

    ``quantised``: plain matrices are quantised to FP8. ``in_fp8``: scale names of the weights that are in FP8 already.
    """
    loader = _Loader(tensors, config, device, dtype, parallel, quantised and not in_fp8, in_fp8 or {})
    layers = []
    with ThreadPoolExecutor(THREADS if isinstance(tensors, DeviceCheckpoint) else 1) as threads:
        embedding = threads.submit(loader.of_tokens, EMBEDDING)
        lm_head = embedding if tied else threads.submit(loader.of_tokens, LM_HEAD)
        for layer in threads.map(loader.layer, range(config.num_layers)):
            layers.append(layer)
            progress(len(layers) / config.num_layers)
    if loader.unquantised:
        log.warning(
            "%d matrices stay in %s, since FP8 products do not support their sizes or blocks of scales: %s, …",
            len(loader.unquantised), str(dtype).removeprefix("torch."), loader.unquantised[0],
        )  # fmt: skip
    return ModelWeights(embedding.result(), layers, loader.norm(FINAL_NORM), lm_head.result())


class _Loader:
    """A loader that puts tensors on a device in the form that layers use."""

    def __init__(
        self,
        tensors: Tensors,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        parallel: Parallel,
        quantised: bool,
        in_fp8: Mapping[str, ScaleNames],
    ) -> None:
        self._tensors, self._config, self._parallel = tensors, config, parallel
        self._device, self._dtype = device, dtype
        self._quantised, self._in_fp8 = quantised, in_fp8
        self._shapes = tensor_shapes(config)
        self.unquantised: list[str] = []  # matrices that FP8 products do not support
        self._warned = False

    def matrix(self, name: str) -> torch.Tensor:
        return self._put(name, self._tensors.tensor(name))

    def of_tokens(self, name: str) -> torch.Tensor:
        """Load this rank's rows of a matrix with one row for each token."""
        vocabulary = Vocabulary(self._config.vocab_size, self._parallel)
        stop = vocabulary.first + vocabulary.num_tokens
        return self._put(name, vocabulary.padded(self._tensors.rows(name, vocabulary.first, stop)))

    def norm(self, name: str) -> torch.Tensor:
        """Load a norm's weight, in float32 if it is multiplied in float32."""
        norm = self._config.family.norm
        weight = self._tensors.tensor(name).to(self._device)
        weight = weight.float() + norm.offset if norm.offset else weight
        placed = weight.to(self._dtype if norm.rounded_first else torch.float32).contiguous()
        self._tensors.placed(name, placed)
        return placed

    def layer(self, index: int) -> LayerWeights:
        family, config, prefix, kind = (
            self._config.family,
            self._config,
            f"model.layers.{index}.",
            self._config.kind(index),
        )
        biases, qk_norm = _biases(config, kind), family.qk_norm and kind is LayerKind.ATTENTION
        norms = family.norms(gated_delta=kind is LayerKind.GATED_DELTA)
        dense, has_mlp = index not in config.sparse_layers, config.has_mlp(index)
        separate = config.has_separate_mlp(index)

        def norm(name: str) -> torch.Tensor | None:
            return self.norm(f"{prefix}{name}.weight") if name else None

        weights = LayerWeights(
            attention_norm=norm(norms[0]),
            mixer_in=self._columns(prefix, "mixer_in", kind),
            mixer_in_bias=self._column_bias(prefix, "mixer_in") if biases["mixer_in"] else None,
            q_norm=norm("self_attn.q_norm" if qk_norm else ""),
            k_norm=norm("self_attn.k_norm" if qk_norm else ""),
            mixer_out=self._row(prefix, "mixer_out", kind),
            mixer_out_bias=self._row_bias(prefix, "mixer_out") if biases["mixer_out"] else None,
            attention_out_norm=norm(norms[1]),
            mlp_norm=norm(norms[2]),
            gate_up=self._columns(prefix, "gate_up", kind, separate) if has_mlp else None,
            gate_up_bias=self._column_bias(prefix, "gate_up") if config.mlp_bias else None,
            down=self._row(prefix, "down", kind, separate) if has_mlp else None,
            down_bias=self._row_bias(prefix, "down") if config.mlp_bias else None,
            mlp_out_norm=norm(norms[3]),
            delta=self._delta(f"{prefix}{DELTA_BLOCK}.") if kind is LayerKind.GATED_DELTA else None,
            experts=None if dense else self._experts(prefix),
            sinks=self._sinks(prefix) if family.sinks else None,
        )
        weights.join_gates()
        return weights

    def mtp(self) -> MtpWeights:
        """Load the layer of a configuration with ``is_mtp``."""
        embedding_norm, hidden_norm, joined = MTP_NAMES
        return MtpWeights(
            embedding_norm=self.norm(embedding_norm),
            hidden_norm=self.norm(hidden_norm),
            joined=self._joined([joined], [self._module(joined)]),
            layer=self.layer(0),
            final_norm=self.norm(FINAL_NORM),
        )

    def _sinks(self, prefix: str) -> torch.Tensor:
        heads = self._parallel.shard(self._config.num_heads, "attention heads")
        sinks = self._tensors.tensor(f"{prefix}{SINKS}")[self._parallel.rank * heads :][:heads]
        placed = sinks.to(self._device, torch.float32).contiguous()
        self._tensors.placed(f"{prefix}{SINKS}", placed)
        return placed

    def _experts(self, prefix: str) -> ExpertWeights:
        """Load a layer's experts one after the other into the stacked tensors."""
        experts, hidden, router = self._config.experts, self._config.hidden_size, f"{prefix}{ROUTER}.weight"
        assert experts is not None, "the layer has experts"
        inner = self._parallel.shard(experts.inner, "inner features of experts")
        if self._config.family.experts is not None and self._config.family.experts.interleaved:
            return self._interleaved_experts(prefix, inner)
        of_experts = [f"{prefix}{EXPERTS}.{expert}." for expert in range(experts.count)]
        names = [[f"{of_expert}{module}.weight" for module in EXPERT_MODULES] for of_expert in of_experts]
        gate_up = self._stack([of_expert[:2] for of_expert in names], (inner, hidden))
        down = self._stack([of_expert[2:] for of_expert in names], (hidden, inner))
        rows = [self._plain(self._module(router))]
        if experts.gated_shared:
            rows.append(self._plain(self._module(f"{prefix}{SHARED_GATE}.weight")))
        correction = None
        if experts.sigmoid:
            correction = self._tensors.tensor(f"{prefix}{CORRECTION}").to(self._device, torch.float32).contiguous()
            self._tensors.placed(f"{prefix}{CORRECTION}", correction)
        separate = experts.shared > 0 and not experts.gated_shared
        router_rows = self._put(router, torch.cat(rows))
        return ExpertWeights(router_rows, gate_up, down, correction=correction, separate_mlp=separate)

    def _stack(self, names: list[list[str]], shape: tuple[int, int]) -> Stack:
        """Load this rank's matrices ``[rows, columns]`` of all experts: in FP8 if they are, or are to be quantised.

        ``names`` are those of each expert's matrices, whose rows follow each other.
        """
        every = [name for of_expert in names for name in of_expert]
        in_fp8 = all(name in self._in_fp8 for name in every)
        (rows, columns), parts = shape, len(names[0])
        stack: Stack
        if in_fp8 or self._quantised:
            quantization = self._config.quantization
            blocks = in_fp8 and quantization is not None and quantization.in_blocks
            stack = Fp8Stack.empty(len(names), parts, rows, columns, blocks, self._device)
        else:
            stack = torch.empty(len(names), parts * rows, columns, dtype=self._dtype, device=self._device)
            if any(name in self._in_fp8 for name in every):
                self.unquantised.append(every[0])
        for expert, of_expert in enumerate(names):
            for part, name in enumerate(of_expert):
                matrix = self._part(self._module(name), shape)
                if isinstance(stack, torch.Tensor):
                    stack[expert, part * rows : (part + 1) * rows].copy_(self._plain(matrix))
                    continue
                if not isinstance(matrix, Fp8Matrix):
                    matrix = quantise(matrix.to(self._device, self._dtype))
                stack.place(expert, part, matrix)
        if isinstance(stack, Fp8Stack):
            self._tensors.placed_fp8(every[0], stack)
        else:
            self._tensors.placed(every[0], stack)
        return stack

    def _part(self, whole: Matrix, shape: tuple[int, int]) -> Matrix:
        """Return this rank's part of an expert's matrix, which is split in the dimension that ``shape`` has less of."""
        rows, columns = shape
        row, column = (
            size * self._parallel.rank if size < of else 0 for size, of in zip(shape, whole.shape, strict=True)
        )
        if not isinstance(whole, Fp8Matrix):
            return whole[row : row + rows, column : column + columns]
        by_rows = rows_of(whole, row, row + rows)
        part = by_rows and columns_of(by_rows, column, column + columns)
        if part is None:
            raise UnsupportedModel(uneven_blocks(self._config, self._parallel.world))
        return part

    def _interleaved_experts(self, prefix: str, inner: int) -> ExpertWeights:
        """Load the experts of a layer that has one tensor for each product; ``inner`` are this rank's features."""
        name, hidden = f"{prefix}{EXPERTS}", self._config.hidden_size
        mine = slice(self._parallel.rank * inner, (self._parallel.rank + 1) * inner)
        gate_up: Stack
        down: Stack
        if self._keeps_mxfp4(inner):
            gate_up, down = self._in_mxfp4(f"{name}.gate_up_proj", mine), self._in_mxfp4(f"{name}.down_proj", mine)
        else:
            gates_and_ups = self._matrices_of_experts(f"{name}.gate_up_proj")
            parts = ((rows[0::2][mine], rows[1::2][mine]) for rows in gates_and_ups)
            gate_up = self._filled(f"{name}.gate_up_proj", parts, (inner, hidden))
            downs = self._matrices_of_experts(f"{name}.down_proj")
            down = self._filled(f"{name}.down_proj", ((rows[:, mine],) for rows in downs), (hidden, inner))
        router = self.matrix(f"{prefix}{ROUTER}.weight")
        if self._config.family.experts is None or not self._config.family.experts.biased:
            return ExpertWeights(router, gate_up, down)
        biases = self._tensors.tensor(f"{name}.gate_up_proj_bias")
        of_rank = torch.cat((biases[:, 0::2][:, mine], biases[:, 1::2][:, mine]), dim=1)
        return ExpertWeights(
            router,
            gate_up,
            down,
            self.matrix(f"{prefix}{ROUTER}.bias"),
            self._flat(f"{name}.gate_up_proj_bias", of_rank),
            # Partial sums of all ranks are added up, so only one rank may add the bias.
            self._flat(f"{name}.down_proj_bias", self._tensors.tensor(f"{name}.down_proj_bias"))
            if self._parallel.rank == 0
            else None,
        )

    def _filled(self, name: str, experts: Iterable[tuple[torch.Tensor, ...]], shape: tuple[int, int]) -> Stack:
        """Put plain matrices ``[rows, columns]`` of each expert, whose rows follow each other, into a stack."""
        rows, columns = shape
        stack: torch.Tensor | Fp8Stack | None = None
        count = self._config.experts.count if self._config.experts else 0
        for expert, matrices in enumerate(experts):
            if stack is None:
                stack = self._empty_stack(count, len(matrices), rows, columns)
            for part, matrix in enumerate(matrices):
                if isinstance(stack, Fp8Stack):
                    stack.place(expert, part, quantise(matrix.to(self._device, self._dtype)))
                else:
                    stack[expert, part * rows : (part + 1) * rows].copy_(matrix)
        assert stack is not None, "there are experts"
        if isinstance(stack, Fp8Stack):
            self._tensors.placed_fp8(name, stack)
        else:
            self._tensors.placed(name, stack)
        return stack

    def _empty_stack(self, count: int, parts: int, rows: int, columns: int) -> torch.Tensor | Fp8Stack:
        if self._quantised:
            return Fp8Stack.empty(count, parts, rows, columns, False, self._device)
        return torch.empty(count, parts * rows, columns, dtype=self._dtype, device=self._device)

    def _keeps_mxfp4(self, inner: int) -> bool:
        """Return whether experts stay in MXFP4; a rank's inner features must have whole scales for that."""
        experts = self._config.experts
        if experts is None or not experts.mxfp4:
            return False
        if inner % MXFP4_BLOCK == 0:
            return True
        if not self._warned:
            log.warning(
                "experts in MXFP4 are dequantised, since %d inner features on each of %d GPUs are no multiple of %d",
                inner, self._parallel.world, MXFP4_BLOCK,
            )  # fmt: skip
        self._warned = True
        return False

    def _in_mxfp4(self, name: str, mine: slice) -> Mxfp4Stack:
        """Load a product's matrices of all experts as they are stored; ``mine`` are this rank's inner features."""
        blocks, scales = self._tensors.tensor(f"{name}_blocks"), self._tensors.tensor(f"{name}_scales")
        if is_down := name.endswith("down_proj"):
            groups = slice(mine.start // MXFP4_BLOCK, mine.stop // MXFP4_BLOCK)
            blocks, scales = blocks[:, :, groups], scales[:, :, groups]
        rows = scales.shape[1] if is_down else 2 * (mine.stop - mine.start)
        largest = scales.amax()
        wide = not largest.is_meta and int(largest) > MXFP4_NARROW
        stack = Mxfp4Stack.empty(len(blocks), rows, scales.shape[2] * MXFP4_BLOCK, self._device, wide)
        for expert, (of_blocks, of_scales) in enumerate(zip(blocks, scales, strict=True)):
            parts = [slice(None)] if is_down else [slice(mine.start * 2 + part, mine.stop * 2, 2) for part in (0, 1)]
            for part, chosen in enumerate(parts):
                stack.place(expert, part, of_blocks[chosen].to(self._device), of_scales[chosen].to(self._device))
        self._tensors.placed(f"{name}_scales", factors(largest.to(self._device)))
        return stack

    def _matrices_of_experts(self, name: str) -> Iterator[torch.Tensor]:
        """Yield the matrix ``[out, in]`` of each expert, of a product that has one tensor of all of them."""
        if self._config.experts is not None and self._config.experts.mxfp4:
            blocks, scales = self._tensors.tensor(f"{name}_blocks"), self._tensors.tensor(f"{name}_scales")
            for of_blocks, of_scales in zip(blocks, scales, strict=True):
                yield dequantised(of_blocks, of_scales, self._dtype)
        else:
            for matrix in self._tensors.tensor(name):
                yield matrix.t()

    def _flat(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Put a tensor on the device with contiguous rows."""
        placed = tensor.to(device=self._device, dtype=self._dtype).contiguous()
        self._tensors.placed(name, placed)
        return placed

    def _delta(self, prefix: str) -> DeltaParameters:
        delta, names = self._config.delta, self._config.family.gated_delta
        assert delta is not None and names is not None, "the layer is a gated delta layer"

        def parameter(name: str) -> torch.Tensor:
            placed = self._tensors.tensor(prefix + name).to(self._device, torch.float32).contiguous()
            self._tensors.placed(prefix + name, placed)
            return placed

        def of_rank(rows: torch.Tensor, parts: tuple[int, ...] = ()) -> torch.Tensor:
            return torch.cat([rows[start:stop] for start, stop in self._rows_of_rank(parts or (len(rows),))])

        gates = [f"{prefix}{gate}.weight" for gate in names.gates]
        of_gates = [
            of_rank(self._plain(self._module(name)), self._config.output_parts.get(gate, ()))
            for name, gate in zip(gates, names.gates, strict=True)
        ]
        return DeltaParameters(
            gates=self._put(gates[0], torch.cat(of_gates)),
            convolution=of_rank(parameter("conv1d.weight").squeeze(1), delta.parts).to(self._dtype),
            a_log=of_rank(parameter("A_log")),
            dt_bias=of_rank(parameter("dt_bias")),
            norm=parameter(f"{names.norm}.weight").to(self._dtype),
        )

    def _columns(self, prefix: str, block: str, kind: LayerKind, separate: bool = False) -> Matrix:
        """Load a column-parallel matrix: this rank's output features of each module, concatenated."""
        modules = modules_of(self._config, block, kind, separate=separate)
        names = [f"{prefix}{module}.weight" for module in modules]
        parts: list[Matrix] = []
        in_parts = self._config.output_parts
        for name in names:
            ranges = self._rows_of_rank(in_parts.get(_target(name), self._shapes[name][:1]))
            if self._needs_whole(name):
                whole = self._module(name)
                for start, stop in ranges:
                    part = rows_of(whole, start, stop) if isinstance(whole, Fp8Matrix) else None
                    parts.append(part or self._plain(whole)[start:stop])
            else:
                parts += [self._module(name, slice(*each)) for each in ranges]
        return self._joined(names, parts)

    def _needs_whole(self, name: str) -> bool:
        """Return whether some rows of a module depend on others in its file: by their order, or by scales of blocks."""
        quantization = self._config.quantization
        blocks = name in self._in_fp8 and quantization is not None and quantization.in_blocks
        return blocks or _target(name) in self._config.interleaved

    def _rows_of_rank(self, parts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield this rank's range of rows of each part of a column-parallel module."""
        first = 0
        for part in parts:
            height = self._parallel.shard(part, "output features")
            start = first + self._parallel.rank * height
            yield start, start + height
            first += part

    def _column_bias(self, prefix: str, block: str) -> torch.Tensor:
        names = [f"{prefix}{module}.bias" for module in modules_of(self._config, block)]
        return self._put(names[0], torch.cat([_rows(self._tensors.tensor(name), self._parallel) for name in names]))

    def _row(self, prefix: str, block: str, kind: LayerKind, separate: bool = False) -> Matrix:
        """Load a row-parallel matrix: this rank's input features."""
        (module,) = modules_of(self._config, block, kind, separate=separate)
        name = f"{prefix}{module}.weight"
        whole = self._module(name)
        width = self._parallel.shard(whole.shape[1], module)
        start, stop = self._parallel.rank * width, (self._parallel.rank + 1) * width
        part = columns_of(whole, start, stop) if isinstance(whole, Fp8Matrix) else None
        return self._joined([name], [part or self._plain(whole)[:, start:stop]])

    def _joined(self, names: list[str], parts: list[Matrix]) -> Matrix:
        """Join parts to one matrix: in FP8 if they are, or are to be quantised, and FP8 products support it."""
        quantised = [part for part in parts if isinstance(part, Fp8Matrix)]
        matrix = concatenated(quantised) if len(quantised) == len(parts) else None
        if matrix is None and self._quantised:
            plain = torch.cat([self._plain(part).to(self._device, self._dtype) for part in parts])
            matrix = quantise(plain) if fits(plain) else None
        if matrix is not None and fits(matrix):
            placed = matrix.to(self._device)
            self._tensors.placed_fp8(names[0], placed)
            return placed
        if self._quantised or any(name in self._in_fp8 for name in names):
            self.unquantised.append(names[0])
        return self._put(names[0], torch.cat([self._plain(part) for part in parts]))

    def _module(self, name: str, rows: slice | None = None) -> Matrix:
        return _stored(self._tensors, self._config, self._in_fp8, name, rows)

    def _plain(self, matrix: Matrix) -> torch.Tensor:
        return matrix.dequantised(self._dtype) if isinstance(matrix, Fp8Matrix) else matrix

    def _row_bias(self, prefix: str, block: str) -> torch.Tensor | None:
        # Partial sums of all ranks are added up, so only one rank may add the bias.
        (module,) = modules_of(self._config, block)
        return self.matrix(f"{prefix}{module}.bias") if self._parallel.rank == 0 else None

    def _put(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        placed = tensor.to(device=self._device, dtype=self._dtype).contiguous()
        self._tensors.placed(name, placed)
        return _laid_out(placed)


def _stored(
    tensors: Tensors, config: ModelConfig, in_fp8: Mapping[str, ScaleNames], name: str, rows: slice | None = None
) -> Matrix:
    """Read a module's weights as the files have them, but with rows by part where they are stored by head.

    ``rows``: only these, of a module that is stored in order and without blocks of scales.
    """
    weight = tensors.tensor(name) if rows is None else tensors.rows(name, rows.start, rows.stop)
    order = config.interleaved.get(_target(name))
    if name not in in_fp8:
        return weight if order is None else order.by_part(weight)
    names = in_fp8[name]
    scale = tensors.tensor(names.weight).float()
    assert config.quantization is not None
    if not config.quantization.in_blocks:
        scale = scale.reshape(-1)
        scale = (scale if rows is None or len(scale) == 1 else scale[rows]).expand(weight.shape[0])
    static = tensors.tensor(names.input).float().reshape(1) if names.input else None
    matrix = Fp8Matrix(weight, scale, static)
    return matrix if order is None else _by_part(matrix, order)


def _by_part(matrix: Fp8Matrix, order: Interleaving) -> Matrix:
    """Return the matrix with its rows by part: dequantised if a block of scales has rows of two parts."""
    of_scales = order.in_blocks(BLOCK) if matrix.in_blocks else order
    if of_scales is None:
        return order.by_part(matrix.dequantised(torch.float32))
    data = order.by_part(matrix.data.view(torch.uint8)).view(FP8)
    return Fp8Matrix(data, of_scales.by_part(matrix.scale), matrix.input_scale)


def _target(name: str) -> str:
    """Return the target whose weights are the tensor ``name``."""
    return target_of(name.removesuffix(".weight"))


class StoredModules:
    """The whole modules of layers as the files have them, mapped: only accessed parts are read.

    Any thread may use them. Methods raise ``UnsupportedModel`` for files that cannot be read.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._checkpoint, self._config = _open(folder, config, torch.device("cpu"), by_threads=False), config
        self._in_fp8, _ = _fp8_tensors(self._checkpoint, config)
        kinds = {config.kind(layer) for layer in range(config.num_layers)}
        self._modules = {
            target_of(module): module
            for kind in kinds
            for block in MATRICES
            for module in modules_of(config, block, kind)
        }
        if any(map(config.has_separate_mlp, range(config.num_layers))):
            shared = [module for block in ("gate_up", "down") for module in modules_of(config, block, separate=True)]
            self._modules |= {target_of(module): module for module in shared}
        if config.delta_layers and (delta := config.family.gated_delta) is not None:
            self._modules |= {target_of(f"{DELTA_BLOCK}.{gate}"): f"{DELTA_BLOCK}.{gate}" for gate in delta.gates}
        if config.sparse_layers:
            self._modules[target_of(ROUTER)] = ROUTER
        self._biased = biased_targets(config)

    def matrix(self, layer: int, target: str) -> Matrix:
        return _stored(self._checkpoint, self._config, self._in_fp8, self._name(layer, target, "weight"))

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        """Return a module's bias, None if it has none."""
        return self._checkpoint.tensor(self._name(layer, target, "bias")) if target in self._biased else None

    def _name(self, layer: int, target: str, kind: str) -> str:
        return f"model.layers.{layer}.{self._modules[target]}.{kind}"


class StreamedLayers:
    """A sequence of layers that are read on access; only the last one is kept. One thread may use it at a time."""

    def __init__(self, loader: _Loader, count: int, on_layer: OnLayer) -> None:
        self._loader, self._count, self._on_layer = loader, count, on_layer
        self._kept: tuple[int, LayerWeights] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LayerWeights]:
        return (self[index] for index in range(self._count))

    def __getitem__(self, index: int, /) -> LayerWeights:
        if not 0 <= index < self._count:
            raise IndexError(index)
        if self._kept is None or self._kept[0] != index:
            self._kept = None
            layer = self._loader.layer(index)
            self._on_layer(index, layer)
            self._kept = index, layer
        return self._kept[1]


def _laid_out(placed: torch.Tensor) -> torch.Tensor:
    """Return a matrix in the best memory layout: a CPU multiplies one row a third faster if outputs are contiguous."""
    return placed.t().contiguous().t() if placed.device.type == "cpu" and placed.dim() == 2 else placed


def _rows(weight: torch.Tensor, parallel: Parallel) -> torch.Tensor:
    height = parallel.shard(weight.shape[0], "output features")
    return weight[parallel.rank * height : (parallel.rank + 1) * height]
