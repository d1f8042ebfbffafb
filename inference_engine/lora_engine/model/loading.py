"""Loading of a base model: configuration, weights, tokenizer, and the page pool in the remaining memory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from lora_engine.adapters.embedding_pages import BaseEmbeddingLayers
from lora_engine.adapters.experts import expert_rows
from lora_engine.adapters.targets import ExpertShapes, LoraSharding, TargetShapes
from lora_engine.adapters.tensors import pool_rows_per_row
from lora_engine.config import EngineConfig
from lora_engine.memory.page_pool import PagePool, PoolGeometry
from lora_engine.start_progress import StartProgress
from lora_engine.text import Tokenizer
from lora_kernels.state_pages import CHUNK
from lora_kernels.tables import ResidencyTables, SlotTables

from .batch import PrefillSpan, StepBatch
from .config import ModelConfig
from .device_memory import (
    RESERVE,
    DeviceMemory,
    require_one_sequence,
    reserve_bytes,
    room,
    sampling_bytes,
)
from .digests import DigestMemory, base_digest
from .draft_head import DraftHead
from .draft_inputs import DraftInputs
from .eagle_head import EagleHead
from .expert_tensors import uneven_blocks
from .head_passes import HeadPasses
from .lora_exchange import LoraExchange
from .merging import MergedLayers
from .mtp_head import MtpHead
from .ops import TorchOps
from .parallel import Parallel
from .shape import ModelShape
from .stored_tensors import WholeVocabulary, embedding_and_head, open_mtp
from .tensor_shapes import biased_targets
from .transformer import LayerInputs, Transformer
from .weight_loading import load_weights
from .weights import ModelWeights

if TYPE_CHECKING:
    from .triton_ops import TritonOps  # needs triton

log = logging.getLogger(__name__)

# Rows beyond running sequences for adapters of whose experts only some are in the pool.
_PARTIAL_ROWS = 64

# Kinds of speculation that a draft head guesses for.
DRAFT_HEADS = frozenset({"eagle3", "mtp"})

# MiB of the page pool on a CPU, if none is configured.
CPU_POOL_MB = 256


@dataclass(slots=True)
class LoadedModel:
    """A loaded base model with its tokenizer, page pool and tables."""

    name: str
    digest_source: str | Future[str]  # a future while it is computed in the background
    device_name: str
    model: Transformer
    tokenizer: Tokenizer
    pool: PagePool
    targets: TargetShapes
    max_context: int
    tables: SlotTables | None = None  # with the Triton backend
    fp8_adapters: bool = False  # factors of adapters are packed in FP8
    draft_head: HeadPasses | None = None  # with --speculation eagle3 or mtp
    kernels_ahead: bool = False  # all kernels of usual batches are compiled
    again: bool = False  # streams wait for it, since ranks that had it ended; all of its kernels are compiled
    progress: StartProgress = field(default_factory=StartProgress)

    @property
    def digest(self) -> str:
        """Digest of the base model; waits until it is computed. Raises ``OSError`` if its files cannot be read."""
        return self.digest_source if isinstance(self.digest_source, str) else self.digest_source.result()


class Kernels(Protocol):
    """A compilation of kernels that runs while the model is loaded."""

    def wait(self, progress: Callable[[float], None]) -> bool: ...


def load_model(
    config: EngineConfig,
    parallel: Parallel | None = None,
    progress: StartProgress | None = None,
    kernels: Kernels | None = None,
    digests: DigestMemory | None = None,
    *,
    again: bool = False,
) -> LoadedModel:
    """Load ``config.model``. Raises ``UnsupportedModel`` with the fix.

    ``again``: see ``LoadedModel``. The digest may be available later than the rest. Only rank 0 reads the whole
    checkpoint for it; on other ranks it is empty.
    """
    progress, parallel = progress or StartProgress(), parallel or Parallel()
    threads = ThreadPoolExecutor(3, "load")
    try:
        digest = threads.submit(_digest, config.model, digests, parallel)
        tokenizer = threads.submit(Tokenizer.load, config.model)
        loaded = _load(config, parallel, progress, kernels, digest, tokenizer, threads)
        loaded.again = again
        return loaded
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _digest(model: Path, digests: DigestMemory | None, parallel: Parallel) -> str:
    if parallel.rank:
        return ""
    return digests.digest(model) if digests else base_digest(model)


def _load(
    config: EngineConfig,
    parallel: Parallel,
    progress: StartProgress,
    kernels: Kernels | None,
    digest: Future[str],
    tokenizer: Future[Tokenizer],
    threads: ThreadPoolExecutor,
) -> LoadedModel:
    if config.threads:
        torch.set_num_threads(config.threads)
    device, model_config = torch.device(config.device), ModelConfig.load(config.model)
    max_context = min(config.max_context or model_config.max_position, model_config.max_position)
    quantised, dtype = quantises(config), choose_dtype(config.dtype, device)
    if quantised or model_config.quantization:
        _check_fp8(config, device)
    fp8_kv(config)
    if fp8_adapters(config):
        _check_fp8_adapters(config, device)
    if model_config.experts is not None:
        check_experts(config, model_config, parallel)
    if config.deterministic:
        _check_deterministic(config, parallel, model_config)
    if parallel.world > 1:  # raises for heads that cannot be split, before anything is loaded
        ModelShape.of(model_config, parallel, 1, torch.device("meta"), dtype)
    if config.speculation in DRAFT_HEADS:
        check_draft_head(config, model_config)
        if config.speculation == "mtp":
            open_mtp(config.model, model_config)  # raises before the model's weights are read
    shape = threads.submit(_shape, model_config, parallel, max_context, device, dtype)
    with progress.phase("weights") as share:
        weights = load_weights(
            config.model, model_config, device, dtype, parallel, quantised, share, by_threads=config.fast_start
        )
    if parallel.joining is not None:
        with progress.phase("ranks"):  # what is left of it
            parallel = parallel.joined()
    model, tables = build_transformer(config, model_config, weights, max_context, parallel, shape.result())
    draft_head = None
    if config.speculation in DRAFT_HEADS and parallel.rank == 0:  # other ranks get the drafts as rows of steps
        with progress.phase("draft head"):
            draft_head = load_draft_head(config, model, max_context)
    kernels_ahead = False
    if kernels is not None:
        with progress.phase("kernels") as share:
            kernels_ahead = kernels.wait(share)
    if draft_head is not None and device.type == "cuda" and config.cuda_graphs:
        with progress.phase("draft head's graphs"):
            draft_head.capture()
    with progress.phase("page pool"):
        pool = build_pool(config, model, max_context, draft_head)
    log.info(
        "loaded %s: weights %.1f MiB, pool %d pages of %.1f KiB (%.1f MiB)",
        config.model,
        weights.num_bytes() / 2**20,
        pool.num_pages,
        pool.geometry.page_bytes(model.dtype) / 2**10,
        pool.data.nbytes / 2**20,
    )
    log.info("the pool has room for %s", room(pool, max_context))
    return LoadedModel(
        name=config.model_name or config.model.resolve().name,
        digest_source=digest,
        device_name=_device_name(device, parallel.world),
        model=model,
        tokenizer=tokenizer.result(),
        pool=pool,
        targets=target_shapes(config, model_config, parallel),
        max_context=max_context,
        tables=tables,
        fp8_adapters=fp8_adapters(config),
        draft_head=draft_head,
        kernels_ahead=kernels_ahead,
        progress=progress,
    )


def _shape(
    model_config: ModelConfig, parallel: Parallel, max_context: int, device: torch.device, dtype: torch.dtype
) -> ModelShape:
    """Return this rank's shape on the device of its weights, which has an index."""
    return ModelShape.of(model_config, parallel, max_context, torch.empty(0, device=device).device, dtype)


