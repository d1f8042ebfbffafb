"""The weights of a layer's experts on one rank: stacked, plain, in FP8 or in MXFP4."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F

from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import BLOCK, Fp8Matrix, Fp8Stack, columns_of, quantise, rows_of
from lora_kernels.mxfp4 import MXFP4_BLOCK, MXFP4_NARROW, Mxfp4Stack, dequantised, factors

from .config import ModelConfig
from .rank_tensors import RankTensors
from .tensor_shapes import CORRECTION, EXPERT_MODULES, EXPERTS, ROUTER, SHARED_GATE
from .weights import ExpertWeights, Matrix, Stack

log = logging.getLogger(__name__)

# Rows of a router are a multiple of this: cuBLAS takes nine times as long for 257 rows as for 256 (4,096 tokens, H200).
_ROUTER_ROWS = 8


def uneven_blocks(config: ModelConfig, world: int) -> str:
    """Return why experts in blocks of scales cannot be split over ``world`` ranks, and what to do; "": they can be."""
    experts, quantization = config.experts, config.quantization
    if experts is None or quantization is None or not quantization.in_blocks or world == 1:
        return ""
    if experts.inner // world % BLOCK == 0:
        return ""
    blocks = experts.inner // BLOCK if experts.inner % BLOCK == 0 else 1
    ranks = [str(n) for n in range(1, world) if blocks % n == 0]
    return (
        f"each expert has {experts.inner} inner features with a scale for every {BLOCK}, which cannot be split over "
        f"{world} GPUs; use {' or '.join(ranks)}, or the float16 or bfloat16 checkpoint with --quantization fp8."
    )


class ExpertTensors:
    """The experts of the layers of a model that has some, on one rank."""

    def __init__(self, tensors: RankTensors) -> None:
        experts, family = tensors.config.experts, tensors.config.family.experts
        assert experts is not None and family is not None, "the model has experts"
        self._tensors, self._experts, self._family = tensors, experts, family
        self._inner = tensors.parallel.shard(experts.inner, "inner features of experts")
        self._keeps_mxfp4 = experts.mxfp4 and self._inner % MXFP4_BLOCK == 0
        if experts.mxfp4 and not self._keeps_mxfp4:
            log.warning(
                "experts in MXFP4 are dequantised, since %d inner features on each of %d GPUs are no multiple of %d",
                self._inner, tensors.parallel.world, MXFP4_BLOCK,
            )  # fmt: skip

    def load(self, prefix: str) -> ExpertWeights:
        """Load a layer's experts one after the other into the stacked tensors."""
        return self._interleaved(prefix) if self._family.interleaved else self._single(prefix)

    def _single(self, prefix: str) -> ExpertWeights:
        """Load the experts of a layer that has a module for each of their products."""
        tensors, experts, hidden = self._tensors, self._experts, self._tensors.config.hidden_size
        modules = [[f"{prefix}{EXPERTS}.{expert}.{module}.weight" for module in EXPERT_MODULES]
                   for expert in range(experts.count)]  # fmt: skip
        gate_up = self._stack([names[:2] for names in modules], (self._inner, hidden))
        down = self._stack([names[2:] for names in modules], (hidden, self._inner))
        router = f"{prefix}{ROUTER}.weight"
        routers = (router, f"{prefix}{SHARED_GATE}.weight") if experts.gated_shared else (router,)
        rows = torch.cat([tensors.plain(tensors.module(name)) for name in routers])
        return ExpertWeights(
            tensors.put(router, F.pad(rows, (0, 0, 0, -len(rows) % _ROUTER_ROWS))),
            gate_up,
            down,
            correction=tensors.in_float32(f"{prefix}{CORRECTION}") if experts.sigmoid else None,
            separate_mlp=experts.shared > 0 and not experts.gated_shared,
        )

    def _stack(self, names: list[list[str]], shape: tuple[int, int]) -> Stack:
        """Load this rank's matrices ``[rows, columns]`` of all experts: in FP8 if they are, or are to be quantised.

        ``names`` are those of each expert's matrices, whose rows follow each other.
        """
        tensors = self._tensors
        stored = [name in tensors.in_fp8 for of_expert in names for name in of_expert]
        if any(stored) and not all(stored):
            tensors.unquantised.append(names[0][0])
        matrices = ((self._part(tensors.module(name), shape) for name in of_expert) for of_expert in names)
        return self._filled(names[0][0], matrices, self._empty(len(names[0]), shape, all(stored)))

    def _part(self, whole: Matrix, shape: tuple[int, int]) -> Matrix:
        """Return this rank's part of an expert's matrix, which is split in the dimension that ``shape`` has less of."""
        rows, columns = shape
        parallel = self._tensors.parallel
        row, column = (size * parallel.rank if size < of else 0 for size, of in zip(shape, whole.shape, strict=True))
        if not isinstance(whole, Fp8Matrix):
            return whole[row : row + rows, column : column + columns]
        by_rows = rows_of(whole, row, row + rows)
        part = by_rows and columns_of(by_rows, column, column + columns)
        if part is None:
            raise UnsupportedModel(uneven_blocks(self._tensors.config, parallel.world))
        return part

    def _interleaved(self, prefix: str) -> ExpertWeights:
        """Load the experts of a layer that has one tensor for each product."""
        tensors, name, inner = self._tensors, f"{prefix}{EXPERTS}", self._inner
        hidden = tensors.config.hidden_size
        mine = slice(tensors.parallel.rank * inner, (tensors.parallel.rank + 1) * inner)
        gate_up: Stack
        down: Stack
        if self._keeps_mxfp4:
            gate_up, down = self._in_mxfp4(f"{name}.gate_up_proj", mine), self._in_mxfp4(f"{name}.down_proj", mine)
        else:
            gates_and_ups = self._matrices(f"{name}.gate_up_proj")
            parts = ((rows[0::2][mine], rows[1::2][mine]) for rows in gates_and_ups)
            gate_up = self._filled(f"{name}.gate_up_proj", parts, self._empty(2, (inner, hidden)))
            downs = ((rows[:, mine],) for rows in self._matrices(f"{name}.down_proj"))
            down = self._filled(f"{name}.down_proj", downs, self._empty(1, (hidden, inner)))
        router = tensors.matrix(f"{prefix}{ROUTER}.weight")
        if not self._family.biased:
            return ExpertWeights(router, gate_up, down)
        biases = tensors.source.tensor(f"{name}.gate_up_proj_bias")
        of_rank = torch.cat((biases[:, 0::2][:, mine], biases[:, 1::2][:, mine]), dim=1)
        return ExpertWeights(
            router,
            gate_up,
            down,
            tensors.matrix(f"{prefix}{ROUTER}.bias"),
            tensors.place(f"{name}.gate_up_proj_bias", of_rank),
            tensors.row_bias(f"{name}.down_proj_bias"),
        )

    def _empty(self, parts: int, shape: tuple[int, int], in_fp8: bool = False) -> torch.Tensor | Fp8Stack:
        """Allocate ``parts`` matrices of each expert."""
        tensors, count, (rows, columns) = self._tensors, self._experts.count, shape
        if in_fp8 or tensors.quantised:
            quantization = tensors.config.quantization
            blocks = in_fp8 and quantization is not None and quantization.in_blocks
            return Fp8Stack.empty(count, parts, rows, columns, blocks, tensors.device)
        return torch.empty(count, parts * rows, columns, dtype=tensors.dtype, device=tensors.device)

    def _filled(self, name: str, experts: Iterable[Iterable[Matrix]], stack: torch.Tensor | Fp8Stack) -> Stack:
        """Put the matrices of each expert, whose rows follow each other, into a stack."""
        tensors = self._tensors
        for expert, matrices in enumerate(experts):
            for part, matrix in enumerate(matrices):
                rows = matrix.shape[0]
                if isinstance(stack, torch.Tensor):
                    stack[expert, part * rows : (part + 1) * rows].copy_(tensors.plain(matrix))
                elif isinstance(matrix, Fp8Matrix):
                    stack.place(expert, part, matrix)
                else:
                    stack.place(expert, part, quantise(matrix.to(tensors.device, tensors.dtype)))
        tensors.source.placed(name, stack)
        return stack

    def _in_mxfp4(self, name: str, mine: slice) -> Mxfp4Stack:
        """Load a product's matrices of all experts as they are stored; ``mine`` are this rank's inner features."""
        tensors = self._tensors
        blocks, scales = tensors.source.tensor(f"{name}_blocks"), tensors.source.tensor(f"{name}_scales")
        if is_down := name.endswith("down_proj"):
            groups = slice(mine.start // MXFP4_BLOCK, mine.stop // MXFP4_BLOCK)
            blocks, scales = blocks[:, :, groups], scales[:, :, groups]
        rows = scales.shape[1] if is_down else 2 * (mine.stop - mine.start)
        largest = scales.amax()
        wide = not largest.is_meta and int(largest) > MXFP4_NARROW
        stack = Mxfp4Stack.empty(len(blocks), rows, scales.shape[2] * MXFP4_BLOCK, tensors.device, wide)
        parts = [slice(None)] if is_down else [slice(mine.start * 2 + part, mine.stop * 2, 2) for part in (0, 1)]
        for expert, (of_blocks, of_scales) in enumerate(zip(blocks, scales, strict=True)):
            for part, rows_of_part in enumerate(parts):
                placed = (of[rows_of_part].to(tensors.device) for of in (of_blocks, of_scales))
                stack.place(expert, part, *placed)
        tensors.source.placed(f"{name}_scales", factors(largest.to(tensors.device)))
        return stack

    def _matrices(self, name: str) -> Iterator[torch.Tensor]:
        """Yield the matrix ``[out, in]`` of each expert, of a product that has one tensor of all of them."""
        source = self._tensors.source
        if self._experts.mxfp4:
            blocks, scales = source.tensor(f"{name}_blocks"), source.tensor(f"{name}_scales")
            for of_blocks, of_scales in zip(blocks, scales, strict=True):
                yield dequantised(of_blocks, of_scales, self._tensors.dtype)
        else:
            for matrix in source.tensor(name):
                yield matrix.t()
