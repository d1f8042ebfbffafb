"""The variants of the LoRA kernels and their launch configurations.

Rows of adapters lie in pool rows of ``kv_dim`` elements, ``page_elems / kv_dim`` to a page; a block of columns never
crosses a pool row, so one page lookup serves a row of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import torch

# Tokens in a small tile: the smallest matrix product.
SMALL_TILE = 16
# Tokens in a large tile, for prefill.
LARGE_TILE = 64


class KernelVariant(IntEnum):
    """A variant of the LoRA kernels; the value is the maximum number of tokens in a tile."""

    GEMV_1 = 1  # bound by bandwidth: no matrix units, every weight in flight at once
    GEMV_2 = 2  # the same for two tokens over one reading of the weights
    GROUPED = 16  # one small matrix product per tile: several decode tokens share an adapter
    PREFILL = 64  # prefill chunks; tiles of up to 16 tokens (decode rows beside them) take the small product


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The launch configuration of a kernel: a block of ``rows`` (of rank) and ``columns`` of a weight in flight.

    ``warps``: warps of a program; ``stages``: of the loop's pipeline. ``programs``: maximum number of programs in a
    launch, each of which processes several work items where there are more; 0 where the variant's programs do not
    share work items. ``registers``: maximum per thread, 0 for the compiler's choice; fewer let more programs reside on
    a multiprocessor.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    programs: int = 0
    registers: int = 0

    def options(self) -> dict[str, int]:
        """Return the compile options of the launch."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return options | {"maxnreg": self.registers} if self.registers else options


@dataclass(frozen=True, slots=True)
class SplitK:
    """A rule for the number of input elements that one program of a shrink reads.

    It is ``most``, halved down to ``least`` as long as the launch has at most ``full`` programs.
    Fewer programs leave multiprocessors idle; more add partial sums without reading faster.
    """

    most: int
    least: int = 0
    full: int = 0

    def elements(self, in_features: int, programs: int) -> int:
        """Return the input elements of a split, for a launch with ``programs`` programs for each split."""
        split_size = self.most
        while split_size > self.least and programs * num_splits(in_features, split_size // 2) <= self.full:
            split_size //= 2
        return split_size


# The fastest configurations measured on an H200 with `benchmarks/kernel_table.py`.
SHRINK = {
    KernelVariant.GEMV_1: LaunchConfig(4, 1024, 2, 1, programs=1056, registers=128),
    KernelVariant.GEMV_2: LaunchConfig(4, 1024, 4, 1, programs=2112, registers=96),
    KernelVariant.GROUPED: LaunchConfig(16, 128, 4, 1, programs=792),  # columns are per warp: ``shrink_launch``
    KernelVariant.PREFILL: LaunchConfig(32, 256, 4, 2),
}
EXPAND = {
    KernelVariant.GEMV_1: LaunchConfig(32, 128, 1, 1),
    KernelVariant.GEMV_2: LaunchConfig(32, 128, 1, 1),
    KernelVariant.GROUPED: LaunchConfig(16, 256, 4, 1),
    KernelVariant.PREFILL: LaunchConfig(16, 128, 4, 1),
}
SPLIT_K = {
    KernelVariant.GEMV_1: SplitK(2048),
    KernelVariant.GEMV_2: SplitK(2048),
    KernelVariant.GROUPED: SplitK(4096, least=1024, full=2450),
    KernelVariant.PREFILL: SplitK(2048),
}
# Input elements of a split in every variant, where sums must not depend on the launch's size.
INVARIANT_SPLIT = 1024


@dataclass(frozen=True, slots=True)
class ShrinkBuffers:
    """The output of a shrink: partial sums ``[splits, tokens, rows]`` float32, and their total ``[tokens, rows]``."""

    partial: torch.Tensor
    total: torch.Tensor


@dataclass(frozen=True, slots=True)
class LoraShape:
    """The launch parameters that a captured graph fixes.

    The tiles are cut for the same ``variant``. ``max_rank`` bounds the rank of every module in the batch.
    ``invariant``: a row's sums are bitwise the same in any tile of any launch.
    """

    variant: KernelVariant
    max_rank: int
    invariant: bool = False

    def split_size(self, in_features: int, programs: int) -> int:
        """Return the input elements that one program of a shrink reads; ``programs``: programs for each split."""
        return INVARIANT_SPLIT if self.invariant else SPLIT_K[self.variant].elements(in_features, programs)

    @property
    def small_tile(self) -> int:
        """Maximum number of tokens with which a tile of ``PREFILL`` takes the small product; 0: none does."""
        return 0 if self.invariant else SMALL_TILE

    def workspace(
        self, tokens: int, max_in_features: int, max_targets: int, device: torch.device | str, dtype: torch.dtype
    ) -> ShrinkBuffers:
        """Return buffers for any group with at most these input features and targets, and activations of ``dtype``."""
        rows = self.max_rank * max_targets
        splits = num_splits(max_in_features, self.split_size(max_in_features, programs=1))
        partial = torch.empty(splits, tokens, rows, dtype=torch.float32, device=device)
        return ShrinkBuffers(partial, torch.empty(tokens, rows, dtype=dtype, device=device))


def shrink_launch(variant: KernelVariant, kv_dim: int, fp8: bool) -> LaunchConfig:
    """Return the launch configuration of a shrink over pool rows of ``kv_dim`` elements; ``fp8``: some are in FP8.

    In GROUPED, warps of 256 columns each read a quarter faster than those of 128 as long as all of a program's lie in
    one pool row (64 adapters, q,k,v of Llama-3.1-8B: 23 instead of 32 us); FP8 factors, which they convert, are slower.
    """
    launch, row = SHRINK[variant], kv_dim & -kv_dim
    if variant is not KernelVariant.GROUPED or fp8 or row < 512:
        return launch
    return replace(launch, columns=256, warps=min(4, row // 256))


def num_splits(in_features: int, split_size: int) -> int:
    """Return the number of splits of the input, each of which has its own partial sums."""
    return -(-in_features // split_size)


def check_layout(x: torch.Tensor, pool: torch.Tensor, kv_dim: int, features: int, name: str) -> None:
    """Raise ``ValueError`` unless ``x [tokens, features]`` has contiguous rows and pages are whole pool rows."""
    if x.shape[1] != features or x.stride(1) != 1:
        raise ValueError(
            f"{name} is {tuple(x.shape)} with strides {x.stride()}, but needs contiguous rows of {features}"
        )
    if pool.shape[1] % kv_dim or not pool.is_contiguous():
        raise ValueError(
            f"the pool must be contiguous, with pages of whole pool rows of {kv_dim} elements, not of {pool.shape[1]}"
        )


def block_columns(kv_dim: int, limit: int) -> int:
    """Return the largest power of two up to ``limit`` that divides ``kv_dim``, so that a block lies in one pool row.

    Raises ``ValueError`` below 16, the smallest size of a matrix instruction.
    """
    block = min(kv_dim & -kv_dim, limit)
    if block < 16:
        raise ValueError(f"kv_dim {kv_dim} is not a multiple of 16; these kernels need whole blocks of 16 elements")
    return block
