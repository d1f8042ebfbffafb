"""The batch-invariant GPU backend (``--deterministic``): every token's row is bitwise the same in every batch.

The model and a row's position alone determine its kernels, tiles and order of sums. Decode rows and prefill rows of a
step have separate launches, so that neither depends on the presence of the other. A token is always processed as the
same kind of row: see ``runner.of_answer``. The chunks of the gated delta rule begin at fixed tokens of a prompt: the
scheduler cuts prompts only where a chunk ends (``prompt_boundary``).

cuBLAS chooses its kernels by the number of rows, but all kernels that do not split a sum add up in the same order. So
splitting is forbidden, which makes some products of few rows ten times slower; those rows are padded. At start the
engine checks for each matrix, and every number of rows that a step may have, that rows agree. A kernel of this
repository multiplies the matrices for which they do not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property

import torch
import torch.nn.functional as F

from lora_kernels.experts import ExpertsConfig, form_of, invariant_configs
from lora_kernels.invariant_decode import invariant_decode
from lora_kernels.invariant_linear import invariant_linear
from lora_kernels.kernel_variants import KernelVariant, block_columns
from lora_kernels.state_pages import RunField
from lora_kernels.work_items import token_tiles

from .batch import StepBatch
from .ops import Activations, linear
from .triton_ops import LoraPlan, TritonOps, TritonPlan, covering, lora_shape, max_rank, split_spans
from .weights import ExpertWeights, LayerWeights, Matrix, ModelWeights

log = logging.getLogger(__name__)
# Minimum rows of a product by cuBLAS: on an H200 as fast as one row for which it may split sums.
LEAST_ROWS = 64


class InvariantOps(TritonOps):
    """A ``TritonOps`` without choices that depend on the batch; it does not support merged adapters."""

    invariant = True
    by_cublas: frozenset[torch.Size] = frozenset()  # shapes of matrices that cuBLAS multiplies batch-invariantly

    @cached_property
    def single_rows(self) -> torch.Tensor:
        """The table of runs of one row each; graphs read it, so it must stay in its place."""
        return _single_rows(self.workspace.partial.shape[0], self.device)

    @torch.inference_mode()
    def choose_products(self, weights: ModelWeights, step_tokens: int, max_running: int) -> None:
        """Determine the matrices that cuBLAS may multiply: each row must be the same among any number of rows."""
        if weights.lm_head.device.type == "cuda":
            forbid_split_sums()
        of_shape = {
            matrix.shape: matrix
            for layer in weights.layers
            for matrix in _matrices(layer)
            if isinstance(matrix, torch.Tensor)
        }
        of_steps = [(matrix, max(step_tokens, max_running)) for matrix in of_shape.values()]
        agree: dict[torch.Size, bool] = {}
        for matrix, rows in ((weights.lm_head, max_running), *of_steps):
            if isinstance(matrix, torch.Tensor):
                # On the meta device, where kernels to compile ahead are recorded, all matrices count as agreeing.
                alike = matrix.is_meta or (matrix.is_cuda and rows_agree(matrix, rows))
                agree[matrix.shape] = alike and agree.get(matrix.shape, True)
        self.by_cublas = frozenset(shape for shape, alike in agree.items() if alike)
        cublas, triton = ([tuple(shape) for shape in agree if agree[shape] is alike] for alike in (True, False))
        log.info("deterministic: cuBLAS multiplies matrices of %s, the engine's kernel those of %s", cublas, triton)

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        if weight.shape not in self.by_cublas:
            return invariant_linear(x, weight, bias, out)
        product = padded_linear(x, weight, out)
        return product if bias is None else product.add_(bias)  # with a fused bias cuBLAS takes other kernels

    def _deltas_come_first(self, group: int, x: Activations, weight: Matrix, plan: TritonPlan) -> bool:
        """Return false: the order determines how often the sum is rounded."""
        return False

    def decode(
        self,
        q: torch.Tensor,
        pool: torch.Tensor,
        out: torch.Tensor,
        window: int,
        plan: TritonPlan,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """Decode in as many launches as the workspace needs: continued answers have several rows each."""
        s, most = self.shape, self.workspace.partial.shape[0]
        for first in range(0, len(q), most):
            rows = slice(first, first + most)
            invariant_decode(
                q[rows],
                pool,
                plan.block_table[rows],
                plan.seq_lens[rows],
                out[rows],
                self.workspace,
                heads=s.heads,
                kv_heads=s.kv_heads,
                page_tokens=plan.pool.geometry.page_tokens,
                window=window,
                scale=s.attention_scale,
                softcap=s.attention_softcap,
                sinks=sinks,
            )

    def decode_runs(self, plan: TritonPlan) -> torch.Tensor:
        """Return the table in every step, so that all steps launch the same kernels."""
        if plan.decode_runs is not None:
            return plan.decode_runs
        if self.single_rows.shape[1] < plan.num_decode:  # not in a graph, whose rows are at most those of the workspace
            return _single_rows(plan.num_decode, self.device)
        return self.single_rows[:, : plan.num_decode]

    def launches_of_experts(
        self, weights: ExpertWeights, rows: int, plan: TritonPlan
    ) -> Iterator[tuple[slice, ExpertsConfig | None]]:
        """Yield decode rows and prompts apart, each with one configuration for any number of rows."""
        kv_dim, parts = plan.pool.geometry.kv_dim, (slice(0, plan.num_decode), slice(plan.num_decode, rows))
        for part, config in zip(parts, invariant_configs(form_of(weights.gate_up)), strict=True):
            if part.start < part.stop:
                # As with adapters on experts: whether there are some depends on the batch.
                yield part, config._replace(outputs=block_columns(kv_dim, config.outputs))

    def _lora(self, batch: StepBatch) -> tuple[LoraPlan, ...]:
        used, rows = list(batch.lora), len(batch.positions)
        if not used:
            return ()
        decode, prefill = split_spans(covering(used, rows), batch.num_decode)
        return tuple(
            self.lora_plan(token_tiles(spans, variant), lora_shape(variant, max_rank(used), self.invariant), rows)
            for spans, variant in ((decode, KernelVariant.GROUPED), (prefill, KernelVariant.PREFILL))
            if any(span.slot for span in spans)
        )


def _single_rows(rows: int, device: torch.device) -> torch.Tensor:
    """Return the table of so many runs of one row each."""
    table = torch.zeros(len(RunField), rows, dtype=torch.int32, device=device)
    table[RunField.ROWS] = 1
    return table


def _matrices(layer: LayerWeights) -> Iterator[Matrix | None]:
    """Yield the matrices of a layer's products, without those of experts."""
    yield from (layer.mixer_in, layer.mixer_out, layer.gate_up, layer.down)
    if layer.delta is not None:
        yield layer.delta.gates
    if layer.experts is not None:
        yield layer.experts.router


def forbid_split_sums() -> None:
    """Forbid cuBLAS to split sums, for all products of this process; only cuBLASLt has such a setting."""
    torch.backends.cuda.preferred_blas_library("cublaslt")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)


def padded_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute ``linear`` with at least ``LEAST_ROWS`` rows; the contents of padding rows do not matter."""
    rows = x.shape[0]
    if rows >= LEAST_ROWS:
        return linear(x, weight, None, out)
    product = linear(F.pad(x, (0, 0, 0, LEAST_ROWS - rows)), weight)[:rows]
    return product if out is None else out.copy_(product)


def rows_agree(matrix: torch.Tensor, most: int) -> bool:
    """Return whether every row of a product is bitwise the same among any number of rows up to ``most``."""
    x = torch.randn(1, matrix.shape[1], device=matrix.device).to(matrix.dtype).expand(most, -1).contiguous()
    expected = padded_linear(x[:1], matrix)
    differ = torch.zeros((), dtype=torch.bool, device=matrix.device)
    for count in range(2, most + 1):
        differ |= (padded_linear(x[:count], matrix)[:: max(count - 1, 1)] != expected).any()
    return not bool(differ)
