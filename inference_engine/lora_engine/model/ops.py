"""What differs between devices: everything in a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
import torch.nn.functional as F

from lora_engine.memory.page_pool import PagePool
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Rows

from .attention_torch import AttentionPlan, attend, plan_attention, write_kv
from .batch import StepBatch
from .lora_exchange import LoraExchange
from .lora_torch import add_lora, apply_epilogues
from .rope import RotaryTable, rotate
from .shape import ModelShape
from .weights import LayerWeights, Matrix

Plan = TypeVar("Plan")
Activations = torch.Tensor | Fp8Rows  # ``[tokens, features]``, quantised for a matrix that is


class Reader(NamedTuple):
    """A product that reads what an operation makes: its target group and matrix."""

    group: int
    matrix: Matrix


class Ops(Protocol[Plan]):
    """The operations of one backend. A plan is what all layers of one step share."""

    invariant: bool  # whether each row is bitwise the same in every batch

    def plan(self, batch: StepBatch, pool: PagePool) -> Plan: ...

    def add_norm(self, residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor | None) -> torch.Tensor:
        """``residual += residual_scale * delta`` in place, then its norm times ``weight``; both ``[tokens, hidden]``.

        Without a weight, ``residual`` itself.
        """

    def add_norm_for(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor | None,
        readers: Sequence[Reader],
        plan: Plan,
    ) -> Activations:
        """``add_norm``, for the products that read it."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """``x [tokens, in]`` times ``weight [out, in]``, into ``out [tokens, out]`` if it is given."""

    def project(
        self, group: int, layer: int, x: Activations, weight: Matrix, bias: torch.Tensor | None, plan: Plan
    ) -> torch.Tensor:
        """The base model's product of a target group plus every token's adapter's delta: ``x W^T + bias + x A B``.

        Then what some kinds of adapters do to it (``adapters/epilogue.py``). ``x [tokens, in]``, ``weight [out, in]``.
        Adapters read ``x`` as it was before it was quantised.
        """

    def attend(self, layer: int, weights: LayerWeights, qkv: torch.Tensor, plan: Plan) -> torch.Tensor:
        """Rotate, store keys and values in the pool, attend: ``[tokens, heads * head_dim]``."""

    def activate_for(self, gate_up: torch.Tensor, reader: Reader, plan: Plan) -> Activations:
        """The MLP's gate, activated, times ``up``, of ``[tokens, 2 * inner]``; for the product that reads it."""


class TorchPlan:
    """The batch, its pool, and what the torch attention shares between layers."""

    def __init__(self, batch: StepBatch, pool: PagePool, shape: ModelShape) -> None:
        self.batch = batch
        self.merged = batch.merged
        self.pool = pool
        self.rotations = {table: _rotation(table, batch.positions) for table in set(shape.ropes)}
        self.attention: AttentionPlan = plan_attention(
            batch, pool, tuple(set(shape.windows)), shape.attention_scale, shape.attention_softcap, shape.dtype
        )


def _rotation(table: RotaryTable, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Cosine, sine and the queries' factor, each ``[tokens, 1, …]``."""
    scale = table.query_scale
    return (
        table.cos.index_select(0, positions)[:, None],
        table.sin.index_select(0, positions)[:, None],
        None if scale is None else scale.index_select(0, positions)[:, None, None],
    )


class TorchOps:
    """Plain torch: the CPU's backend, and the reference of the others on any device.

    Weights in FP8 are dequantised, activations never quantised.
    """

    invariant = False

    def __init__(self, shape: ModelShape, exchange: LoraExchange | None = None) -> None:
        """``exchange``: with the ranks that both factors of adapters are split over."""
        self.shape = shape
        self.exchange = exchange
        self.eps = torch.tensor(shape.eps, device=shape.device)

    def plan(self, batch: StepBatch, pool: PagePool) -> TorchPlan:
        return TorchPlan(batch, pool, self.shape)

    def add_norm(self, residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor | None) -> torch.Tensor:
        if delta is not None:
            residual.add_(delta, alpha=self.shape.residual_scale)
        return residual if weight is None else self._norm(residual, weight)

    def add_norm_for(
        self,
        residual: torch.Tensor,
        delta: torch.Tensor | None,
        weight: torch.Tensor | None,
        readers: Sequence[Reader],
        plan: TorchPlan,
    ) -> torch.Tensor:
        return self.add_norm(residual, delta, weight)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        return linear(x, weight, out=out)

    def project(
        self, group: int, layer: int, x: Activations, weight: Matrix, bias: torch.Tensor | None, plan: TorchPlan
    ) -> torch.Tensor:
        assert isinstance(x, torch.Tensor), "this backend quantises no activations"
        out = linear(x, weight.dequantised(x.dtype) if isinstance(weight, Fp8Matrix) else weight, bias)
        add_lora(group, layer, x, out, plan.batch.lora, self.exchange)
        apply_epilogues(group, layer, out, plan.batch.lora)
        return out

    def attend(self, layer: int, weights: LayerWeights, qkv: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        s = self.shape
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
        return attend(q, plan.pool, layer, plan.batch, plan.attention, s.windows[layer]).flatten(1)

    def activate_for(self, gate_up: torch.Tensor, reader: Reader, plan: TorchPlan) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=1)
        return (F.silu(gate) if self.shape.activation == "silu" else F.gelu(gate, approximate="tanh")) * up

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        size = (x.shape[-1],)
        if self.shape.norm.centred:
            return F.layer_norm(x.float(), size, weight.float(), None, self.shape.eps).to(x.dtype)
        if x.dtype is not torch.float32:
            if self.shape.norm.rounded_first:  # it computes in float32 inside
                return F.rms_norm(x, size, weight, self.shape.eps)
            return F.rms_norm(x.float(), size, weight.float(), self.shape.eps).to(x.dtype)
        # The same in half as many operations: on a CPU, one row costs what calling them costs.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self.eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(weight)


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x [tokens, in]`` times ``weight [out, in]``, into ``out [tokens, out]`` if it is given.

    The same product as ``F.linear``, which on a CPU spends longer on choosing how than one row takes.
    """
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
