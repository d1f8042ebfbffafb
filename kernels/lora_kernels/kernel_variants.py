"""The variants that a launch of the LoRA kernels takes, and how each one's kernels are launched.

Rows of adapters lie in pool rows of ``kv_dim`` elements, ``page_elems / kv_dim`` to a page; a block of columns never
crosses a pool row, so one page lookup serves a row of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch

SMALL_TILE = 16  # tokens of the smallest matrix product
LARGE_TILE = 64


class KernelVariant(IntEnum):
    """How a launch treats its tiles; the value is the most tokens a tile may have."""

    GEMV_1 = 1  # bound by bandwidth: no matrix units, every weight in flight at once
    GEMV_2 = 2  # the same for two tokens over one reading of the weights
    GROUPED = 16  # one small matrix product per tile: several decode tokens share an adapter
    PREFILL = 64  # prefill chunks; tiles of up to 16 tokens (decode rows beside them) take the small product


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """How a kernel is launched: a block of ``rows`` (of rank) and ``columns`` of a weight in flight, warps, stages of
    the loop's pipeline.

    ``programs``: the most programs of a launch, each of which walks several work items where there are more; 0 where
    the variant's programs do not share work items. ``registers``: the most of a thread, 0 for the compiler's choice;
    fewer let more programs stay on a multiprocessor.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    programs: int = 0
    registers: int = 0

    def options(self) -> dict[str, int]:
        """The launch's compile options."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return options | {"maxnreg": self.registers} if self.registers else options


@dataclass(frozen=True, slots=True)
class SplitK:
    """Input elements that one program of a shrink reads: ``most``, or halved down to ``least`` as long as no more than
    ``full`` programs result.

    Fewer programs leave multiprocessors idle; more add sums without reading any faster.
    """

    most: int
    least: int = 0
    full: int = 0

    def elements(self, in_features: int, programs: int) -> int:
        """For a launch with ``programs`` for each split."""
        split_size = self.most
        while split_size > self.least and programs * num_splits(in_features, split_size // 2) <= self.full:
            split_size //= 2
        return split_size


# The quickest of those tried on an H200; `benchmarks/kernel_table.py` times them.
SHRINK = {
    KernelVariant.GEMV_1: LaunchConfig(4, 2048, 2, 1, programs=1056, registers=128),
    KernelVariant.GEMV_2: LaunchConfig(4, 2048, 4, 1, programs=2112, registers=96),
    KernelVariant.GROUPED: LaunchConfig(16, 128, 4, 1, programs=792),  # the columns of one warp
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
INVARIANT_SPLIT = 1024  # of any variant, where it must not depend on the launch


@dataclass(frozen=True, slots=True)
class ShrinkBuffers:
    """Where shrunk activations go: partial sums ``[splits, tokens, rows]`` float32; their sum ``[tokens, rows]``."""

    partial: torch.Tensor
    total: torch.Tensor


@dataclass(frozen=True, slots=True)
class LoraShape:
    """What a launch is sized for: everything that a captured graph fixes.

    ``variant`` is also the one that the tiles are cut for. ``max_rank`` bounds the rank of every module in the batch.
    ``invariant``: a row's sums are the same whatever tile it is in, and whatever else the launch has.
    """

    variant: KernelVariant
    max_rank: int
    invariant: bool = False

    def split_size(self, in_features: int, programs: int) -> int:
        """Input elements for one program of a shrink that has ``programs`` for each split."""
        return INVARIANT_SPLIT if self.invariant else SPLIT_K[self.variant].elements(in_features, programs)

    @property
    def small_tile(self) -> int:
        """Tokens up to which a tile of ``PREFILL`` takes the small product; 0: all take the large one."""
        return 0 if self.invariant else SMALL_TILE

    def workspace(
        self, tokens: int, max_in_features: int, max_targets: int, device: torch.device | str, dtype: torch.dtype
    ) -> ShrinkBuffers:
        """For any group with at most that many input features and targets; ``dtype`` is the activations'."""
        rows = self.max_rank * max_targets
        splits = num_splits(max_in_features, self.split_size(max_in_features, programs=1))
        partial = torch.empty(splits, tokens, rows, dtype=torch.float32, device=device)
        return ShrinkBuffers(partial, torch.empty(tokens, rows, dtype=dtype, device=device))


def num_splits(in_features: int, split_size: int) -> int:
    """Splits of the input, each with partial sums of its own."""
    return -(-in_features // split_size)


def check_layout(x: torch.Tensor, pool: torch.Tensor, kv_dim: int, features: int, name: str) -> None:
    """Raises ``ValueError`` unless ``x [tokens, features]`` has contiguous rows and pages are whole pool rows."""
    if x.shape[1] != features or x.stride(1) != 1:
        raise ValueError(
            f"{name} is {tuple(x.shape)} with strides {x.stride()}, but needs contiguous rows of {features}"
        )
    if pool.shape[1] % kv_dim or not pool.is_contiguous():
        raise ValueError(f"the pool's pages of {pool.shape[1]} elements are no contiguous pool rows of {kv_dim}")


def block_columns(kv_dim: int, limit: int) -> int:
    """The largest power of two that divides ``kv_dim``, at most ``limit``: a block then lies in one pool row.

    Raises ``ValueError`` below 16, the least a matrix instruction takes.
    """
    block = min(kv_dim & -kv_dim, limit)
    if block < 16:
        raise ValueError(f"kv_dim {kv_dim} is not a multiple of 16; these kernels need whole blocks of 16 elements")
    return block