def base_embedding_layers(config: EngineConfig, loaded: LoadedModel) -> BaseEmbeddingLayers:
    """Return the base's whole embedding and head, for comparison with those of adapters."""
    weights = loaded.model.weights
    if loaded.model.parallel.world == 1:
        return BaseEmbeddingLayers(weights.embedding, weights.lm_head)
    return BaseEmbeddingLayers(*embedding_and_head(config.model, weights))


def build_transformer(
    config: EngineConfig,
    model_config: ModelConfig,
    weights: ModelWeights,
    max_context: int,
    parallel: Parallel,
    shape: ModelShape | None = None,
) -> tuple[Transformer, SlotTables | None]:
    """Build the model with the backend ``config.backend``; "auto" is Triton on a GPU, torch elsewhere.

    ``shape`` is the model's on this rank, if it is built already.

    Raises ``ValueError`` for a backend that is unknown or not possible here.
    """
    parallel = parallel.joined()
    backend = _backend(config, weights.embedding.device)
    if backend == "torch":
        weights.dequantise()
    model = Transformer(model_config, weights, max_context, parallel, shape=shape)
    exchange = LoraExchange(parallel) if target_shapes(config, model_config, parallel).shards > 1 else None
    if config.merges:
        model.merged = MergedLayers(weights.layers, exchange)
    draft_inputs = DraftInputs.of(config, model.shape)
    if backend == "torch":
        if model.device.type == "cuda":
            log.warning("running on a GPU without the Triton kernels (--backend torch): correct, but slow")
        model.ops = TorchOps(model.shape, exchange)
        model.ops.draft_inputs = draft_inputs
        return model, None
    if backend not in ("triton", "flashinfer"):
        raise ValueError(f"unknown backend {config.backend!r}; choose one of auto, torch, triton, flashinfer")
    if model.shape.kv_heads * model.shape.head_dim % 16:
        raise ValueError(
            f"the GPU kernels need keys of a multiple of 16 elements, but this model has {model.shape.kv_heads} "
            f"key-value heads of {model.shape.head_dim}; choose --backend torch"
        )
    tables = slot_tables(config, model_config, model.shape, parallel)
    model.ops = ops = gpu_ops(config, model.shape, tables, exchange, by_flashinfer=backend == "flashinfer")
    ops.draft_inputs = draft_inputs
    ops.choose_products(weights, config.max_step_tokens, config.max_running)
    return model, tables


