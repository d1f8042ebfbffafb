"""Decode steps as CUDA graphs: one graph per batch size and launch of LoRA kernels, replayed with new contents.

A batch whose own graph is not captured runs in the nearest that covers it (`graph_set.py`).

A graph reads its inputs from fixed tensors: per token its id, position, slot in the KV cache and length,
the block table, and the tiles that say which rows use which adapter. Loading or evicting an
adapter changes the tables the tiles point into, never a graph. Steps with a prompt chunk
run without a graph, since their kernels are long enough to hide their launches; and steps in which an adapter has an
embedding or a head of its own (`model/embedding_layers.py`), which are rare.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

from lora_kernels.attention import decode_splits
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.work_items import TILE_FIELDS, write_tiles

from .adapters.device_tier import AdapterSlot
from .graph_set import GraphSet
from .memory import PagePool
from .model.batch import LoraSpan
from .model.graph_shapes import GraphShape, delta_correction_tiles, graph_shape, graph_sizes
from .model.transformer import Transformer
from .model.triton_ops import LoraPlan, TritonOps, TritonPlan, covering
from .runner import Decodes, Logits, Runner, StepMirror, lora_spans, one_token
from .scheduling.sequence import Chunk
from .step_inputs import sources


class Field(IntEnum):
    """What a graph reads of each row, one line of the input each."""

    TOKEN_ID = 0
    POSITION = 1
    SLOT_MAPPING = 2
    SEQ_LEN = 3
    SOURCE = 4  # the row of the last step's tokens that holds the token, or -1: it is TOKEN_ID


FIELDS = len(Field)
ALL_FIELDS = FIELDS + 2 * TILE_FIELDS


class GraphInputs:
    """The fixed tensors that graphs read, and the logits that they write."""

    def __init__(self, model: Transformer, pool: PagePool, largest: int, max_context: int) -> None:
        ops, device = model.ops, pool.data.device
        assert isinstance(ops, TritonOps), "only the Triton backend can be captured"
        self._pool = pool
        self.rank_classes = ops.rank_classes
        self._kv_heads = model.shape.kv_heads
        width = pool.geometry.pages_for_tokens(max_context)
        self.fields = torch.zeros(FIELDS, largest, dtype=torch.int32, device=device)
        self.tiles = torch.zeros(largest, TILE_FIELDS, dtype=torch.int32, device=device)
        self.delta_correction_tiles = torch.zeros(largest, TILE_FIELDS, dtype=torch.int32, device=device)
        self.table = torch.zeros(largest, width, dtype=torch.int32, device=device)
        self._shrunk = ops.shrink_workspace(
            LoraShape(KernelVariant.GROUPED, ops.rank_classes[-1], ops.invariant), largest
        )  # the variant of most sums
        # Of whichever graph ran last. Hundreds of graphs with logits of their own would keep gigabytes.
        self.logits = torch.empty(largest, model.vocabulary.rows, dtype=model.dtype, device=device)

    def plan(self, shape: GraphShape) -> TritonPlan:
        """The plan a graph is captured with."""
        size = shape.size
        lora = []
        if shape.lora:
            lora.append(LoraPlan(self.tiles[: shape.tiles], shape.lora, self._shrunk))
        if shape.delta_correction:
            tiles = self.delta_correction_tiles[: delta_correction_tiles(size)]
            lora.append(LoraPlan(tiles, shape.delta_correction, self._shrunk))
        return TritonPlan(
            pool=self._pool,
            positions=self.fields[Field.POSITION, :size],
            slot_mapping=self.fields[Field.SLOT_MAPPING, :size],
            num_decode=size,
            block_table=self.table[:size],
            seq_lens=self.fields[Field.SEQ_LEN, :size],
            splits=decode_splits(size, self._kv_heads),
            prefill=None,
            lora=tuple(lora),
            groups=shape.groups,
            merged=shape.merged,
            epilogues=shape.epilogues,
        )

    def token_ids(self, size: int, last_tokens: torch.Tensor) -> torch.Tensor:
        """The step's tokens: from the host, or where the last step left them."""
        ids, sources = self.fields[Field.TOKEN_ID, :size].long(), self.fields[Field.SOURCE, :size].long()
        return torch.where(sources >= 0, last_tokens[sources.clamp(min=0)], ids)

    def blank(self) -> None:
        """Nothing but padding rows. A capture runs the model once, and must not touch what the last step named."""
        for tensor in (self.fields, self.tiles, self.delta_correction_tiles, self.table):
            tensor.zero_()
        self.fields[Field.SEQ_LEN] = 1
        self.fields[Field.SOURCE] = -1


