"""The operations of a layer, which differ between backends, and their implementation in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
import torch.nn.functional as F

from lora_engine.adapters.targets import EXPERTS_GROUP
from lora_engine.memory.page_pool import PagePool
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Rows

from .attention_torch import AttentionPlan, attend, plan_attention, write_kv
from .batch import StepBatch
from .draft_inputs import DraftInputs
from .experts_torch import gated, mixture
from .gated_delta_torch import gated_delta
from .lora_exchange import LoraExchange
from .lora_torch import add_lora, apply_epilogues
from .parallel import PartialSum
from .rope import RotaryTable, rotate
from .shape import DeltaLayers, ModelShape
from .weights import DeltaParameters, ExpertWeights, LayerWeights, Matrix

Plan = TypeVar("Plan")
# Activations ``[tokens, features]``, quantised where the matrix that reads them is quantised.
Activations = torch.Tensor | Fp8Rows
# Activations that may still be a sum over ranks.
Addable = torch.Tensor | PartialSum


class Reader(NamedTuple):
    """A product that reads the result of an operation: its target group and matrix."""

    group: int
    matrix: Matrix


class Ops(Protocol[Plan]):
    """The operations of a backend; a plan holds the data that all layers of a step share."""

    invariant: bool  # whether each row is bitwise the same in every batch
    adds_partial_sums: bool  # whether norms take a ``PartialSum``
    draft_inputs: DraftInputs | None  # None: no drafts, or no recurrent layers

    def plan(self, batch: StepBatch, pool: PagePool) -> Plan: ...

    def norm(self, x: Addable, weight: torch.Tensor) -> torch.Tensor:
        """Return the norm of ``x [tokens, hidden]`` times ``weight``."""

    def add_norm(self, residual: torch.Tensor, delta: Addable | None, weight: torch.Tensor | None) -> torch.Tensor:
        """Add ``residual_scale * delta`` to ``residual`` in place and return its norm times ``weight``.

        Both are ``[tokens, hidden]``. Without a weight, the result is ``residual`` itself.
        """

    def add_norm_for(
        self,
        residual: torch.Tensor,
        delta: Addable | None,
        weight: torch.Tensor | None,
        readers: Sequence[Reader],
        plan: Plan,
    ) -> Activations:
        """Compute ``add_norm``, quantised as the products that read it need."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply ``x [tokens, in]`` by ``weight [out, in]``, into ``out [tokens, out]`` unless that is None."""

    def project(
        self,
        group: int,
        layer: int,
        x: Activations,
        weight: Matrix,
        bias: torch.Tensor | None,
        plan: Plan,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute a target group's base product plus the delta of each token's adapter: ``x W^T + bias + x A B``.

        The result goes into ``out [tokens, out]`` unless that is None.

        Epilogues of some kinds of adapters follow (``adapters/epilogue.py``). ``x [tokens, in]``, ``weight [out, in]``.
        Adapters read the unquantised ``x``.
        """

    def project_both(
        self, group: int, layer: int, x: Activations, weight: Matrix, narrow: torch.Tensor, plan: Plan
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``project`` of a group whose last outputs have a matrix of their own, ``narrow``, in two parts."""

    def attend(self, layer: int, weights: LayerWeights, qkv: torch.Tensor, plan: Plan) -> torch.Tensor:
        """Rotate queries and keys, write keys and values to the pool, attend: ``[tokens, heads * head_dim]``."""

    def gated_delta(
        self, layer: int, weights: DeltaParameters, projected: torch.Tensor, gates: torch.Tensor, plan: Plan
    ) -> torch.Tensor:
        """Compute a gated delta layer between its projections, and update states in the pool.

        ``projected [tokens, channels + heads * value_dim]`` and ``gates [tokens, 2 * heads]`` are the outputs of the
        input projections. Returns ``[tokens, heads * value_dim]``.
        """

    def activate_for(self, gate_up: torch.Tensor, reader: Reader, plan: Plan) -> Activations:
        """Compute ``activation(gate) * up`` of ``gate_up [tokens, 2 * inner]``, for the product that reads it."""

    def experts(
        self,
        layer: int,
        weights: ExpertWeights,
        x: Activations,
        logits: torch.Tensor,
        plan: Plan,
        out: torch.Tensor | None = None,
        onto: bool = False,
    ) -> torch.Tensor:
        """Compute the sum of each token's best experts ``[tokens, hidden]``, each times its weight.

        ``x [tokens, hidden]``; the first columns of ``logits`` are the router's scores of the experts. Each expert's
        products have the deltas of the token's adapter. The result goes into ``out`` unless that is None. ``onto``: it
        is added to what ``out`` has, the output of the MLP that all tokens use; if that has a weight, times the sigmoid
        of the next column. Over ranks, the results are parts of a sum.
        """


class TorchPlan:
    """The batch, its pool, and the attention plan that layers share."""

    def __init__(self, batch: StepBatch, pool: PagePool, shape: ModelShape) -> None:
        self.batch = batch
        self.merged = batch.merged
        self.pool = pool
        self.rotations = {table: _rotation(table, batch.positions) for table in set(shape.ropes)}
        self.attention: AttentionPlan = plan_attention(
            batch, pool, tuple(set(shape.windows)), shape.attention_scale, shape.attention_softcap, shape.dtype
        )


def _rotation(table: RotaryTable, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return cosine, sine and the queries' factor, each ``[tokens, 1, …]``."""
    scale = table.query_scale
    return (
        table.cos.index_select(0, positions)[:, None],
        table.sin.index_select(0, positions)[:, None],
        None if scale is None else scale.index_select(0, positions)[:, None, None],
    )


class TorchOps:
    """The backend in plain torch: for CPUs, and as the reference of other backends on any device.

    FP8 weights are dequantised; activations are never quantised.
    """

    invariant = False
    adds_partial_sums = False

    def __init__(self, shape: ModelShape, exchange: LoraExchange | None = None) -> None:
        """Create the backend; ``exchange`` is set where both factors of adapters are split over ranks."""
        self.shape = shape
        self.exchange = exchange
        self.eps = torch.tensor(shape.eps, device=shape.device)
        self._delta: DeltaLayers | None = None  # once the pool's geometry is known
        self.draft_inputs: DraftInputs | None = None

    def plan(self, batch: StepBatch, pool: PagePool) -> TorchPlan:
        return TorchPlan(batch, pool, self.shape)

    def norm(self, x: Addable, weight: torch.Tensor) -> torch.Tensor:
        assert isinstance(x, torch.Tensor), "this backend does not add partial sums"
        return self._norm(x, weight)

    def add_norm(self, residual: torch.Tensor, delta: Addable | None, weight: torch.Tensor | None) -> torch.Tensor:
        if delta is not None:
            assert isinstance(delta, torch.Tensor), "this backend does not add partial sums"
            residual.add_(delta, alpha=self.shape.residual_scale)
        return residual if weight is None else self._norm(residual, weight)

    def add_norm_for(
        self,
        residual: torch.Tensor,
        delta: Addable | None,
        weight: torch.Tensor | None,
        readers: Sequence[Reader],
        plan: TorchPlan,
    ) -> torch.Tensor:
        return self.add_norm(residual, delta, weight)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        return linear(x, weight, out=out)

    def project(
        self,
        group: int,
        layer: int,
        x: Activations,
        weight: Matrix,
        bias: torch.Tensor | None,
        plan: TorchPlan,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert isinstance(x, torch.Tensor), "this backend does not quantise activations"
        out = linear(x, weight.dequantised(x.dtype) if isinstance(weight, Fp8Matrix) else weight, bias, out)
        add_lora(group, layer, x, out, plan.batch.lora, self.exchange)
        apply_epilogues(group, layer, out, plan.batch.lora)
        return out

    def project_both(
        self, group: int, layer: int, x: Activations, weight: Matrix, narrow: torch.Tensor, plan: TorchPlan
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert isinstance(x, torch.Tensor), "this backend does not quantise activations"
        wide = weight.dequantised(x.dtype) if isinstance(weight, Fp8Matrix) else weight
        out = self.project(group, layer, x, torch.cat((wide, narrow)), None, plan)
        return out[:, : len(wide)], out[:, len(wide) :]

    def attend(self, layer: int, weights: LayerWeights, qkv: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        s = self.shape
        qkv, gate = split_gate(qkv, s)
        heads = qkv.view(qkv.shape[0], s.heads + 2 * s.kv_heads, s.head_dim)
        qk, v = heads.narrow(1, 0, s.heads + s.kv_heads), heads.narrow(1, s.heads + s.kv_heads, s.kv_heads)
        if weights.q_norm is not None and weights.k_norm is not None:
            q, k = qk.narrow(1, 0, s.heads), qk.narrow(1, s.heads, s.kv_heads)
            if s.qk_norm == "all":
                q, k = (
                    self._norm(x.flatten(1), w).view(x.shape) for x, w in ((q, weights.q_norm), (k, weights.k_norm))
                )
            else:
                q, k = self._norm(q, weights.q_norm), self._norm(k, weights.k_norm)
            qk = torch.cat((q, k), dim=1)
        cos, sin, query_scale = plan.rotations[s.ropes[layer]]
        qk = rotate(qk, cos, sin, s.pairs)
        write_kv(plan.pool, layer, plan.attention, qk.narrow(1, s.heads, s.kv_heads).flatten(1), v.flatten(1))
        q = qk.narrow(1, 0, s.heads)
        if query_scale is not None:
            q = q * query_scale
        out = attend(q, plan.pool, layer, plan.batch, plan.attention, s.windows[layer], weights.sinks).flatten(1)
        return out if gate is None else out * gate.sigmoid().flatten(1)

    def gated_delta(
        self, layer: int, weights: DeltaParameters, projected: torch.Tensor, gates: torch.Tensor, plan: TorchPlan
    ) -> torch.Tensor:
        if self._delta is None:
            self._delta = self.shape.delta_states(plan.pool.geometry)
            assert self._delta is not None, "the model has gated delta layers"
        pool, batch = plan.pool, plan.batch
        return gated_delta(layer, weights, projected, gates, pool, batch, self._delta, self.draft_inputs)

    def activate_for(self, gate_up: torch.Tensor, reader: Reader, plan: TorchPlan) -> torch.Tensor:
        return gated(gate_up, self.shape.activation)

    def experts(
        self,
        layer: int,
        weights: ExpertWeights,
        x: Activations,
        logits: torch.Tensor,
        plan: TorchPlan,
        out: torch.Tensor | None = None,
        onto: bool = False,
    ) -> torch.Tensor:
        assert isinstance(x, torch.Tensor) and self.shape.experts is not None, "the model has experts"
        count = self.shape.experts.count
        spans = [span for span in plan.batch.lora if span.sign > 0 and EXPERTS_GROUP in span.slot.groups]
        adapters = [(span, span.slot.experts(layer)) for span in spans]

        def note(experts: torch.Tensor) -> None:
            for span in spans:
                if span.slot.residency is not None:
                    span.slot.residency.count(layer, experts[span.start : span.stop])

        scores = logits[:, :count]
        mixed = mixture(x, scores, weights, self.shape.experts, self.shape.activation, adapters, note)
        if out is None:
            return mixed
        if not onto:
            return out.copy_(mixed)
        weighted = self.shape.experts.gated_shared
        return (out.mul_(logits[:, count : count + 1].sigmoid()) if weighted else out).add_(mixed)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        size = (x.shape[-1],)
        if self.shape.norm.centred:
            return F.layer_norm(x.float(), size, weight.float(), None, self.shape.eps).to(x.dtype)
        if x.dtype is not torch.float32:
            if self.shape.norm.rounded_first:  # torch computes it in float32 internally
                return F.rms_norm(x, size, weight, self.shape.eps)
            return F.rms_norm(x.float(), size, weight.float(), self.shape.eps).to(x.dtype)
        # The same result with half as many operations: on a CPU, the calls dominate the time of one row.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self.eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(weight)


def split_gate(qkv: torch.Tensor, shape: ModelShape) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Split the outputs of attention's projections into queries, keys and values, and the gate of its output.

    Where queries are gated, each head's query and gate are adjacent in ``qkv``. The first result has contiguous rows of
    heads; the gate is a view ``[tokens, heads, head_dim]`` of ``qkv``, None for a model without.
    """
    if not shape.gated_queries:
        return qkv, None
    width = shape.heads * shape.head_dim
    query, gate = qkv[:, : 2 * width].unflatten(1, (shape.heads, 2, shape.head_dim)).unbind(2)
    out = torch.empty(len(qkv), qkv.shape[1] - width, dtype=qkv.dtype, device=qkv.device)
    out[:, :width].unflatten(1, (shape.heads, shape.head_dim)).copy_(query)
    out[:, width:].copy_(qkv[:, 2 * width :])
    return out, gate


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply ``x [tokens, in]`` by ``weight [out, in]``, into ``out [tokens, out]`` unless that is None.

    The product is that of ``F.linear``, whose dispatch on a CPU takes longer than the product of one row.
    """
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