def gpu_ops(
    config: EngineConfig,
    shape: ModelShape,
    tables: SlotTables,
    exchange: LoraExchange | None = None,
    *,
    by_flashinfer: bool = False,
) -> TritonOps:
    """Return the GPU backend with its workspaces. Raises ``ImportError`` without triton, as on CPUs."""
    from .invariant_ops import InvariantOps
    from .prefill_attention import FlashInferPrefill, PrefillAttention, TritonPrefill
    from .triton_ops import TritonOps

    kv_dtype = torch.float8_e4m3fn if fp8_kv(config) else None
    prefill: PrefillAttention = TritonPrefill(shape, config.page_tokens, config.deterministic, kv_dtype)
    if by_flashinfer:
        prefill = FlashInferPrefill(shape, config.page_tokens, others=prefill)
    backend = InvariantOps if config.deterministic else TritonOps
    return backend(shape, tables, config.max_running, prefill, config.max_lora_rank, exchange)


def slot_tables(config: EngineConfig, model_config: ModelConfig, shape: ModelShape, parallel: Parallel) -> SlotTables:
    """Return the kernels' tables of adapters, on the device of ``shape``."""
    rows = max(config.max_running + 1, config.max_device_adapters) + 1
    pages = adapter_pages(shape, config, target_shapes(config, model_config, parallel))
    layers, experts, residency = model_config.num_layers, model_config.experts, None
    fp8_rows = shape.dtype.itemsize if fp8_adapters(config) else 0
    if experts is not None and config.resident_experts != 1.0:
        partial = min(rows, config.max_running + _PARTIAL_ROWS)
        residency = ResidencyTables(rows, partial, layers, experts.count, shape.device)
    sizes = rows, layers, pages, shape.device
    return SlotTables(*sizes, experts=experts is not None, fp8_rows=fp8_rows, residency=residency)


