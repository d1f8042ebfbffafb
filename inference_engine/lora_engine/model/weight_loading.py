"""Loading of a base model's weights for one rank: from its folder, of random values, or of shapes alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Stack

from .config import DELTA_BLOCK, LayerKind, ModelConfig
from .device_reads import THREADS, DeviceCheckpoint
from .expert_tensors import ExpertTensors
from .parallel import Parallel
from .rank_tensors import RankTensors
from .stored_tensors import embedding_and_head, fp8_tensors, open_checkpoint, open_mtp
from .tensor_shapes import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    MTP_NAMES,
    SINKS,
    biased_blocks,
    modules_of,
    mxfp4_shapes,
    tensor_shapes,
)
from .weights import DeltaParameters, LayerWeights, ModelWeights, MtpWeights

log = logging.getLogger(__name__)

# Called with the index and the weights of each layer that was read.
OnLayer = Callable[[int, LayerWeights], None]


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
    checkpoint = open_checkpoint(folder, config, device, by_threads)
    tied = config.tie_embeddings
    if tied and LM_HEAD in checkpoint.files and EMBEDDING not in checkpoint.files:
        checkpoint.rename(LM_HEAD, EMBEDDING)
    in_fp8, scales = fp8_tensors(checkpoint, config)
    checkpoint.check(tensor_shapes(config), in_fp8, scales, mxfp4_shapes(config))
    if tied and LM_HEAD in checkpoint.files:
        checkpoint.check({LM_HEAD: (config.vocab_size, config.hidden_size)}, scales=scales)
        tied = device.type == "meta" or torch.equal(checkpoint.tensor(LM_HEAD), checkpoint.tensor(EMBEDDING))
        if not tied:  # transformers uses it too
            log.warning("tie_word_embeddings is true, but the checkpoint has a separate lm_head, which is used")
    tensors = RankTensors(checkpoint, config, device, dtype, parallel, quantised, in_fp8)
    weights = build_weights(tensors, tied, progress)
    checkpoint.raise_for_values(dtype)
    return weights


def stream_weights(
    folder: Path, config: ModelConfig, served: ModelWeights, device: torch.device, on_layer: OnLayer
) -> ModelWeights:
    """Return the whole model as the files have it, on ``device``; each layer is read on access.

    ``served`` are weights from the same files; their embedding and head are reused if they are whole and on ``device``.
    """
    checkpoint = open_checkpoint(folder, config, device, by_threads=True)
    in_fp8, _ = fp8_tensors(checkpoint, config)
    tensors = RankTensors(checkpoint, config, device, served.embedding.dtype, Parallel(), False, in_fp8)
    embedding, head = served.embedding, served.lm_head
    if embedding.device != device or len(embedding) != config.vocab_size:
        host_embedding, host_head = embedding_and_head(folder, served)
        embedding = host_embedding.to(device)
        head = embedding if host_head is host_embedding else host_head.to(device)
    layers = StreamedLayers(_LayerLoader(tensors), config.num_layers, on_layer)
    return ModelWeights(embedding, layers, served.final_norm.to(device), head)


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
    in_fp8, scales = fp8_tensors(checkpoint, config)
    checkpoint.check(tensor_shapes(config), in_fp8, scales, mxfp4_shapes(config))
    weights = _mtp(RankTensors(checkpoint, config, device, dtype, Parallel(), quantised, in_fp8))
    checkpoint.raise_for_values(dtype)
    return weights


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
    return build_weights(RankTensors(source, config, device, dtype, parallel, quantised), config.tie_embeddings)


def random_mtp_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0, quantised: bool = False
) -> MtpWeights:
    """Return random weights for a base model's layer that predicts a further token, for measurements."""
    config = config.mtp()
    return _mtp(RankTensors(_Random(config, device, dtype, seed), config, device, dtype, Parallel(), quantised))


def weight_bytes(config: ModelConfig, dtype: torch.dtype, parallel: Parallel, quantised: bool = False) -> int:
    """Return the bytes of a model's weights on one rank, from its configuration alone."""
    device = torch.device("meta")
    tensors = RankTensors(_Random(config, device, dtype), config, device, dtype, parallel, quantised)
    if config.is_mtp:
        return _mtp(tensors).num_bytes()
    total = tensors.of_tokens(EMBEDDING).nbytes * (1 if config.tie_embeddings else 2) + tensors.norm(FINAL_NORM).nbytes
    loader = _LayerLoader(tensors)
    alike: dict[tuple[LayerKind, bool], int] = {}  # layers of a kind have tensors of the same shapes
    for layer in range(config.num_layers):
        kind = config.kind(layer), layer in config.sparse_layers
        if kind not in alike:
            alike[kind] = loader.layer(layer).num_bytes()
        total += alike[kind]
    return total


class _Random:
    """A source of random tensors instead of a checkpoint; on the meta device they have no values.

    Norms are near one, with any offset of the family.
    """

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self._shapes, self._dtype, self._device = tensor_shapes(config), dtype, device
        self._packed = mxfp4_shapes(config)
        self._generator = None if device.type == "meta" else torch.Generator(device=device).manual_seed(seed)
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

    def placed(self, name: str, tensor: torch.Tensor | Fp8Matrix | Fp8Stack) -> None:
        """Do nothing: random values need no check."""


