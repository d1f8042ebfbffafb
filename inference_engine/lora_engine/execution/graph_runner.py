"""The execution of steps by CUDA graphs: one graph per batch size and LoRA launch, replayed with new contents.

A batch whose exact graph is not captured runs in the nearest graph that covers it (`graph_set.py`).

A graph reads its inputs from fixed tensors: per token its id, position, KV slot and length, the block table, and the
tiles that map rows to adapters. Loading or evicting an adapter changes the tables that the tiles refer to, never a
graph. Mixed steps, with few prompt tokens, have separate graphs, which also read the prompts' pages and tiles. Some
steps run without a graph: steps with many tokens, whose kernels are long enough to hide their launches, and rare steps,
in which an adapter changes the embedding or the head (`model/embedding_spans.py`) or prompts are unusual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.execution.graph_set import GraphSet, free_and_cached
from lora_engine.execution.prompt_reads import PromptReads
from lora_engine.execution.runner import Decodes, Logits, Runner, StepMirror, lora_spans, one_token
from lora_engine.execution.step_inputs import StepInputs, sources
from lora_engine.memory import PagePool
from lora_engine.memory.pinned import pinned
from lora_engine.model.batch import LoraSpan
from lora_engine.model.gated_delta_triton import SpanTables, most_chunks, span_rows
from lora_engine.model.graph_capture import capture
from lora_engine.model.graph_shapes import (
    MAX_PROMPTS,
    GraphShape,
    delta_correction_tiles,
    drafted_graphs,
    fitting_mixed_graphs,
    graph_shape,
    graph_sizes,
    mixed_graphs,
)
from lora_engine.model.prefill_attention import TritonPrefill
from lora_engine.model.transformer import Transformer
from lora_engine.model.triton_ops import LoraPlan, TritonOps, TritonPlan, covering, split_spans
from lora_engine.scheduling.sequence import Chunk
from lora_kernels.attention import BLOCK_M, PREFILL_TILE_FIELDS, decode_splits, most_key_splits, tokens_a_tile
from lora_kernels.gated_delta import SPAN_FIELDS
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.short_convolution import CHUNK_FIELDS
from lora_kernels.state_pages import RunField
from lora_kernels.work_items import TILE_FIELDS, write_tiles


class Field(IntEnum):
    """The fields that a graph reads for each row; each is a line of the input tensor."""

    TOKEN_ID = 0
    POSITION = 1
    SLOT_MAPPING = 2
    SEQ_LEN = 3
    SOURCE = 4  # the row of the last step's tokens that holds the token, or -1: it is TOKEN_ID
    ADAPTER = 5  # the adapter's slot in the kernels' tables, 0: none; only models with experts read it


FIELDS = len(Field)
# Tokens of a sequence from which on the number of splits of its keys affects the time of a decode.
_LONG_DECODE = 2048


@dataclass(frozen=True, slots=True)
class _Parts:
    """The layout of a step's contents for a graph: the slice of each part in one tensor on the host."""

    fields: slice
    tiles: slice
    second_tiles: slice  # second LoRA launch: delta correction, or a mixed step's decode rows
    prompt_tiles: slice  # attention tiles, in mixed steps
    logit_rows: slice  # only in mixed steps
    spans: slice  # of prompts for recurrent layers, in mixed steps of models that have some; so are the next two
    chunks: slice
    first_chunks: slice
    runs: slice  # of decode rows, where recurrent layers may have drafts
    tables: slice
    rows: int  # rows of the block table, prompts' last

    @classmethod
    def of(cls, shape: GraphShape, prompt_tiles: int, chunks: int, *, runs: bool) -> _Parts:
        """Return the layout for a shape; ``prompt_tiles`` and ``chunks`` (0: no recurrent layers) are the maxima of
        attention tiles and of recurrent layers' chunks in a mixed step. ``runs``: recurrent layers read a table of
        runs.
        """
        size, prompts = shape.size, shape.decodes is not None
        lengths = (
            FIELDS * size,
            TILE_FIELDS * (shape.tiles if prompts else size),
            TILE_FIELDS * (size if shape.decodes is None else shape.decodes),
            PREFILL_TILE_FIELDS * prompt_tiles if prompts else 0,
            shape.sampling_rows if prompts else 0,
            SPAN_FIELDS * shape.prompts if prompts and chunks else 0,
            CHUNK_FIELDS * chunks if prompts else 0,
            shape.prompts if prompts and chunks else 0,
            len(RunField) * (size if shape.decodes is None else shape.decodes) if runs else 0,
        )
        tables = size if shape.decodes is None else shape.decodes + shape.prompts
        fields, tiles, second, of_prompts, rows, spans, of_spans, first_chunks, of_runs = (
            slice(*ends) for ends in pairwise([0, *accumulate(lengths)])
        )
        of_tables = slice(of_runs.stop, None)
        return cls(fields, tiles, second, of_prompts, rows, spans, of_spans, first_chunks, of_runs, of_tables, tables)

    def count(self, width: int) -> int:
        """Return the number of values, with block tables of ``width`` pages."""
        return int(self.tables.start) + self.rows * width


