"""The memory that a model needs of a card, computed from its configuration before there is a card or a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lora_engine.config import EngineConfig
from lora_kernels.tables import SlotTables

from .config import ModelConfig, read_json_object
from .device_memory import RESERVE, DeviceMemory, adapter_pages, reserve_bytes, sampling_bytes, tensor_bytes
from .draft_head import Rings
from .draft_inputs import draft_bytes
from .eagle_head import EagleConfig, eagle_bytes
from .loading import (
    DRAFT_HEADS,
    check_draft_head,
    check_experts,
    choose_dtype,
    expert_shapes,
    fp8_adapters,
    fp8_kv,
    gpu_ops,
    quantises,
    slot_tables,
    target_shapes,
)
from .lora_exchange import LoraExchange
from .parallel import Parallel
from .rope import RotaryPairs, rotary_table
from .shape import ModelShape
from .weight_loading import load_mtp_weights, load_weights, weight_bytes

# Bytes that CUDA, cuBLAS and the compiled kernels take on a card, and NCCL's buffers beside them. Assumed, generously:
# they depend on versions and cards, and the log of a start has what they really take with the weights.
_CONTEXT_BYTES, _NCCL_BYTES = 700 << 20, 1 << 30
# Bytes of decode graphs and of workspaces that are assumed where triton, whose kernels determine them, is missing.
_GRAPHS_WITHOUT_TRITON, _WORKSPACES_WITHOUT_TRITON = 1 << 30, 1 << 28
# Activations of a step that are alive at the same time, as multiples of each width: the residual stream with its norms
# and the output of a layer; queries, keys and values with the outputs of attention; gate, up and their product.
_HIDDENS, _HEADS, _INNERS = 4, 2, 3
# Tokens of a chunk of the gated delta rule, each of which has a state in float32.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """The memory of each of ``ranks`` equal cards for a model, and the largest context of the engine's requests."""

    config: EngineConfig
    model: ModelConfig
    shape: ModelShape
    memory: DeviceMemory
    max_context: int

    @property
    def ranks(self) -> int:
        return self.config.tensor_parallel

    def adapter_pages(self, rank: int, names: Sequence[str]) -> int:
        """Return the pages of an adapter on the targets ``names``, or "experts".

        Raises ``ValueError`` for other names.
        """
        known = [*self.shape.targets, *(["experts"] if self.model.experts else [])]
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"this model has no target {', '.join(unknown)}; choose of {', '.join(known)}")
        targets = target_shapes(self.config, self.model, Parallel(0, self.ranks))
        fp8_rows = self.shape.dtype.itemsize if fp8_adapters(self.config) else 0
        return adapter_pages(self.shape, self.memory.geometry, targets, rank, names, fp8_rows)


def plan(config: EngineConfig, model: ModelConfig, card: int, weights: int = 0, head: int = 0) -> Plan:
    """Return the memory of each card of ``card`` bytes; ``weights`` are those of a checkpoint, 0: computed.

    ``head`` are those of the model's own draft head in a checkpoint. Raises ``ValueError`` for a model that cannot be
    split, or settings that exclude each other, and ``UnsupportedModel`` for a draft head that is not supported.
    """
    dtype, parallel = choose_dtype(config.dtype, torch.device("cuda")), Parallel(0, config.tensor_parallel)
    quantised = quantises(config) or model.quantization is not None
    if model.experts is not None:
        check_experts(config, model, parallel)
    max_context = min(config.max_context or model.max_position, model.max_position)
    shape = ModelShape.of(model, parallel, max_context, torch.device("meta"), dtype)
    geometry = shape.pool_geometry(config.page_tokens, fp8_kv(config))
    weights = weights or weight_bytes(model, dtype, parallel, quantised)
    tables = slot_tables(config, model, shape, parallel)
    parts = {"weights": weights}
    if config.merges:
        of_tokens = model.vocab_size * model.hidden_size // config.tensor_parallel * dtype.itemsize
        parts["merged weights"] = weights - of_tokens * (1 if model.tie_embeddings else 2)
    if config.speculation in DRAFT_HEADS:
        check_draft_head(config, model)
        parts["draft head"] = _draft_head(config, model, dtype, quantised, head, max_context)
    parts |= {
        "CUDA and libraries (assumed)": _CONTEXT_BYTES + (_NCCL_BYTES if config.tensor_parallel > 1 else 0),
        "tables of adapters": tensor_bytes(tables),
        **({"inputs of drafts in recurrent layers": kept} if (kept := draft_bytes(config, shape)) else {}),
        **_workspaces(config, model, shape, tables),
        "activations (estimated)": _activations(config, model, shape),
        "sampling": sampling_bytes(config, model.vocab_size, dtype),
        "decode graphs": _graphs(config, model, shape),
        RESERVE: reserve_bytes(config, card),
    }
    return Plan(config, model, shape, DeviceMemory(card, parts, geometry, dtype), max_context)


