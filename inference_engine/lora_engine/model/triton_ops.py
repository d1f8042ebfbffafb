"""The GPU backend: Triton kernels over the pool.

Prefill chunks and decode tokens may share a step, with separate attention launches. All indices of a step lie in one
int32 tensor, copied to the device once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lora_engine.adapters.layout import TARGET_GROUPS
from lora_engine.adapters.targets import EXPERTS_GROUP, REPLICATED_GROUPS, ExpertShapes
from lora_engine.memory.page_pool import PagePool
from lora_engine.memory.pinned import to_device
from lora_kernels.attention import DecodeWorkspace, decode_splits, paged_decode
from lora_kernels.elementwise import add_norm, add_norm_and_quantise, gated_activation, rope_and_write_kv
from lora_kernels.epilogue import lora_epilogue
from lora_kernels.expand import lora_expand
from lora_kernels.expert_lora import ExpertLora, workspace_shapes
from lora_kernels.experts import ClampedSwiglu, ExpertsConfig, SigmoidScores, grouped_experts, route
from lora_kernels.fp8 import activate_and_quantise, fp8_linear, multiplied_by_cublas, quantise_rows
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Rows
from lora_kernels.kernel_variants import KernelVariant, LoraShape, ShrinkBuffers
from lora_kernels.launches import compute_cache_keys
from lora_kernels.shrink import lora_shrink, sums_of_shrink
from lora_kernels.skinny_linear import multiplied_by_skinny, skinny_linear
from lora_kernels.state_pages import DecodeRuns
from lora_kernels.tables import FIRST_TARGETS, Group, SlotTables
from lora_kernels.work_items import Span, token_tiles

from .batch import LoraSpan, StepBatch
from .draft_inputs import DraftInputs
from .gated_delta_triton import SpanTables, gated_delta
from .lora_exchange import LoraExchange
from .ops import Activations, Addable, Reader, linear, split_gate
from .parallel import PartialSum
from .prefill_attention import Attend, PrefillAttention
from .shape import DELTA_IN, DELTA_OUT, OUT, QKV, DeltaLayers, ModelShape
from .weights import DeltaParameters, ExpertWeights, LayerWeights, Matrix, ModelWeights

# Maximum number of splits of a sequence's keys in a decode.
MAX_SPLITS = 32
# Ranks up to which adapters share launches and graphs.
RANK_CLASSES = (16, 64, 128, 256, 512)
# Rank for which workspaces are sized, unless the engine serves higher ones.
ORDINARY_RANK = 256
# Rank classes whose kernels and graphs are made at start; others are made on first use.
USUAL_RANKS = (16, 64)
# Groups of attention and of gated delta layers.
MIXERS = frozenset({QKV, OUT, DELTA_IN, DELTA_OUT})
ALL_GROUPS = frozenset({*range(len(TARGET_GROUPS)), EXPERTS_GROUP})
# Sets of groups that graphs launch LoRA kernels for; a batch takes the first that has all of its own. A launch without
# an adapter costs a few microseconds in each layer, and graphs for each set of groups would be too many.
GRAPH_GROUPS = (MIXERS, MIXERS | {EXPERTS_GROUP}, ALL_GROUPS)


@dataclass(slots=True)
class LoraPlan:
    """A launch of the LoRA kernels: the tiles of rows by adapter, in the best variant for them.

    A tile covers every row of the launch; rows without an adapter have slot 0.
    """

    tiles: torch.Tensor
    shape: LoraShape
    shrunk: ShrinkBuffers
    rows: int | None = None  # the launch covers the first so many rows; None: all


@dataclass(slots=True)
class TritonPlan:
    """The data that all layers of a step share; tensors are int32 on the device, the ``num_decode`` rows come first."""

    pool: PagePool
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    num_decode: int
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    splits: int
    prefill: Attend | None  # None: no prefill in this step
    lora: tuple[LoraPlan, ...]  # launched in order
    groups: frozenset[int] = frozenset()  # target groups that some adapter of the batch changes
    merged: bool = False
    epilogues: bool = False  # some adapter of the batch has one
    padded: bool = False  # some rows are padding, for which no attention is computed
    state_table: torch.Tensor | None = None  # [num_decode, state pages], with recurrent layers
    recurrent_prompts: SpanTables | None = None
    decode_runs: torch.Tensor | None = None  # see ``StepBatch``
    adapters: torch.Tensor | None = None  # [tokens] each row's adapter in the kernels' tables; with experts


def _addend_of(x: Addable) -> torch.Tensor:
    return x.addend if isinstance(x, PartialSum) else x


def _addresses_of(x: Addable) -> torch.Tensor | None:
    return x.addresses if isinstance(x, PartialSum) else None


class TritonOps:
    """The backend of Triton kernels, with the workspaces that they need."""

    invariant: bool = False  # whether each row is bitwise the same in every batch
    adds_partial_sums = True

    def __init__(
        self,
        shape: ModelShape,
        tables: SlotTables,
        max_running: int,
        prefill: PrefillAttention,
        max_rank: int = ORDINARY_RANK,
        exchange: LoraExchange | None = None,
    ) -> None:
        """Create the backend; ``exchange`` is set where both factors of adapters are split over ranks."""
        self.shape = shape
        self.exchange = exchange
        self.tables = tables
        self.prefill = prefill
        self.device = shape.device
        self.workspace = DecodeWorkspace(max_running, shape.heads, shape.head_dim, MAX_SPLITS, self.device)
        self.groups = lora_groups(shape)
        self.lora_groups = (
            self.groups if exchange is None else tuple(map(exchange.part, range(len(self.groups)), self.groups))
        )
        self.rank_classes = rank_classes(max_rank)
        self._delta: DeltaLayers | None = None  # once the pool's geometry is known
        self.draft_inputs: DraftInputs | None = None
        compute_cache_keys()

    def plan(self, batch: StepBatch, pool: PagePool) -> TritonPlan:
        n, rows = batch.num_decode, len(batch.positions)
        return TritonPlan(
            pool=pool,
            positions=batch.positions.int(),
            slot_mapping=batch.slot_mapping.int(),
            num_decode=n,
            block_table=batch.block_table.int(),
            seq_lens=batch.seq_lens.int(),
            splits=decode_splits(max(n, 1), self.shape.kv_heads),
            prefill=self.prefill.plan(batch.prefill) if batch.prefill else None,
            lora=self._lora(batch),
            groups=touched(batch.lora),
            merged=batch.merged,
            epilogues=any(span.slot.has_epilogues for span in batch.lora),
            adapters=None if self.shape.experts is None else to_device(adapters_of(batch.lora, rows), self.device),
            **self._recurrent(batch, pool),
        )

    def _recurrent(self, batch: StepBatch, pool: PagePool) -> dict[str, Any]:
        """Return the fields of a plan for recurrent layers; none for a model without."""
        if batch.state_table is None:
            return {}
        prompts = SpanTables.of(batch.prefill, self.device) if batch.prefill else None
        runs = None if batch.decode_runs is None else batch.decode_runs.int()
        return {"state_table": batch.state_table.int(), "recurrent_prompts": prompts, "decode_runs": runs}

    def shrink_workspace(self, shape: LoraShape, tokens: int) -> ShrinkBuffers:
        """Return buffers for the shrunk activations of any group."""
        widest = max(group.in_features for group in self.groups)
        targets = max(len(group.out_features) for group in self.groups)
        return shape.workspace(tokens, widest, targets, self.device, self.shape.dtype)

    def choose_products(self, weights: ModelWeights, step_tokens: int, max_running: int) -> None:
        """Do nothing: ``InvariantOps`` determines which library multiplies which matrix."""

    def prompt_workspace(self, tokens: int, experts: ExpertShapes | None) -> list[torch.Tensor]:
        """Return the largest buffers that adapters take in a step of so many tokens; ``experts`` are this rank's."""
        rank = self.rank_classes[-1]
        shrunk = self.shrink_workspace(LoraShape(KernelVariant.PREFILL, rank, self.invariant), tokens)
        buffers = [shrunk.partial, shrunk.total]
        if experts is not None and self.shape.experts is not None:
            pairs, sizes = tokens * self.shape.experts.per_token, (experts.inner, experts.hidden)
            shapes = workspace_shapes(pairs, *sizes, rank, expanded=not self.invariant)
            buffers += [torch.empty(size, dtype=self.shape.dtype, device=self.device) for size in shapes]
        return buffers

    def norm(self, x: Addable, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(_addend_of(x))
        self._norm(x, None, weight, out)
        return out

    def add_norm(self, residual: torch.Tensor, delta: Addable | None, weight: torch.Tensor | None) -> torch.Tensor:
        if weight is None:
            assert not isinstance(delta, PartialSum), "the model says where no norm follows"
            return residual if delta is None else residual.add_(delta, alpha=self.shape.residual_scale)
        if delta is None:
            return self.norm(residual, weight)
        out = torch.empty_like(residual)
        self._norm(delta, residual, weight, out)
        return out

    def add_norm_for(
        self,
        residual: torch.Tensor,
        delta: Addable | None,
        weight: torch.Tensor | None,
        readers: Sequence[Reader],
        plan: TritonPlan,
    ) -> Activations:
        matrix = readers[0].matrix
        if weight is None or not isinstance(matrix, Fp8Matrix):
            return self.add_norm(residual, delta, weight)
        s, x = self.shape, residual if delta is None else delta
        return add_norm_and_quantise(
            _addend_of(x),
            None if delta is None else residual,
            weight,
            s.eps,
            matrix,
            any(r.group in plan.groups or not quantised_alike(r.matrix, matrix) for r in readers),
            scale=s.residual_scale,
            centred=s.norm.centred,
            rounded_first=s.norm.rounded_first,
            addends=_addresses_of(x),
        )

    def _norm(self, x: Addable, residual: torch.Tensor | None, weight: torch.Tensor, out: torch.Tensor) -> None:
        s = self.shape
        add_norm(
            _addend_of(x),
            residual,
            weight,
            s.eps,
            out,
            scale=s.residual_scale,
            centred=s.norm.centred,
            rounded_first=s.norm.rounded_first,
            addends=_addresses_of(x),
        )

    def project(
        self,
        group: int,
        layer: int,
        x: Activations,
        weight: Matrix,
        bias: torch.Tensor | None,
        plan: TritonPlan,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if group not in plan.groups:
            return self.base_product(x, weight, bias, out)
        out = self.product_and_deltas(group, layer, x, weight, bias, plan, out)
        if plan.epilogues:
            self.apply_epilogues(group, layer, out, plan)
        return out

    def product_and_deltas(
        self,
        group: int,
        layer: int,
        x: Activations,
        weight: Matrix,
        bias: torch.Tensor | None,
        plan: TritonPlan,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute ``project`` of a group that adapters change, before epilogues."""
        full, x = readable(x, weight)
        assert full is not None, "adapters read unquantised activations"
        if not self._deltas_come_first(group, x, weight, plan):
            out = self._product(x, weight, bias, out)
            changed = self._columns(group, out)
            self.add_deltas(group, layer, full, changed, changed, plan)
            return out
        if out is None:
            out = torch.empty(x.shape[0], weight.shape[0], dtype=full.dtype, device=full.device)
        self.add_deltas(group, layer, full, self._columns(group, out), bias, plan)
        if isinstance(x, Fp8Rows) and isinstance(weight, Fp8Matrix):
            return fp8_linear(x, weight, out.dtype, out, out)
        assert isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor)
        return self.linear_onto(x, weight, out)

    def project_both(
        self, group: int, layer: int, x: Activations, weight: Matrix, narrow: torch.Tensor, plan: TritonPlan
    ) -> tuple[torch.Tensor, torch.Tensor]:
        full, x = readable(x, weight)
        assert full is not None, "the narrow matrix reads unquantised activations"
        if group not in plan.groups:
            return self._product(x, weight, None), self.linear(full, narrow)
        wide = weight.shape[0]
        out = torch.empty(x.shape[0], wide + len(narrow), dtype=full.dtype, device=full.device)
        parts = out[:, :wide], out[:, wide:]
        if self._deltas_come_first(group, x, weight, plan) and isinstance(x, Fp8Rows) and isinstance(weight, Fp8Matrix):
            self.add_deltas(group, layer, full, out, None, plan)
            self.linear_onto(full, narrow, parts[1])
            fp8_linear(x, weight, out.dtype, parts[0], parts[0])
        else:
            self._product(x, weight, None, parts[0])
            self.linear(full, narrow, out=parts[1])
            self.add_deltas(group, layer, full, out, out, plan)
        if plan.epilogues:
            self.apply_epilogues(group, layer, out, plan)
        return parts

    def _columns(self, group: int, out: torch.Tensor) -> torch.Tensor:
        """Return the columns of a group's targets: routers have rows of zeros behind theirs (``ExpertWeights``)."""
        width = sum(self.groups[group].out_features)
        return out if out.shape[1] == width else out[:, :width]

    def _deltas_come_first(self, group: int, x: Activations, weight: Matrix, plan: TritonPlan) -> bool:
        """Return whether the base's product is added onto the deltas, as in decode steps.

        One of these kernels computes x there, and the adapters' weights can be fetched while it runs. In a prefill that
        product is slower.
        """
        return plan.prefill is None and self._adds(x, weight) and self._whole(group)

    def add_deltas(
        self,
        group: int,
        layer: int,
        x: torch.Tensor,
        out: torch.Tensor,
        onto: torch.Tensor | None,
        plan: TritonPlan,
    ) -> None:
        """Compute ``out = onto + x A B`` with each row's adapter; see ``lora_expand``.

        ``onto`` is ``out`` itself, unless the deltas are ``_whole``.
        """
        pool, kv_dim = plan.pool.layer(layer), plan.pool.geometry.kv_dim
        if self.exchange is not None and not self._whole(group):
            out = onto = self.exchange.columns(group, out)
        for lora in plan.lora:
            where = (lora.tiles, self.tables, layer, self.lora_groups[group], kv_dim, lora.shape)
            if lora.rows is not None:
                of_rows = out[: lora.rows]
                lora_shrink(x[: lora.rows], pool, lora.shrunk, *where)
                lora_expand(lora.shrunk, pool, of_rows, *where, of_rows)
                continue
            lora_shrink(x, pool, lora.shrunk, *where)
            exchanged = None
            if self.exchange is not None and group not in REPLICATED_GROUPS:
                part = sums_of_shrink(
                    lora.shrunk, x.shape[0], self.lora_groups[group], lora.shape, self.exchange.shards(group)
                )
                exchanged = self.exchange.shrunk(group, part)
            lora_expand(lora.shrunk, pool, out, *where, onto, exchanged)
            onto = out

    def _whole(self, group: int) -> bool:
        """Return whether this rank's deltas cover all columns of a group's output."""
        return self.exchange is None or self.lora_groups[group] == self.groups[group]

    def apply_epilogues(self, group: int, layer: int, out: torch.Tensor, plan: TritonPlan) -> None:
        """Apply epilogues over the tiles of the LoRA launches that add deltas; they have each row in one tile."""
        pool, kv_dim = plan.pool.layer(layer), plan.pool.geometry.kv_dim
        out = self._columns(group, out)
        for lora in plan.lora:
            lora_epilogue(out, pool, lora.tiles, self.tables, layer, self.groups[group], kv_dim)

    def base_product(
        self, x: Activations, weight: Matrix, bias: torch.Tensor | None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute ``project`` without adapters."""
        return self._product(readable(x, weight)[1], weight, bias, out)

    def _product(
        self, x: Activations, weight: Matrix, bias: torch.Tensor | None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        if isinstance(x, Fp8Rows) and isinstance(weight, Fp8Matrix):
            return fp8_linear(x, weight, self.shape.dtype, bias, out, invariant=self.invariant)
        assert isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor)
        return self.linear(x, weight, bias, out)

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        if multiplied_by_skinny(x, weight):
            return skinny_linear(x, weight, bias, out)
        return linear(x, weight, bias, out)

    @staticmethod
    def linear_onto(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Add ``linear`` without a bias to ``out [tokens, out]``."""
        if multiplied_by_skinny(x, weight):
            return skinny_linear(x, weight, out, out)
        return out.addmm_(x, weight.t())

    def _adds(self, x: Activations, weight: Matrix) -> bool:
        """Return whether the product can be added onto its output; cuBLAS's FP8 products cannot."""
        return isinstance(weight, torch.Tensor) or not multiplied_by_cublas(x.shape[0], weight, self.shape.dtype)

    def attend(self, layer: int, weights: LayerWeights, qkv: torch.Tensor, plan: TritonPlan) -> torch.Tensor:
        s, pool, n = self.shape, plan.pool.layer_kv(layer), plan.num_decode
        qkv, gate = split_gate(qkv, s)
        page_tokens, rope = plan.pool.geometry.page_tokens, s.ropes[layer]
        q, k = qkv.split((s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim), dim=1)[:2]
        if s.qk_norm == "all" and weights.q_norm is not None and weights.k_norm is not None:
            self._norm(q, None, weights.q_norm, q)
            self._norm(k, None, weights.k_norm, k)
        if rope.query_scale is not None:
            q.mul_(rope.query_scale[plan.positions][:, None])
        rope_and_write_kv(
            qkv,
            rope.cos,
            rope.sin,
            plan.positions,
            plan.slot_mapping,
            pool,
            heads=s.heads,
            kv_heads=s.kv_heads,
            head_dim=s.head_dim,
            page_tokens=page_tokens,
            q_norm=weights.q_norm if s.qk_norm == "head" else None,
            k_norm=weights.k_norm if s.qk_norm == "head" else None,
            eps=s.eps,
            rounded_first=s.norm.rounded_first,
            rotary_dim=s.pairs.rotary_dim,
            interleaved=s.pairs.interleaved,
            invariant=self.invariant,
        )
        # Undefined contents of padding rows could spread through later products and into the keys that they write.
        out = (torch.zeros if plan.padded else torch.empty)(q.shape, dtype=q.dtype, device=q.device)
        if n:
            self.decode(q[:n], pool, out[:n], s.windows[layer], plan, weights.sinks)
        if plan.prefill:
            plan.prefill(q, pool, out, s.windows[layer], weights.sinks)
        return out if gate is None else out.mul_(gate.sigmoid().flatten(1))

    def gated_delta(
        self, layer: int, weights: DeltaParameters, projected: torch.Tensor, gates: torch.Tensor, plan: TritonPlan
    ) -> torch.Tensor:
        if self._delta is None:
            self._delta = self.shape.delta_states(plan.pool.geometry)
        assert self._delta is not None and plan.state_table is not None, "the model has gated delta layers"
        table = self.decode_runs(plan)
        kept = None if self.draft_inputs is None else self.draft_inputs.layer(layer)
        return gated_delta(
            layer, weights, projected, gates, plan.pool, (plan.state_table, plan.seq_lens), plan.recurrent_prompts,
            self._delta, plan.padded, None if table is None else DecodeRuns(table, kept),
        )  # fmt: skip

    def decode_runs(self, plan: TritonPlan) -> torch.Tensor | None:
        """Return the table of the decode rows' runs; None: each row is a sequence's only one."""
        return plan.decode_runs

    def decode(
        self,
        q: torch.Tensor,
        pool: torch.Tensor,
        out: torch.Tensor,
        window: int,
        plan: TritonPlan,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """Compute attention of decode rows ``q``, ``out`` ``[num_decode, heads * head_dim]`` over a layer's pages."""
        s = self.shape
        paged_decode(
            q,
            pool,
            plan.block_table,
            plan.seq_lens,
            out,
            self.workspace,
            heads=s.heads,
            kv_heads=s.kv_heads,
            page_tokens=plan.pool.geometry.page_tokens,
            splits=plan.splits,
            window=window,
            scale=s.attention_scale,
            softcap=s.attention_softcap,
            sinks=sinks,
        )

    def activate_for(self, gate_up: torch.Tensor, reader: Reader, plan: TritonPlan) -> Activations:
        if isinstance(reader.matrix, Fp8Matrix):
            full = reader.group in plan.groups
            return activate_and_quantise(gate_up, reader.matrix, self.shape.activation, full)
        out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2, dtype=gate_up.dtype, device=gate_up.device)
        gated_activation(gate_up, out, self.shape.activation)
        return out

    def experts(
        self,
        layer: int,
        weights: ExpertWeights,
        x: Activations,
        logits: torch.Tensor,
        plan: TritonPlan,
        out: torch.Tensor | None = None,
        onto: bool = False,
    ) -> torch.Tensor:
        config, tokens = self.shape.experts, x.shape[0]
        assert config is not None, "the model has experts"
        if out is None:
            out = torch.empty(x.shape, dtype=logits.dtype, device=logits.device)
        weighted = onto and config.gated_shared
        logits, score = logits[:, : config.count], logits[:, config.count] if weighted else None
        sigmoid = None
        if config.sigmoid:
            assert weights.correction is not None, "routers with sigmoids have corrections"
            sigmoid = SigmoidScores(weights.correction, config.groups, config.kept_groups, config.scale)
        activation = ClampedSwiglu(config.slope, config.limit) if config.limit else self.shape.activation
        for rows, fixed in self.launches_of_experts(weights, tokens, plan):
            routing = route(logits[rows], config.per_token, renormalised=config.renormalised, sigmoid=sigmoid)
            grouped_experts(
                x[rows], weights.gate_up, weights.down, routing, activation, out[rows],
                self._lora_on_experts(layer, rows, plan), weights.gate_up_bias, weights.down_bias, fixed, onto,
                None if score is None else score[rows],
            )  # fmt: skip
        return out

    def launches_of_experts(
        self, weights: ExpertWeights, rows: int, plan: TritonPlan
    ) -> Iterator[tuple[slice, ExpertsConfig | None]]:
        """Yield the rows of each launch of experts, and its configuration; None: by the number of rows."""
        yield slice(0, rows), None

    def _lora_on_experts(self, layer: int, rows: slice, plan: TritonPlan) -> ExpertLora | None:
        """Return the adapters on experts of some rows; None if the step has none."""
        if EXPERTS_GROUP not in plan.groups or not plan.lora:
            return None
        assert plan.adapters is not None, "the plan of a model with experts has its rows' adapters"
        rank, kv_dim = max(launch.shape.max_rank for launch in plan.lora), plan.pool.geometry.kv_dim
        return ExpertLora(plan.adapters[rows], plan.pool.layer(layer), self.tables, layer, kv_dim, rank)

    def _lora(self, batch: StepBatch) -> tuple[LoraPlan, ...]:
        """Plan the launches: add adapters, then subtract the merged one from the rows that do not use it."""
        signs = ([span for span in batch.lora if span.sign * sign > 0] for sign in (1, -1))
        return tuple(self._launch(spans, batch) for spans in signs if spans)

    def _launch(self, used: list[LoraSpan], batch: StepBatch) -> LoraPlan:
        """Plan one launch of the spans in the best variant, with their tiles."""
        rows = len(batch.positions)
        decode, prefill = split_spans(covering(used, rows), batch.num_decode)
        shape = lora_shape(KernelVariant.PREFILL if len(prefill) else decode_variant(decode), max_rank(used))
        # A prefill launch also takes tiles of up to 16 decode rows: a separate launch would save less time on the
        # device than it costs on the host.
        tiles = [
            token_tiles(prefill, KernelVariant.PREFILL),
            token_tiles(decode, min(shape.variant, KernelVariant.GROUPED)),
        ]
        return self.lora_plan(torch.cat(tiles), shape, rows)

    def lora_plan(self, tiles: torch.Tensor, shape: LoraShape, rows: int) -> LoraPlan:
        """Plan a launch of ``tiles``, which are on the host, for a batch of ``rows`` tokens."""
        return LoraPlan(to_device(tiles, self.device), shape, self.shrink_workspace(shape, rows))


def quantised_alike(a: Matrix, b: Matrix) -> bool:
    """Return whether products with both matrices read the same FP8 activations."""
    if not isinstance(a, Fp8Matrix) or not isinstance(b, Fp8Matrix):
        return False
    return a.group == b.group and a.input_scale is b.input_scale


def readable(x: Activations, weight: Matrix) -> tuple[torch.Tensor | None, Activations]:
    """Return the activations that adapters read (None: not kept), and those that the product with ``weight`` reads."""
    full = x.full if isinstance(x, Fp8Rows) else x
    if isinstance(weight, torch.Tensor):
        assert full is not None, "the matrix is not quantised"
        return full, full
    if isinstance(x, Fp8Rows) and x.made_for(weight):
        return full, x
    assert full is not None, "the matrix is quantised in another way"
    return full, quantise_rows(full, weight)


def decode_variant(spans: Sequence[Span], invariant: bool = False) -> KernelVariant:
    """Return the variant for decode rows: a matrix product is faster from two and a half rows an adapter on.

    ``invariant``: always a matrix product.
    """
    if invariant:
        return KernelVariant.GROUPED
    used = [span.stop - span.start for span in spans if span.slot]
    if 2 * sum(used) > 5 * len(used):
        return KernelVariant.GROUPED
    return KernelVariant.GEMV_2 if 2 * sum(used) > 3 * len(used) else KernelVariant.GEMV_1


def covering(spans: Sequence[LoraSpan], rows: int) -> list[Span]:
    """Return the spans, and spans of slot 0 for the rows between them.

    Large ranks come first: their programs take longest, and must not start last.
    """
    covered = [Span(table_index(s), s.start, s.stop, s.slot.rank) for s in sorted(spans, key=lambda s: -s.slot.rank)]
    end = 0
    for start, stop in (*sorted((s.start, s.stop) for s in spans), (rows, rows)):
        if start > end:
            covered.append(Span(0, end, start, 0))
        end = stop
    return covered


def split_spans(spans: Sequence[Span], border: int) -> tuple[list[Span], list[Span]]:
    """Split the spans at ``border`` into those of decode rows, which come first, and those of prefill rows."""
    decode = [span._replace(stop=min(span.stop, border)) for span in spans if span.start < border]
    prefill = [span._replace(start=max(span.start, border)) for span in spans if span.stop > border]
    return decode, prefill


def adapters_of(spans: Sequence[LoraSpan], rows: int) -> torch.Tensor:
    """Return each row's adapter by its slot in the kernels' tables, int32; 0: none. Subtracted ones do not count."""
    adapters = torch.zeros(rows, dtype=torch.int32)
    for span in spans:
        if span.sign > 0:
            adapters[span.start : span.stop] = span.slot.table_index
    return adapters


def touched(spans: Sequence[LoraSpan]) -> frozenset[int]:
    """Return the target groups that some adapter changes."""
    return frozenset().union(*(span.slot.groups for span in spans))


def max_rank(spans: Sequence[LoraSpan]) -> int:
    return max(span.slot.rank for span in spans)


def table_index(span: LoraSpan) -> int:
    """Return the adapter's slot in the kernels' tables, or the slot of its negative if it is subtracted."""
    return span.slot.table_index if span.sign > 0 else span.slot.delta_correction_index


def lora_groups(shape: ModelShape) -> tuple[Group, ...]:
    """Return the target groups with this rank's sizes, in the order of ``TARGET_GROUPS``."""
    groups = []
    for first, group in zip(FIRST_TARGETS, TARGET_GROUPS, strict=True):
        targets = [target for target in group if target in shape.targets]
        outs = tuple(shape.targets[target][1] for target in targets)
        ins = shape.targets[targets[0]][0] if targets else 0  # a model without recurrent layers has none of theirs
        groups.append(Group("_".join(targets), first, ins, outs))
    return tuple(groups)


def lora_shape(variant: KernelVariant, rank: int, invariant: bool = False) -> LoraShape:
    """Return the launch parameters for the smallest class that holds ``rank``: launches and graphs are made per class.

    GEMV_1 and GEMV_2 take no longer for a class of 64 than for smaller ones, since programs share the existing work
    items. GROUPED splits its input by the class's maximum.
    """
    classes = (
        RANK_CLASSES
        if variant in (KernelVariant.GROUPED, KernelVariant.PREFILL)
        else [c for c in RANK_CLASSES if c >= USUAL_RANKS[-1]]
    )
    return LoraShape(variant, next(limit for limit in classes if rank <= limit), invariant)


def rank_classes(max_rank: int) -> tuple[int, ...]:
    """Return the rank classes of an engine that serves adapters of up to ``max_rank``."""
    return tuple(limit for limit in RANK_CLASSES if limit <= ORDINARY_RANK or limit < 2 * max_rank)


def usual_shapes(
    variant: KernelVariant, ranks: Sequence[int] = USUAL_RANKS, invariant: bool = False
) -> list[LoraShape]:
    """Return the launch parameters for adapters of ``ranks``; by default those for which kernels are made at start."""
    return sorted({lora_shape(variant, rank, invariant) for rank in ranks}, key=lambda shape: shape.max_rank)


__all__ = ["TritonOps", "TritonPlan", "lora_groups", "lora_shape"]