def build_weights(
    tensors: RankTensors, tied: bool, progress: Callable[[float], None] = lambda share: None
) -> ModelWeights:
    """Build the weights from a rank's tensors; several threads read a ``DeviceCheckpoint``."""
    loader, count, layers = _LayerLoader(tensors), tensors.config.num_layers, []
    with ThreadPoolExecutor(THREADS if isinstance(tensors.source, DeviceCheckpoint) else 1) as threads:
        embedding = threads.submit(tensors.of_tokens, EMBEDDING)
        lm_head = embedding if tied else threads.submit(tensors.of_tokens, LM_HEAD)
        for layer in threads.map(loader.layer, range(count)):
            layers.append(layer)
            progress(len(layers) / count)
    if unquantised := tensors.unquantised:
        log.warning(
            "%d matrices stay in %s, since FP8 products do not support their sizes or blocks of scales: %s, …",
            len(unquantised), str(tensors.dtype).removeprefix("torch."), unquantised[0],
        )  # fmt: skip
    return ModelWeights(embedding.result(), layers, tensors.norm(FINAL_NORM), lm_head.result())


class _LayerLoader:
    """A loader of single layers from a rank's tensors."""

    def __init__(self, tensors: RankTensors) -> None:
        self._tensors, self._config = tensors, tensors.config
        self._experts = ExpertTensors(tensors) if tensors.config.sparse_layers else None

    def layer(self, index: int) -> LayerWeights:
        tensors, config, family = self._tensors, self._config, self._config.family
        prefix, kind, has_mlp = f"model.layers.{index}.", config.kind(index), config.has_mlp(index)
        sparse, biased = index in config.sparse_layers, biased_blocks(config, kind)
        norms = family.norms(gated_delta=kind is LayerKind.GATED_DELTA)
        qk_norm, sinks = family.qk_norm and kind is LayerKind.ATTENTION, f"{prefix}{SINKS}"

        def norm(name: str) -> torch.Tensor | None:
            return tensors.norm(f"{prefix}{name}.weight") if name else None

        def names(block: str, of: str = "weight") -> list[str]:
            modules = modules_of(config, block, kind, separate=config.has_separate_mlp(index))
            return [f"{prefix}{module}.{of}" for module in modules]

        weights = LayerWeights(
            attention_norm=norm(norms[0]),
            mixer_in=tensors.columns(names("mixer_in")),
            mixer_in_bias=tensors.column_bias(names("mixer_in", "bias")) if "mixer_in" in biased else None,
            q_norm=norm("self_attn.q_norm" if qk_norm else ""),
            k_norm=norm("self_attn.k_norm" if qk_norm else ""),
            mixer_out=tensors.row(*names("mixer_out")),
            mixer_out_bias=tensors.row_bias(*names("mixer_out", "bias")) if "mixer_out" in biased else None,
            attention_out_norm=norm(norms[1]),
            mlp_norm=norm(norms[2]),
            gate_up=tensors.columns(names("gate_up")) if has_mlp else None,
            gate_up_bias=tensors.column_bias(names("gate_up", "bias")) if "gate_up" in biased else None,
            down=tensors.row(*names("down")) if has_mlp else None,
            down_bias=tensors.row_bias(*names("down", "bias")) if "down" in biased else None,
            mlp_out_norm=norm(norms[3]),
            delta=self._delta(f"{prefix}{DELTA_BLOCK}.") if kind is LayerKind.GATED_DELTA else None,
            experts=self._experts.load(prefix) if self._experts is not None and sparse else None,
            sinks=tensors.place(sinks, tensors.rows_of_rank(tensors.source.tensor(sinks)), torch.float32)
            if family.sinks
            else None,
        )
        weights.join_gates()
        return weights

    def _delta(self, prefix: str) -> DeltaParameters:
        tensors, config, delta, names = self._tensors, self._config, self._config.delta, self._config.family.gated_delta
        assert delta is not None and names is not None, "the layer is a gated delta layer"
        gates = [
            tensors.rows_of_rank(
                tensors.plain(tensors.module(f"{prefix}{gate}.weight")), config.output_parts.get(gate, ())
            )
            for gate in names.gates
        ]
        convolution = tensors.in_float32(f"{prefix}conv1d.weight").squeeze(1)
        return DeltaParameters(
            gates=tensors.put(f"{prefix}{names.gates[0]}.weight", torch.cat(gates)),
            convolution=tensors.rows_of_rank(convolution, delta.parts).to(tensors.dtype),
            a_log=tensors.rows_of_rank(tensors.in_float32(f"{prefix}A_log")),
            dt_bias=tensors.rows_of_rank(tensors.in_float32(f"{prefix}dt_bias")),
            norm=tensors.in_float32(f"{prefix}{names.norm}.weight").to(tensors.dtype),
        )


def _mtp(tensors: RankTensors) -> MtpWeights:
    """Load the layer of a configuration with ``is_mtp``."""
    embedding_norm, hidden_norm, joined = MTP_NAMES
    return MtpWeights(
        embedding_norm=tensors.norm(embedding_norm),
        hidden_norm=tensors.norm(hidden_norm),
        joined=tensors.joined([joined], [tensors.module(joined)]),
        layer=_LayerLoader(tensors).layer(0),
        final_norm=tensors.norm(FINAL_NORM),
    )


class StreamedLayers:
    """A sequence of layers that are read on access; only the last one is kept. One thread may use it at a time."""

    def __init__(self, loader: _LayerLoader, count: int, on_layer: OnLayer) -> None:
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
