"""The tensors of a model's files under the names of ``tensor_shapes``, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch

from lora_engine.adapters.targets import Interleaving, target_of
from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import BLOCK, FP8, Fp8Matrix

from .checkpoint import LANGUAGE_MODEL, Checkpoint, ScaleNames, Shape, Tensors
from .config import DELTA_BLOCK, ModelConfig
from .device_reads import DeviceCheckpoint, ShapesOnly
from .tensor_shapes import (
    EMBEDDING,
    EXPERT_MODULES,
    EXPERTS,
    LM_HEAD,
    MTP_NAMES,
    ROUTER,
    SHARED,
    SHARED_GATE,
    biased_targets,
    modules_of,
    target_of_weight,
    tensor_shapes,
)
from .weights import MATRICES, Matrix, ModelWeights


def _files(folder: Path, device: torch.device, by_threads: bool) -> Checkpoint:
    if device.type == "meta":
        return ShapesOnly(folder)
    return DeviceCheckpoint(folder, device) if by_threads and device.type == "cuda" else Checkpoint(folder)


def open_checkpoint(folder: Path, config: ModelConfig, device: torch.device, by_threads: bool) -> Checkpoint:
    """Find the tensors of the model's layers. Those of a CUDA device are read ``by_threads``, or else are mapped."""
    checkpoint = _files(folder, device, by_threads)
    checkpoint.drop_layers(config.num_layers)
    _find_tensors(checkpoint, config)
    return checkpoint


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


def fp8_tensors(
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


def read_module(
    tensors: Tensors, config: ModelConfig, in_fp8: Mapping[str, ScaleNames], name: str, rows: slice | None = None
) -> Matrix:
    """Read a module's weights as the files have them, but with rows by part where they are stored by head.

    ``rows``: only these, of a module that is stored in order and without blocks of scales.
    """
    weight = tensors.tensor(name) if rows is None else tensors.rows(name, rows.start, rows.stop)
    order = config.interleaved.get(target_of_weight(name))
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


class StoredModules:
    """The whole modules of layers as the files have them, mapped: only accessed parts are read.

    Any thread may use them. Methods raise ``UnsupportedModel`` for files that cannot be read.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._checkpoint, self._config = open_checkpoint(folder, config, torch.device("cpu"), by_threads=False), config
        self._in_fp8, _ = fp8_tensors(self._checkpoint, config)
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
        return read_module(self._checkpoint, self._config, self._in_fp8, self._name(layer, target, "weight"))

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        """Return a module's bias, None if it has none."""
        return self._checkpoint.tensor(self._name(layer, target, "bias")) if target in self._biased else None

    def _name(self, layer: int, target: str, kind: str) -> str:
        return f"model.layers.{layer}.{self._modules[target]}.{kind}"


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
