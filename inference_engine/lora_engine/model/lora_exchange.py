"""The exchange between ranks between the two products of LoRA where both factors are split (``LoraSharding.FULL``).

It follows S-LoRA (arXiv 2311.03285, section 6). For a column-parallel module every rank multiplies by its rows of A;
the products are gathered on all ranks, and each rank multiplies them by its columns of B. For a row-parallel module the
products with A are summed over all ranks; each rank multiplies the sum by its columns of B and adds the result to the
same columns of the base's partial sums. The base's all-reduce, which follows anyway, then combines the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lora_engine.adapters.device_tier import GroupWeights
from lora_engine.adapters.targets import COLUMN_PARALLEL_GROUPS, REPLICATED_GROUPS
from lora_kernels.tables import Group

from .parallel import Parallel


@dataclass(frozen=True, slots=True)
class LoraExchange:
    """The exchange of shrunk activations between the ranks of ``parallel``; all ranks make the same calls in order."""

    parallel: Parallel

    def shards(self, group: int) -> int:
        """Return the number of ranks over which the rows of A are divided."""
        return self.parallel.world if group in COLUMN_PARALLEL_GROUPS else 1

    def shrunk(self, group: int, part: torch.Tensor) -> torch.Tensor:
        """Exchange this rank's contiguous ``part [tokens, rows]`` for ``[shards, tokens, rows]``; may overwrite it."""
        if group in COLUMN_PARALLEL_GROUPS:
            return self.parallel.all_gather(part)
        return self.parallel.all_reduce(part)[None]

    def part(self, index: int, group: Group) -> Group:
        """Return a target group with the outputs of this rank's B."""
        if index in COLUMN_PARALLEL_GROUPS | REPLICATED_GROUPS:
            return group
        return replace(group, out_features=tuple(out // self.parallel.world for out in group.out_features))

    def columns(self, group: int, out: torch.Tensor) -> torch.Tensor:
        """Return the columns of ``out [tokens, outputs]`` that this rank's B computes, as a view."""
        if group in COLUMN_PARALLEL_GROUPS:
            return out
        width = out.shape[1] // self.parallel.world
        return out.narrow(1, self.parallel.rank * width, width)

    def whole(self, group: int, weights: GroupWeights) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Gather, for each target of a group, the factors whose product has this rank's part of the base's matrix.

        They are A ``[rank, in]`` and B ``[rank, out]``, copied: for rare operations, not for every step.
        """
        if group in REPLICATED_GROUPS:
            return [(weights.a_t[:, t.rank_start : t.rank_stop].t(), t.b) for t in weights.targets]
        if group in COLUMN_PARALLEL_GROUPS:
            a = self.parallel.all_gather(weights.a_t.t().contiguous())  # [ranks, rows of all targets, in]
            return [(a[:, t.rank_start : t.rank_stop].flatten(0, 1), t.b) for t in weights.targets]
        factors = []
        for target in weights.targets:
            b = self.parallel.all_gather(target.b.contiguous())  # [ranks, rank, columns of a rank]
            factors.append((weights.a_t[:, target.rank_start : target.rank_stop].t(), b.transpose(0, 1).flatten(1)))
        return factors
