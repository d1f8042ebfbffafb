"""The GPU's backend where every token's row is bitwise the same in every batch (``--deterministic``).

Each row takes kernels, tiles and an order of sums that follow from the model and the row's position alone. Decode rows
and prefill rows of a step have launches of their own, so that neither's depends on whether the other is there. Which
of the two a token is never changes either: see ``runner.of_answer``.

cuBLAS chooses its kernels by the number of rows, but all that do not split a sum add up in the same order. So it is
told to split none, which makes some products of few rows ten times slower, and those rows are padded. That the rows do
agree is found out at start, for each matrix and every number of rows that a step may have; a matrix for which they do
not is multiplied by a kernel of this repository.
"""

from __future__ import annotations

import logging

import torch
import torch.nn.functional as F

from lora_kernels.invariant_decode import invariant_decode
from lora_kernels.invariant_linear import invariant_linear
from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.work_items import token_tiles

from .batch import StepBatch
from .ops import Activations, linear
from .triton_ops import LoraPlan, TritonOps, TritonPlan, covering, lora_shape, max_rank, readable, split_spans
from .weights import Matrix, ModelWeights

log = logging.getLogger(__name__)
LEAST_ROWS = 64  # of a product by cuBLAS: on an H200 as quick as one row where it may split sums


class InvariantOps(TritonOps):
    """``TritonOps`` without what it chooses by batch; it has no merged adapters."""

    invariant = True
    by_cublas: frozenset[torch.Size] = frozenset()  # shapes of matrices that it multiplies row by row the same

    @torch.inference_mode()
    def choose_products(self, weights: ModelWeights, step_tokens: int, max_running: int) -> None:
        """Find out which matrices cuBLAS may multiply: those of which every number of rows gives each the same."""
        if weights.lm_head.device.type == "cuda":
            forbid_split_sums()
        layer = weights.layers[0]
        of_steps = [
            (matrix, max(step_tokens, max_running)) for matrix in (layer.qkv, layer.o, layer.gate_up, layer.down)
        ]
        agree: dict[torch.Size, bool] = {}
        for matrix, rows in ((weights.lm_head, max_running), *of_steps):
            if isinstance(matrix, torch.Tensor):
                # What is compiled ahead is listed on the meta device, as if all did.
                alike = matrix.is_meta or (matrix.is_cuda and rows_agree(matrix, rows))
                agree[matrix.shape] = alike and agree.get(matrix.shape, True)
        self.by_cublas = frozenset(shape for shape, alike in agree.items() if alike)
        cublas, own = ([tuple(shape) for shape in agree if agree[shape] is alike] for alike in (True, False))
        log.info("deterministic: matrices of %s are multiplied by cuBLAS, of %s by our kernel", cublas, own)

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        if weight.shape not in self.by_cublas:
            return invariant_linear(x, weight, bias, out)
        product = padded_linear(x, weight, out)
        return product if bias is None else product.add_(bias)  # with a bias cuBLAS takes other kernels

    def product_and_deltas(
        self, group: int, layer: int, x: Activations, weight: Matrix, bias: torch.Tensor | None, plan: TritonPlan
    ) -> torch.Tensor:
        """The base's product first, whatever else is in the step: it decides how often the sum is rounded."""
        full, x = readable(x, weight)
        out = self._product(x, weight, bias)
        assert full is not None, "adapters read what was not quantised"
        self.add_deltas(group, layer, full, out, out, plan)
        return out

    def decode(self, q: torch.Tensor, pool: torch.Tensor, out: torch.Tensor, window: int, plan: TritonPlan) -> None:
        """In as many launches as the workspace needs: answers that go on have several rows each."""
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
            )

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


def forbid_split_sums() -> None:
    """For all products of this process by cuBLAS; only cuBLASLt can be told so."""
    torch.backends.cuda.preferred_blas_library("cublaslt")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)


def padded_linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """``linear`` with at least ``LEAST_ROWS`` rows; what is in the others is of no matter."""
    rows = x.shape[0]
    if rows >= LEAST_ROWS:
        return linear(x, weight, None, out)
    product = linear(F.pad(x, (0, 0, 0, LEAST_ROWS - rows)), weight)[:rows]
    return product if out is None else out.copy_(product)


def rows_agree(matrix: torch.Tensor, most: int) -> bool:
    """Whether a product's row is bitwise the same among any number of rows up to ``most``, the first as the last."""
    x = torch.randn(1, matrix.shape[1], device=matrix.device).to(matrix.dtype).expand(most, -1).contiguous()
    expected = padded_linear(x[:1], matrix)
    differ = torch.zeros((), dtype=torch.bool, device=matrix.device)
    for count in range(2, most + 1):
        differ |= (padded_linear(x[:count], matrix)[:: max(count - 1, 1)] != expected).any()
    return not bool(differ)