class DecodeGraph:
    """One captured decode step."""

    def __init__(self, runner: GraphRunner, shape: GraphShape) -> None:
        self.plan, size = runner.inputs.plan(shape), shape.size
        self.graph = torch.cuda.CUDAGraph()
        self._run(runner, size)  # compiles what is not compiled yet, outside the capture
        torch.cuda.synchronize()
        # Other threads may allocate page-locked memory meanwhile. What the collector of garbage would end in this one,
        # an earlier engine's graphs for one, would end the capture.
        with (
            _no_garbage_collection(),
            torch.cuda.graph(self.graph, pool=runner.memory, capture_error_mode="thread_local"),
        ):
            self.logits, self.greedy = self._run(runner, size)

    def _run(self, runner: GraphRunner, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, out = runner.inputs.token_ids(size, runner.last_tokens), runner.inputs.logits[:size]
        return runner.model.greedy(runner.model.hidden(ids, None, self.plan), out)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GraphRunner(Runner):
    """Runs decode-only steps from graphs, everything else as ``Runner`` does."""

    def __init__(
        self,
        model: Transformer,
        pool: PagePool,
        max_running: int,
        max_context: int,
        budget: float = float("inf"),
        deferred: bool = False,
        decodes: Decodes = one_token,
        mirror: StepMirror | None = None,
    ) -> None:
        """``budget``: bytes of the device that graphs may keep. ``deferred``: as in ``GraphSet``."""
        super().__init__(model, pool, max_running, decodes, mirror)
        assert isinstance(model.ops, TritonOps), "only the Triton backend can be captured"
        self._invariant = model.ops.invariant
        self.sizes = graph_sizes(max_running, self._invariant)
        self.memory = torch.cuda.graph_pool_handle()
        largest, width, device = self.sizes[-1], pool.geometry.pages_for_tokens(max_context), pool.data.device
        self.inputs = GraphInputs(model, pool, largest, max_context)
        # Rows of FIELDS values, then twice tiles, then page lists: one pinned tensor, one copy a step.
        # Two of them: while a step runs from one, the next is prepared in the other.
        self._hosts = [torch.zeros(largest * (ALL_FIELDS + width), dtype=torch.int32).pin_memory() for _ in range(2)]
        self._device = torch.zeros_like(self._hosts[0], device=device)
        self.graphs: GraphSet[DecodeGraph] = GraphSet(
            largest, self._capture, self._free_bytes, budget, deferred, self._invariant
        )

    def capture_next(self) -> bool:
        return self.graphs.capture_next()

    @property
    def failure(self) -> str:
        return self.graphs.failure

    @torch.inference_mode()
    def _capture(self, shape: GraphShape) -> DecodeGraph:
        if self.mirror is not None:
            self.mirror.capture(shape)
        with self._in_step():
            self.inputs.blank()
            return DecodeGraph(self, shape)

    def _free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self.pool.data.device)[0] if self.pool.data.is_cuda else 0

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None) -> Logits:
        if not all(map(self._fits_graph, chunks)) or len(chunks) > self.sizes[-1]:
            return super()._forward(chunks, merged)
        size = next(size for size in self.sizes if size >= len(chunks))
        spans = lora_spans(chunks, range(len(chunks) + 1), merged)
        shape = self.graphs.choose(graph_shape(size, spans, merged is not None, self._invariant), spans)
        if shape is None:
            return super()._forward(chunks, merged)
        graph = self.graphs[shape]
        pinned, greedy = self._contents(chunks, shape, spans), self._all_greedy(chunks)
        if self.mirror is not None:
            self.mirror.replay(shape, pinned.numpy(), len(chunks), spans, greedy=greedy)
        self._load(pinned, shape)
        graph.graph.replay()
        return self._logits_of(graph, len(chunks), greedy)

    def _logits_of(self, graph: DecodeGraph, rows: int, greedy: bool) -> Logits:
        """What a replay left; of several ranks all logits, unless everybody is ``greedy``."""
        values = graph.logits[:rows]
        return Logits(values if greedy else self.model.vocabulary.whole(values), graph.greedy[:rows])

    @torch.inference_mode()
    def follow_capture(self, shape: GraphShape) -> None:
        """On a rank that does not plan. What rank 0 has no memory for fails here as well, or there."""
        self.graphs.add(shape)

    @torch.inference_mode()
    def follow_replay(self, shape: GraphShape, contents: npt.NDArray[np.int32], rows: int, greedy: bool) -> None:
        """As ``follow``, for a step that runs in a graph."""
        self._hosts.reverse()
        pinned = self._hosts[0][: len(contents)]
        pinned.numpy()[:] = contents
        self._load(pinned, shape)
        self.graphs[shape].graph.replay()
        self._logits_of(self.graphs[shape], rows, greedy)
        self.receive_tokens(rows)

    def _fits_graph(self, chunk: Chunk) -> bool:
        slot = chunk.sequence.slot
        return (
            chunk.tokens == 1
            and chunk.samples
            and self._decodes(chunk)
            and (slot is None or not slot.has_embedding_layers)
        )

    def _contents(self, chunks: list[Chunk], shape: GraphShape, spans: Sequence[LoraSpan]) -> torch.Tensor:
        """All that a graph of this shape reads in this step, page-locked."""
        size, count, page_tokens = shape.size, len(chunks), self.pool.geometry.page_tokens
        width = max(len(chunk.sequence.pages) for chunk in chunks)
        self._hosts.reverse()
        pinned = self._hosts[0][: size * (ALL_FIELDS + width)]
        host = pinned.numpy()
        fields = host[: size * FIELDS].reshape(FIELDS, size)
        tiles = host[size * FIELDS : size * ALL_FIELDS].reshape(2, size, TILE_FIELDS)
        table = host[size * ALL_FIELDS :].reshape(size, width)
        host[:] = 0
        fields[Field.SEQ_LEN] = 1  # a padding row attends to the one slot of the padding page that it writes itself
        computed = np.array([chunk.sequence.num_computed for chunk in chunks])
        fields[Field.TOKEN_ID, :count] = [chunk.sequence.token_ids[-1] for chunk in chunks]
        fields[Field.POSITION, :count] = computed
        fields[Field.SEQ_LEN, :count] = computed + 1
        fields[Field.SOURCE] = -1
        fields[Field.SOURCE, :count] = sources(chunks, self._last_row)
        for row, chunk in enumerate(chunks):
            table[row, : len(chunk.sequence.pages)] = chunk.sequence.pages
        pages = table[np.arange(count), computed // page_tokens]
        fields[Field.SLOT_MAPPING, :count] = pages * self.pool.geometry.kv_rows_per_page + computed % page_tokens
        for sign, lora, out in ((1, shape.lora, tiles[0]), (-1, shape.delta_correction, tiles[1])):
            if lora:
                write_tiles(covering([span for span in spans if span.sign == sign], size), lora.variant, out)
        return pinned

    def _load(self, pinned: torch.Tensor, shape: GraphShape) -> None:
        """Write the step's contents where the graphs read them: one copy from the host, two on the device."""
        size, count = shape.size, len(pinned)
        width = count // size - ALL_FIELDS
        self._device[:count].copy_(pinned, non_blocking=True)
        device = self._device[:count]
        self.inputs.fields[:, :size].copy_(device[: size * FIELDS].view(FIELDS, size))
        both = device[size * FIELDS : size * ALL_FIELDS].view(2, size, TILE_FIELDS)
        self.inputs.tiles[:size].copy_(both[0])
        if shape.delta_correction:
            self.inputs.delta_correction_tiles[:size].copy_(both[1])
        self.inputs.table[:size, :width].copy_(device[size * ALL_FIELDS :].view(size, width))