def plan_for(config: EngineConfig, card: int) -> Plan:
    """Return the plan of ``config.model``: a folder with a checkpoint or with ``config.json`` alone, or that file.

    Raises ``UnsupportedModel`` and ``ValueError``.
    """
    path = config.model / "config.json" if config.model.is_dir() else config.model
    model = ModelConfig.from_dict(read_json_object(path))
    weights = head = 0
    if any(path.parent.glob("*.safetensors")):
        dtype, parallel = choose_dtype(config.dtype, torch.device("cuda")), Parallel(0, config.tensor_parallel)
        quantised, meta = quantises(config), torch.device("meta")
        weights = load_weights(path.parent, model, meta, dtype, parallel, quantised).num_bytes()
        if config.speculation == "mtp":
            head = load_mtp_weights(path.parent, model, meta, dtype, quantised).num_bytes()
    return plan(config, model, card, weights, head)


def _draft_head(
    config: EngineConfig, model: ModelConfig, dtype: torch.dtype, quantised: bool, weights: int, max_context: int
) -> int:
    """Return the bytes of a draft head, of its rings and of the hidden states that it reads, on the one card with them.

    ``weights`` are those of a layer in a checkpoint.
    """
    if config.speculation == "mtp":
        layer = model.mtp()
        weights, read = weights or weight_bytes(layer, dtype, Parallel(), quantised), 1
    else:
        assert config.draft_model is not None, "it was checked before"
        eagle = EagleConfig.load(config.draft_model, model)
        layer, read = eagle.layer, len(eagle.feature_layers)
        pairs = RotaryPairs(layer.head_dim, layer.head_dim)
        rotary = rotary_table(layer.ropes[0], pairs, max_context + 1, torch.device("meta"), dtype)
        weights = eagle_bytes(config.draft_model, dtype) + tensor_bytes(rotary)
    if config.tensor_parallel > 1:  # the card has only a part of the embedding and the head, and the head shares them
        matrices = 1 if model.tie_embeddings or config.speculation != "mtp" else 2
        weights += matrices * model.vocab_size * model.hidden_size * dtype.itemsize
    sizes = config.drafting_sequences, layer.num_kv_heads, layer.head_dim
    states = config.most_rows * read * model.hidden_size * dtype.itemsize
    return weights + states + Rings(*sizes, torch.device("meta"), dtype).num_bytes


def _activations(config: EngineConfig, model: ModelConfig, shape: ModelShape) -> int:
    """Return about how many bytes the largest step takes beside the pool; the engine measures them."""
    tokens, ranks = min(config.max_step_tokens, shape.max_context), config.tensor_parallel
    heads = (shape.heads * (2 if shape.gated_queries else 1) + 2 * shape.kv_heads) * shape.head_dim
    inner = _INNERS * model.intermediate_size // ranks
    if (experts := model.experts) is not None:
        inner = experts.per_token * (_INNERS * experts.inner // ranks + model.hidden_size)
        inner += _INNERS * experts.shared // ranks
    widths, floats = _HIDDENS * model.hidden_size + max(_HEADS * heads, inner), 0
    if (delta := shape.delta) is not None:
        widths += _HEADS * (delta.channels + delta.values)
        floats = -(-tokens // _CHUNK) * delta.heads * delta.key_dim * delta.value_dim
    return tokens * widths * shape.dtype.itemsize + floats * 4


def _workspaces(config: EngineConfig, model: ModelConfig, shape: ModelShape, tables: SlotTables) -> dict[str, int]:
    """Return what the kernels' workspaces take, and what adapters take in the largest step, as the engine does."""
    names = "workspaces", "activations of adapters"
    parallel = Parallel(0, config.tensor_parallel)
    exchange = LoraExchange(parallel) if target_shapes(config, model, parallel).shards > 1 else None
    try:
        ops = gpu_ops(config, shape, tables, exchange)
    except ImportError:
        logging.getLogger(__name__).warning("triton is not installed, so the memory of workspaces is assumed")
        return dict.fromkeys(names, _WORKSPACES_WITHOUT_TRITON)
    tokens = min(config.max_step_tokens, shape.max_context)
    of_adapters = ops.prompt_workspace(tokens, expert_shapes(model, config.tensor_parallel))
    return dict(zip(names, (tensor_bytes(ops, without=[tables]), tensor_bytes(of_adapters)), strict=True))


def _graphs(config: EngineConfig, model: ModelConfig, shape: ModelShape) -> int:
    if not config.cuda_graphs:
        return 0
    try:
        from .graph_shapes import drafted_rows, graph_memory, graph_rows
    except ImportError:
        logging.getLogger(__name__).warning("triton is not installed, so the memory of decode graphs is assumed")
        return _GRAPHS_WITHOUT_TRITON
    rows = graph_rows(config, model, shape), drafted_rows(config, shape)
    return graph_memory(config.max_running, shape, config.deterministic, *rows)