class GraphInputs:
    """The fixed tensors that graphs read, and the logits that they write to."""

    def __init__(self, model: Transformer, pool: PagePool, largest: int, max_context: int, most_rows: int = 0) -> None:
        """Allocate the tensors for decode graphs of up to ``largest`` rows and mixed graphs of up to ``most_rows``."""
        ops, device = model.ops, pool.data.device
        assert isinstance(ops, TritonOps), "only the Triton backend can be captured"
        self._pool = pool
        self.rank_classes = ops.rank_classes
        self._heads, self._kv_heads = model.shape.heads, model.shape.kv_heads
        self._prefill = ops.prefill if isinstance(ops.prefill, TritonPrefill) else None
        self._states = pool.geometry.state_pages
        can_mix = self._prefill and not ops.invariant and ops.exchange is None
        self.mixed = mixed_graphs(largest, most_rows) if can_mix else []
        # The pages of a sequence's state come first in its row of the table.
        self.width = pool.geometry.pages_for_sequence(max_context)
        widest = max([GraphShape(largest), *self.mixed], key=lambda shape: shape.size)
        rows = widest.size
        tiles = max([largest, *(shape.tiles for shape in self.mixed)])

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self.fields = zeros(FIELDS, rows)
        self.tiles = zeros(tiles, TILE_FIELDS)
        self.second_tiles = zeros(largest, TILE_FIELDS)
        self.table = zeros(largest + MAX_PROMPTS, self.width)
        self.prompt_tiles = zeros(max(map(self._most_prompt_tiles, [widest, *self.mixed])), PREFILL_TILE_FIELDS)
        self.logit_rows = zeros(largest + MAX_PROMPTS)
        self.spans = zeros(MAX_PROMPTS, SPAN_FIELDS)
        self.chunks = zeros(self._most_chunks(widest), CHUNK_FIELDS)
        self.first_chunks = zeros(MAX_PROMPTS)
        self._has_drafts = ops.draft_inputs is not None
        self.runs = zeros(len(RunField), largest)
        # Buffers for the variants with the most partial sums.
        grouped = LoraShape(KernelVariant.GROUPED, ops.rank_classes[-1], ops.invariant)
        self._shrunk = {False: ops.shrink_workspace(grouped, largest)}
        if self.mixed:
            prefill = next(shape.lora for shape in self.mixed if shape.lora)
            self._shrunk[True] = ops.shrink_workspace(prefill, rows)
        # All graphs share one buffer: separate logits of hundreds of graphs would take gigabytes.
        self.logits = torch.empty(largest + MAX_PROMPTS, model.vocabulary.rows, dtype=model.dtype, device=device)

    def plan(self, shape: GraphShape) -> TritonPlan:
        """Build the plan with which a graph is captured."""
        size, is_mixed = shape.size, shape.decodes is not None
        decodes = size if shape.decodes is None else shape.decodes
        lora = []
        if shape.lora:
            lora.append(LoraPlan(self.tiles[: shape.tiles], shape.lora, self._shrunk[is_mixed]))
        if shape.delta_correction:
            tiles = self.second_tiles[: delta_correction_tiles(size)]
            lora.append(LoraPlan(tiles, shape.delta_correction, self._shrunk[False]))
        if shape.decode_lora:
            lora.append(LoraPlan(self.second_tiles[:decodes], shape.decode_lora, self._shrunk[False], decodes))
        prefill = recurrent_prompts = None
        if is_mixed and self._prefill:
            tables = self.table[decodes : decodes + shape.prompts]
            tiles = self.prompt_tiles[: self._most_prompt_tiles(shape)]
            block_m = self._prefill.block_m(size)
            prefill = self._prefill.over(tables[:, self._states :], tiles, block_m, split_keys=True)
            if self._states:
                chunks, count = self.chunks[: self._most_chunks(shape)], shape.prompts
                recurrent_prompts = SpanTables(
                    self.spans[:count], chunks, self.first_chunks[:count], tables[:, : self._states]
                )
        return TritonPlan(
            pool=self._pool,
            positions=self.fields[Field.POSITION, :size],
            slot_mapping=self.fields[Field.SLOT_MAPPING, :size],
            num_decode=decodes,
            block_table=self.table[:decodes, self._states :],
            seq_lens=self.fields[Field.SEQ_LEN, :decodes],
            splits=decode_splits(decodes, self._kv_heads),
            prefill=prefill,
            lora=tuple(lora),
            groups=shape.groups,
            merged=shape.merged,
            epilogues=shape.epilogues,
            padded=is_mixed,
            state_table=self.table[:decodes, : self._states] if self._states else None,
            recurrent_prompts=recurrent_prompts,
            decode_runs=self.runs[:, :decodes] if self.reads_runs(shape) else None,
            adapters=self.fields[Field.ADAPTER, :size],
        )

    def run(
        self, model: Transformer, shape: GraphShape, last_tokens: torch.Tensor, layers: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the model (see ``Transformer.run``) and compute ``Transformer.greedy`` of the sampling rows."""
        rows, out = None, self.logits[: shape.sampling_rows]
        if shape.decodes is not None:
            rows = self.logit_rows[: shape.sampling_rows].long()
        return model.greedy(model.hidden(self.token_ids(shape.size, last_tokens), rows, self.plan(shape), layers), out)

    def parts(self, shape: GraphShape) -> _Parts:
        chunks, runs = self._most_chunks(shape), self.reads_runs(shape)
        return _Parts.of(shape, self._most_prompt_tiles(shape), chunks, runs=runs)

    def reads_runs(self, shape: GraphShape) -> bool:
        """Return whether recurrent layers read a table of runs in this graph: also beside all prompts, whose steps take
        much longer.
        """
        return shape.drafted or (self._has_drafts and shape.decodes is not None and shape.decodes > 0)

    def _most_chunks(self, shape: GraphShape) -> int:
        """Return the maximum number of recurrent layers' chunks of prompts in a mixed step; 0 without such layers."""
        return most_chunks(shape.size, shape.prompts) if self._states else 0

    def _most_prompt_tiles(self, shape: GraphShape) -> int:
        """Return the maximum number of attention tiles of prompts in a mixed step, splits of keys included."""
        block_m = self._prefill.block_m(shape.size) if self._prefill else BLOCK_M
        tokens = tokens_a_tile(self._heads, self._kv_heads, block_m)
        return shape.size // tokens + shape.prompts + most_key_splits(self._kv_heads, block_m)

    def attention_tiles(self, spans: Sequence[tuple[int, int, int, int]], shape: GraphShape) -> npt.NDArray[np.int32]:
        """Return the attention tiles of a mixed step's prompts, flattened."""
        assert self._prefill is not None, "there are no mixed graphs"
        return self._prefill.tiles(spans, self._prefill.block_m(shape.size)).numpy().ravel()

    def load(self, contents: torch.Tensor, shape: GraphShape) -> None:
        """Copy a step's contents, which are on the device, to the tensors that the graph reads."""
        parts, size = self.parts(shape), shape.size
        self.fields[:, :size].copy_(contents[parts.fields].view(FIELDS, size))
        tiles = [(parts.tiles, self.tiles)]
        if shape.delta_correction or shape.decode_lora:
            tiles.append((parts.second_tiles, self.second_tiles))
        if shape.decodes is not None:
            tiles.append((parts.prompt_tiles, self.prompt_tiles))
        for part, tensor in tiles:
            values = contents[part].view(-1, tensor.shape[1])
            tensor[: len(values)].copy_(values)
        if shape.decodes is not None:
            self.logit_rows[: shape.sampling_rows].copy_(contents[parts.logit_rows])
            if self._states:
                self.spans[: shape.prompts].copy_(contents[parts.spans].view(-1, SPAN_FIELDS))
                self.chunks[: self._most_chunks(shape)].copy_(contents[parts.chunks].view(-1, CHUNK_FIELDS))
                self.first_chunks[: shape.prompts].copy_(contents[parts.first_chunks])
        if self.reads_runs(shape):
            runs = contents[parts.runs].view(len(RunField), -1)
            self.runs[:, : runs.shape[1]].copy_(runs)
        tables = contents[parts.tables].view(parts.rows, -1)
        self.table[: parts.rows, : tables.shape[1]].copy_(tables)

    def token_ids(self, size: int, last_tokens: torch.Tensor) -> torch.Tensor:
        """Return the step's tokens: from the host's contents, or from the last step's on the device."""
        ids, sources = self.fields[Field.TOKEN_ID, :size].long(), self.fields[Field.SOURCE, :size].long()
        return torch.where(sources >= 0, last_tokens[sources.clamp(min=0)], ids)

    def blank(self) -> None:
        """Set all rows to padding: a capture runs the model once, and must not write to the last step's slots."""
        for tensor in (
            self.fields, self.tiles, self.second_tiles, self.table, self.prompt_tiles, self.logit_rows, self.spans,
            self.chunks, self.first_chunks, self.runs,
        ):  # fmt: skip
            tensor.zero_()
        self.fields[Field.SEQ_LEN] = 1
        self.fields[Field.SOURCE] = -1
        self.runs[RunField.ROWS] = 1


class StepGraph:
    """A captured graph of a step."""

    def __init__(self, runner: GraphRunner, shape: GraphShape) -> None:
        def run() -> tuple[torch.Tensor, torch.Tensor]:
            return runner.inputs.run(runner.model, shape, runner.last_tokens)

        self.graph, (self.logits, self.greedy) = capture(run, runner.memory)


class GraphRunner(Runner):
    """A runner that replays graphs for decode steps and steps with few prompt tokens, and runs others directly."""

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
        most_rows: int = 0,
        drafted_rows: int = 0,
    ) -> None:
        """Create a runner; ``budget`` is the device memory in bytes for graphs, for ``deferred`` see ``GraphSet``.

        ``most_rows``: rows of the largest graph of mixed steps (``mixed_graphs``); ``drafted_rows``: of decode steps
        with drafts on recurrent layers (``drafted_graphs``).
        """
        super().__init__(model, pool, max_running, decodes, mirror)
        assert isinstance(model.ops, TritonOps), "only the Triton backend can be captured"
        self._invariant = model.ops.invariant
        self.sizes = graph_sizes(max_running, self._invariant)
        self.memory = torch.cuda.graph_pool_handle()
        largest, device = self.sizes[-1], pool.data.device
        self.inputs = GraphInputs(model, pool, largest, max_context, most_rows)
        shapes = [GraphShape(largest), *self.inputs.mixed]
        most = max(self.inputs.parts(shape).count(self.inputs.width) for shape in shapes)
        # A pinned tensor has all contents of a step, for a single copy.
        # There are two: while a step reads one, the next step is prepared in the other.
        self._hosts = [pinned(torch.zeros(most, dtype=torch.int32), device) for _ in range(2)]
        self._device = torch.zeros_like(self._hosts[0], device=device)
        self.graphs: GraphSet[StepGraph] = GraphSet(
            largest, self._capture, self._free_bytes, budget, deferred, self._invariant, self.inputs.mixed,
            drafted_graphs(largest, drafted_rows, self._invariant),
        )  # fmt: skip

    def capture_next(self) -> bool:
        return self.graphs.capture_next()

    @property
    def failure(self) -> str:
        return self.graphs.failure

    @torch.inference_mode()
    def _capture(self, shape: GraphShape) -> StepGraph:
        if self.mirror is not None:
            self.mirror.capture(shape)
        with self._in_step():
            self.inputs.blank()
            return StepGraph(self, shape)

    def _free_bytes(self) -> int:
        if not self.pool.data.is_cuda:
            return 0
        device = self.pool.data.device
        free, _ = torch.cuda.mem_get_info(device)
        return free_and_cached(free, device.index or 0, torch.cuda.memory_snapshot())

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None, reads: PromptReads | None) -> Logits:
        """Run the step in a graph, if there is one for it: none reads hidden states of prompts."""
        step = None
        if reads is None and all(map(self._fits_decode, chunks)):
            step = self._decode_step(chunks, merged)
        elif reads is None and merged is None and all(map(self._fits_mixed, chunks)):
            step = self._mixed_step(chunks)
        if step is None:
            return super()._forward(chunks, merged, reads)
        graph, rows = self.graphs[step.shape], sum(chunk.num_sampled for chunk in chunks)
        greedy = self._all_greedy(chunks)
        if self.mirror is not None:
            self.mirror.replay(step.shape, step.contents.numpy(), rows, step.spans, greedy=greedy)
        self._load(step.contents, step.shape)
        graph.graph.replay()
        return self._logits_of(graph, rows, greedy)

    def _logits_of(self, graph: StepGraph, rows: int, greedy: bool) -> Logits:
        """Return the logits of a replay; with several ranks they are gathered unless all rows are ``greedy``."""
        values = graph.logits[:rows]
        return Logits(values if greedy or not rows else self.model.vocabulary.whole(values), graph.greedy[:rows])

    def _decode_step(self, chunks: list[Chunk], merged: AdapterSlot | None) -> _GraphStep | None:
        rows = sum(chunk.tokens for chunk in chunks)
        if rows > self.sizes[-1]:
            return None
        size = next(size for size in self.sizes if size >= rows)
        has_drafts = rows > len(chunks)
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks]) if has_drafts else range(len(chunks) + 1)
        spans = lora_spans(chunks, starts, merged)
        has_states = self.pool.geometry.state_pages > 0
        drafted = has_states and (has_drafts or any(chunk.sequence.replays for chunk in chunks))
        wanted = graph_shape(size, spans, merged is not None, self._invariant, drafted)
        shape = self.graphs.choose(wanted, spans)
        if shape is None:
            return None
        contents = self._drafted_contents if has_drafts or drafted else self._contents
        return _GraphStep(shape, spans, contents(chunks, shape, spans))

    def _mixed_step(self, chunks: list[Chunk]) -> _GraphStep | None:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks])
        decoding = [chunk for chunk in chunks if self._decodes(chunk)]
        decodes, tokens = int(starts[len(decoding)]), int(starts[-1])
        spans = lora_spans(chunks, starts, None)
        shapes = fitting_mixed_graphs(self.inputs.mixed, decodes, tokens, spans, len(chunks) - len(decoding))
        longest = max((chunk.sequence.num_computed for chunk in decoding), default=0)
        if longest > _LONG_DECODE:  # a graph for more rows splits a sequence's keys into fewer parts
            splits = decode_splits(decodes, self.model.shape.kv_heads)
            shapes = [s for s in shapes if decode_splits(s.decodes or 0, self.model.shape.kv_heads) == splits]
        shape = self.graphs.choose_mixed(shapes)
        return None if shape is None else _GraphStep(shape, spans, self._mixed_contents(chunks, decodes, shape, spans))

    @torch.inference_mode()
    def follow_capture(self, shape: GraphShape) -> None:
        """Capture rank 0's graph on a follower. Raises if there is no memory, on this rank or on rank 0."""
        self.graphs.add(shape)

    @torch.inference_mode()
    def follow_replay(self, shape: GraphShape, contents: npt.NDArray[np.int32], rows: int, greedy: bool) -> None:
        """Run rank 0's step on a follower as ``follow`` does, in a graph."""
        self._hosts.reverse()
        host = self._hosts[0][: len(contents)]
        host.numpy()[:] = contents
        self._load(host, shape)
        self.graphs[shape].graph.replay()
        self._logits_of(self.graphs[shape], rows, greedy)
        self.receive_tokens(rows)

    def _fits_decode(self, chunk: Chunk) -> bool:
        slot = chunk.sequence.slot
        return (
            chunk.known == 1
            and chunk.samples
            and self._decodes(chunk)
            and (slot is None or not slot.has_embedding_layers)
        )

    def _fits_mixed(self, chunk: Chunk) -> bool:
        slot = chunk.sequence.slot
        if slot is not None and (slot.has_embedding_layers or slot.has_epilogues):
            return False
        return self._fits_decode(chunk) or not (self._decodes(chunk) or chunk.sequence.pending)

    def _contents_of(self, shape: GraphShape, width: int) -> tuple[torch.Tensor, _Parts]:
        """Return the page-locked buffer for the contents of the next step, with all rows set to padding."""
        self._hosts.reverse()
        parts = self.inputs.parts(shape)
        contents = self._hosts[0][: parts.count(width)]
        host = contents.numpy()
        host[:] = 0
        fields = host[parts.fields].reshape(FIELDS, shape.size)
        fields[Field.SEQ_LEN] = 1  # a padding row attends only to the slot of the padding page that it writes
        fields[Field.SOURCE] = -1
        if self.inputs.reads_runs(shape):  # a padding row is a run, so that its numbers are finite
            host[parts.runs].reshape(len(RunField), -1)[RunField.ROWS] = 1
        return contents, parts

    def _inputs(self, chunks: list[Chunk], *, merged: bool) -> StepInputs:
        place = self._drafts.give_rows
        geometry = self.pool.geometry
        return StepInputs.of(chunks, geometry, self._decodes, self._last_row, merged=merged, place_drafts=place)

    def _mixed_contents(
        self, chunks: list[Chunk], decodes: int, shape: GraphShape, spans: Sequence[LoraSpan]
    ) -> torch.Tensor:
        """Return the contents of a mixed step for a graph of this shape, page-locked."""
        inputs = self._inputs(chunks, merged=False)
        states = self.pool.geometry.state_pages
        contents, parts = self._contents_of(shape, states + max(len(chunk.sequence.pages) for chunk in chunks))
        host, tokens = contents.numpy(), len(inputs.token_ids)
        fields = host[parts.fields].reshape(FIELDS, shape.size)
        fields[Field.TOKEN_ID, :tokens] = inputs.token_ids
        fields[Field.POSITION, :tokens] = inputs.positions
        fields[Field.SLOT_MAPPING, :tokens] = inputs.slot_mapping
        fields[Field.SEQ_LEN, :decodes] = inputs.positions[:decodes] + 1
        fields[Field.SOURCE, :decodes] = inputs.sources[:decodes]
        if self.model.shape.experts is not None:
            _write_adapters(spans, fields)
        tables = host[parts.tables].reshape(parts.rows, -1)
        tables[:decodes, states : states + inputs.block_table.shape[1]] = inputs.block_table
        if inputs.state_table is not None:
            tables[:decodes, :states] = inputs.state_table
        self._write_runs(inputs, host, parts)
        queries = []
        for number, prompt in enumerate(inputs.prefill):
            row = tables[(shape.decodes or 0) + number]
            row[states : states + len(prompt.pages)] = prompt.pages
            if prompt.state_pages is not None:
                row[:states] = prompt.state_pages
            queries.append((number, prompt.start, prompt.stop - prompt.start, prompt.context))
        if states:
            of_spans = span_rows([(prompt.start, prompt.stop, prompt.context) for prompt in inputs.prefill])
            for part, rows in zip((parts.spans, parts.chunks, parts.first_chunks), of_spans, strict=True):
                host[part][: rows.numel()] = rows.numpy().ravel()
        of_attention = self.inputs.attention_tiles(queries, shape)
        host[parts.prompt_tiles][: len(of_attention)] = of_attention
        host[parts.logit_rows][: len(inputs.logit_rows)] = inputs.logit_rows
        of_decodes, of_prompts = split_spans(covering(spans, shape.size), decodes)
        if shape.lora:
            write_tiles(of_prompts, shape.lora.variant, host[parts.tiles].reshape(-1, TILE_FIELDS))
        if shape.decode_lora:
            write_tiles(of_decodes, shape.decode_lora.variant, host[parts.second_tiles].reshape(-1, TILE_FIELDS))
        return contents

    def _contents(self, chunks: list[Chunk], shape: GraphShape, spans: Sequence[LoraSpan]) -> torch.Tensor:
        """Return the contents of a decode step for a graph of this shape, page-locked."""
        size, count, page_tokens = shape.size, len(chunks), self.pool.geometry.page_tokens
        states = self.pool.geometry.state_pages
        contents, parts = self._contents_of(shape, states + max(len(chunk.sequence.pages) for chunk in chunks))
        host = contents.numpy()
        fields = host[parts.fields].reshape(FIELDS, size)
        table = host[parts.tables].reshape(size, -1)
        computed = np.array([chunk.sequence.num_computed for chunk in chunks])
        fields[Field.TOKEN_ID, :count] = [chunk.sequence.token_ids[-1] for chunk in chunks]
        fields[Field.POSITION, :count] = computed
        fields[Field.SEQ_LEN, :count] = computed + 1
        fields[Field.SOURCE, :count] = sources(chunks, self._last_row)
        if self.model.shape.experts is not None:
            _write_adapters(spans, fields)
        for row, chunk in enumerate(chunks):
            table[row, :states] = chunk.sequence.state_pages
            table[row, states : states + len(chunk.sequence.pages)] = chunk.sequence.pages
        pages = table[np.arange(count), states + computed // page_tokens]
        fields[Field.SLOT_MAPPING, :count] = pages * self.pool.geometry.kv_rows_per_page + computed % page_tokens
        self._write_decode_tiles(host, parts, shape, spans)
        return contents

    def _drafted_contents(self, chunks: list[Chunk], shape: GraphShape, spans: Sequence[LoraSpan]) -> torch.Tensor:
        """Return the contents of a decode step in which sequences have several rows, or had some in the last one."""
        inputs = self._inputs(chunks, merged=shape.merged)
        states, (rows, width) = self.pool.geometry.state_pages, inputs.block_table.shape
        contents, parts = self._contents_of(shape, states + width)
        host = contents.numpy()
        fields = host[parts.fields].reshape(FIELDS, shape.size)
        fields[Field.TOKEN_ID, :rows] = inputs.token_ids
        fields[Field.POSITION, :rows] = inputs.positions
        fields[Field.SLOT_MAPPING, :rows] = inputs.slot_mapping
        fields[Field.SEQ_LEN, :rows] = inputs.positions + 1
        fields[Field.SOURCE, :rows] = inputs.sources
        if self.model.shape.experts is not None:
            _write_adapters(spans, fields)
        tables = host[parts.tables].reshape(shape.size, -1)
        tables[:rows, states:] = inputs.block_table
        if inputs.state_table is not None:
            tables[:rows, :states] = inputs.state_table
        self._write_runs(inputs, host, parts)
        self._write_decode_tiles(host, parts, shape, spans)
        return contents

    @staticmethod
    def _write_runs(inputs: StepInputs, host: npt.NDArray[np.int32], parts: _Parts) -> None:
        """Write the table of runs, unless each decode row is one, as in the contents so far."""
        if inputs.decode_runs is not None:
            rows = inputs.decode_runs.shape[1]
            host[parts.runs].reshape(len(RunField), -1)[:, :rows] = inputs.decode_runs

    def _write_decode_tiles(
        self, host: npt.NDArray[np.int32], parts: _Parts, shape: GraphShape, spans: Sequence[LoraSpan]
    ) -> None:
        for sign, lora, out in (
            (1, shape.lora, host[parts.tiles]),
            (-1, shape.delta_correction, host[parts.second_tiles]),
        ):
            if lora:
                used = covering([span for span in spans if span.sign == sign], shape.size)
                write_tiles(used, lora.variant, out.reshape(shape.size, TILE_FIELDS))

    def _load(self, contents: torch.Tensor, shape: GraphShape) -> None:
        """Load the step's contents into the graph's tensors by one copy from the host and a few on the device."""
        device = self._device[: len(contents)]
        device.copy_(contents, non_blocking=True)
        self.inputs.load(device, shape)


def _write_adapters(spans: Sequence[LoraSpan], fields: npt.NDArray[np.int32]) -> None:
    """Write each row's adapter. An adapter that is subtracted from the rows of others has no experts."""
    for span in spans:
        if span.sign > 0:
            fields[Field.ADAPTER, span.start : span.stop] = span.slot.table_index


@dataclass(frozen=True, slots=True)
class _GraphStep:
    """A step that runs in a graph."""

    shape: GraphShape
    spans: list[LoraSpan]
    contents: torch.Tensor  # page-locked