def target_shapes(config: EngineConfig, model_config: ModelConfig, parallel: Parallel) -> TargetShapes:
    """Return the shapes of modules and adapters on this rank. Raises ``ValueError`` if they cannot be split."""
    sharding = LoraSharding.OUTER if config.lora_sharding == "auto" else LoraSharding(config.lora_sharding)
    if sharding is LoraSharding.FULL and model_config.hidden_size % parallel.world:
        raise ValueError(
            f"--lora-sharding full splits the hidden size, but {model_config.hidden_size} cannot be split over "
            f"{parallel.world} ranks; choose --lora-sharding outer"
        )
    return TargetShapes(
        model_config.target_shapes(parallel.rank, parallel.world),
        parallel.rank,
        parallel.world,
        biased_targets(model_config),
        sharding,
        model_config.output_parts,
        model_config.interleaved,
        expert_shapes(model_config, parallel.world),
    )


def expert_shapes(model_config: ModelConfig, world: int) -> ExpertShapes | None:
    """Return the sizes of a layer's experts on one of ``world`` ranks; None for a model without."""
    if (experts := model_config.experts) is None:
        return None
    return ExpertShapes(experts.count, model_config.hidden_size, experts.inner // world)


def quantises(config: EngineConfig) -> bool:
    """Return whether to quantise plain weights to FP8. Raises ``ValueError`` for an unknown setting."""
    if config.quantization not in ("auto", "fp8"):
        raise ValueError(f"unknown quantization {config.quantization!r}; choose one of auto, fp8")
    return config.quantization == "fp8"


def fp8_kv(config: EngineConfig) -> bool:
    """Return whether keys and values are in FP8. Raises ``ValueError`` for an unknown or impossible setting."""
    if config.kv_cache_dtype not in ("auto", "fp8"):
        raise ValueError(f"unknown kv_cache_dtype {config.kv_cache_dtype!r}; choose one of auto, fp8")
    if config.kv_cache_dtype == "fp8" and config.backend == "flashinfer":
        raise ValueError("--backend flashinfer does not support keys and values in FP8; choose --backend triton")
    return config.kv_cache_dtype == "fp8"


def fp8_adapters(config: EngineConfig) -> bool:
    """Return whether factors of adapters are in FP8. Raises ``ValueError`` for an unknown setting."""
    if config.adapter_dtype not in ("auto", "fp8"):
        raise ValueError(f"unknown adapter_dtype {config.adapter_dtype!r}; choose one of auto, fp8")
    return config.adapter_dtype == "fp8"


def _backend(config: EngineConfig, device: torch.device) -> str:
    return config.backend if config.backend != "auto" else ("triton" if device.type == "cuda" else "torch")


def _check_fp8(config: EngineConfig, device: torch.device) -> None:
    """Raise ``ValueError`` where weights in FP8 cannot be used; called before anything is loaded."""
    if config.merges:
        raise ValueError(
            f"--mode {config.mode} merges adapters into the weights, but FP8 is too coarse for that; choose --mode "
            "unmerged, or weights that are not quantised"
        )
    on_gpu = _backend(config, device) != "torch" and device.type == "cuda"
    if on_gpu and torch.cuda.get_device_capability(device) < (8, 9):
        raise ValueError(
            f"{torch.cuda.get_device_name(device)} cannot multiply in FP8; choose --backend torch, which dequantises "
            "the weights, or weights that are not quantised"
        )


def _check_fp8_adapters(config: EngineConfig, device: torch.device) -> None:
    """Raise ``ValueError`` where kernels cannot read FP8; called before anything is loaded."""
    on_gpu = _backend(config, device) != "torch" and device.type == "cuda"
    if on_gpu and torch.cuda.get_device_capability(device) < (8, 9):
        raise ValueError(f"{torch.cuda.get_device_name(device)} has no FP8; leave --adapter-dtype fp8 out")


def check_experts(config: EngineConfig, model_config: ModelConfig, parallel: Parallel) -> None:
    """Raise ``ValueError`` for settings with which experts cannot be served; called before anything is loaded."""
    if uneven := uneven_blocks(model_config, parallel.world):
        raise ValueError(uneven)


def _check_deterministic(config: EngineConfig, parallel: Parallel, model: ModelConfig) -> None:
    """Raise ``ValueError`` where a row's sums would depend on other rows; called before anything is loaded."""
    problem = ""
    if config.merges:
        problem = f"--mode {config.mode} merges the adapter that most requests use: choose --mode unmerged"
    elif config.backend == "flashinfer":
        problem = "FlashInfer splits prompts by the contents of the step: choose --backend triton"
    elif (
        model.delta is not None
        and _backend(config, torch.device(config.device)) != "torch"
        and config.max_step_tokens < config.max_running + CHUNK
    ):
        problem = (
            f"beside {config.max_running} running sequences a step needs {CHUNK} tokens for a chunk of the gated delta "
            f"rule: choose --step-tokens {config.max_running + CHUNK} or more"
        )
    elif parallel.world > 2:
        problem = f"the order of sums over {parallel.world} GPUs depends on the step: use one or two"
    if problem:
        raise ValueError(f"--deterministic is not possible here: {problem}, or leave it out")
    log.info("deterministic: a request's tokens and logits do not depend on other requests")


def load_draft_head(config: EngineConfig, model: Transformer, max_context: int) -> HeadPasses:
    """Load the head that the settings choose, and let the model keep what it reads. Raises ``UnsupportedModel``."""
    slots, folder = config.drafting_sequences, config.draft_model or config.model
    shared = WholeVocabulary(config.model, model.weights) if model.parallel.world > 1 else None
    head: DraftHead
    if config.speculation == "mtp":
        head = MtpHead.load(folder, model, slots, shared, quantised=quantises(config), by_threads=config.fast_start)
    else:
        head = EagleHead.load(folder, model, slots, max_context, shared)
    keep_layer_inputs(model, head, config.most_rows)
    log.info("loaded the draft head %s, with rings of %.1f MiB", folder, head.rings.num_bytes / 2**20)
    return HeadPasses(head, config.speculation_tokens)


def keep_layer_inputs(model: Transformer, head: DraftHead, rows: int) -> None:
    """Let the model keep the hidden states that a draft head reads, of steps with up to ``rows`` rows."""
    size = model.config.hidden_size
    model.layer_inputs = LayerInputs(head.feature_layers, rows, size, model.device, model.dtype)


def check_draft_head(config: EngineConfig, model: ModelConfig) -> None:
    """Raise ``ValueError`` or ``UnsupportedModel`` where a draft head cannot be used, before anything is loaded."""
    problem = ""
    if config.speculation == "mtp":
        model.mtp()
    if config.speculation == "eagle3" and config.draft_model is None:
        problem = "--draft-model names no folder of an EAGLE-3 head"
    elif config.deterministic and _backend(config, torch.device(config.device)) == "torch":
        problem = "--deterministic with --backend torch computes each row apart: choose --speculation ngram"
    if problem:
        raise ValueError(f"--speculation {config.speculation} is not possible here: {problem}")


def adapter_pages(shape: ModelShape, config: EngineConfig, targets: TargetShapes) -> int:
    """Return the pages of the largest adapter that the engine serves: all targets at maximum rank, with epilogues."""
    geometry = shape.pool_geometry(config.page_tokens, fp8_kv(config))

    def pool_rows(target: str) -> int:
        module = targets.module(target, config.max_lora_rank)
        of_a = module.a_rows * pool_rows_per_row(module.in_features, geometry.kv_dim)
        of_b = module.b_rows * pool_rows_per_row(module.out_features, geometry.kv_dim)
        return of_a + of_b + 2 * pool_rows_per_row(shape.targets[target][1], geometry.kv_dim)

    by_group, sparse = Counter[int](), Counter[int]()
    for layer in range(shape.num_layers):
        by_group[geometry.layer_group(layer)] += sum(map(pool_rows, shape.targets_of(layer)))
        sparse[geometry.layer_group(layer)] += layer in shape.sparse_layers
    pages = -(-max(by_group.values()) // geometry.rows_per_page)
    if targets.experts is None:
        return pages
    of_experts = expert_rows(targets.experts, config.max_lora_rank, geometry)
    return pages + max(sparse.values()) * of_experts // geometry.rows_per_page


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of weights, activations and pool. Raises ``ValueError`` for an unknown name."""
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in names:
        raise ValueError(f"unknown dtype {name!r}; choose one of auto, {', '.join(names)}")
    return names[name]


def build_pool(
    config: EngineConfig, model: Transformer, max_context: int, draft_head: HeadPasses | None = None
) -> PagePool:
    """Allocate the page pool: ``pool_mb`` if set, otherwise the GPU memory that a measured step leaves free."""
    geometry, device = model.shape.pool_geometry(config.page_tokens, fp8_kv(config)), model.device
    page_bytes = geometry.page_bytes(model.dtype)
    table = ""
    if config.pool_mb or device.type == "cpu":
        available = (config.pool_mb or CPU_POOL_MB) * 2**20
    else:
        memory = _measure(config, model, geometry, draft_head)
        available, table = memory.pool, f"\n{memory.table()}"
        log.info("device memory:\n%s", memory.table())
    pages = model.parallel.smallest(max(0, available) // page_bytes, device)  # page ids are the same on all ranks
    require_one_sequence(geometry, model.dtype, pages, max_context, table)
    return PagePool(geometry, pages, model.dtype, device)


def _measure(
    config: EngineConfig, model: Transformer, geometry: PoolGeometry, draft_head: HeadPasses | None
) -> DeviceMemory:
    """Return the sum of the GPU's memory, of which the pool may take the rest: run a full-size prefill step, and
    measure what it takes.
    """
    device = model.device
    tokens = min(config.max_step_tokens, model.shape.max_context)
    scratch = PagePool(geometry, geometry.pages_for_sequence(tokens) + 1, model.dtype, device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with torch.inference_mode():
        workspace, graphs = _kernels_memory(config, model, tokens)
        model.forward(prefill_batch(tokens, geometry, device), scratch)
        if draft_head is not None:
            draft_head.head.run_largest()
    del scratch, workspace
    activations = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    parts = {
        "weights and other memory in use": total - free,
        "activations": activations,
        "sampling": sampling_bytes(config, model.config.vocab_size, model.dtype),
        "decode graphs": graphs,
        RESERVE: reserve_bytes(config, total),
    }
    return DeviceMemory(total, parts, geometry, model.dtype)


def _kernels_memory(config: EngineConfig, model: Transformer, tokens: int) -> tuple[object, int]:
    """Allocate the largest workspace of a prompt's adapters; return it with the bytes that decode graphs need."""
    if isinstance(model.ops, TorchOps):
        return None, 0
    from .graph_shapes import drafted_rows, graph_memory, graph_rows
    from .triton_ops import TritonOps

    assert isinstance(model.ops, TritonOps)
    graphs = 0
    if config.cuda_graphs:
        rows = graph_rows(config, model.config, model.shape), drafted_rows(config, model.shape)
        graphs = graph_memory(config.max_running, model.shape, config.deterministic, *rows)
    experts = expert_shapes(model.config, model.parallel.world)
    return model.ops.prompt_workspace(tokens, experts), graphs


def prefill_batch(tokens: int, geometry: PoolGeometry, device: torch.device, context: int = 0) -> StepBatch:
    """Return a batch for measuring: one base-model prompt of ``tokens`` after ``context`` tokens in pages 1, 2, …

    The pages of its state are behind these.
    """
    positions = torch.arange(context, context + tokens, device=device)
    pages = torch.arange(1, geometry.pages_for_tokens(context + tokens) + 1, device=device)
    slot_mapping = (
        pages[positions // geometry.page_tokens] * geometry.kv_rows_per_page + positions % geometry.page_tokens
    )
    states = None
    if geometry.state_pages:
        states = torch.arange(len(pages) + 1, len(pages) + 1 + geometry.state_pages, device=device)
    return StepBatch(
        token_ids=torch.zeros(tokens, dtype=torch.int64, device=device),
        positions=positions,
        slot_mapping=slot_mapping,
        num_decode=0,
        block_table=torch.zeros(0, 0, dtype=torch.int64, device=device),
        seq_lens=torch.zeros(0, dtype=torch.int64, device=device),
        prefill=[PrefillSpan(0, tokens, context, pages, states)],
        lora=[],
        logit_rows=torch.tensor([tokens - 1], device=device),
        state_table=None if states is None else states.new_zeros(0, geometry.state_pages),
    )


def _device_name(device: torch.device, ranks: int) -> str:
    name = f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "cpu"
    return name if ranks == 1 else f"{ranks} x {name}"
