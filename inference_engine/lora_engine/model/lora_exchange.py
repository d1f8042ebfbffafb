"""What ranks exchange between the two products of LoRA where both factors are split (``LoraSharding.FULL``).

S-LoRA (arXiv 2311.03285, section 6). Of a column-parallel module every rank multiplies by its rows of A, all ranks get
what all of them made, and each multiplies that by its columns of B. Of a row-parallel one every rank's product with A
is a part of a sum, which all get; each multiplies it by its columns of B and adds that to its own columns of the base's
partial sums, so that the sum of the base's, which follows anyway, brings the columns together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lora_engine.adapters.device_tier import GroupWeights
from lora_engine.adapters.targets import COLUMN_PARALLEL_GROUPS
from lora_kernels.tables import Group

from .parallel import Parallel


@dataclass(frozen=True, slots=True)
class LoraExchange:
    """Between the ranks of ``parallel``. All of them take part in every call, in the same order."""

    parallel: Parallel

    def shards(self, group: int) -> int:
        """Ranks that have some of the rows of A each."""
        return self.parallel.world if group in COLUMN_PARALLEL_GROUPS else 1

    def shrunk(self, group: int, own: torch.Tensor) -> torch.Tensor:
        """``[shards, tokens, rows]`` of what this rank made, ``own [tokens, rows]``; contiguous, and may be changed."""
        if group in COLUMN_PARALLEL_GROUPS:
            return self.parallel.all_gather(own)
        return self.parallel.all_reduce(own)[None]

    def part(self, index: int, group: Group) -> Group:
        """A target group with the outputs that this rank's B has."""
        if index in COLUMN_PARALLEL_GROUPS:
            return group
        return replace(group, out_features=tuple(out // self.parallel.world for out in group.out_features))

    def columns(self, group: int, out: torch.Tensor) -> torch.Tensor:
        """Those of a group's output that this rank's B has: a view of ``out [tokens, outputs]``."""
        if group in COLUMN_PARALLEL_GROUPS:
            return out
        width = out.shape[1] // self.parallel.world
        return out.narrow(1, self.parallel.rank * width, width)

    def whole(self, group: int, weights: GroupWeights) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each target of a group the factors whose product is this rank's part of the base's matrix.

        A ``[rank, in]`` and B ``[rank, out]``, gathered; a copy, for what is done once and not in every step.
        """
        if group in COLUMN_PARALLEL_GROUPS:
            a = self.parallel.all_gather(weights.a_t.t().contiguous())  # [ranks, rows of all targets, in]
            return [(a[:, t.rank_start : t.rank_stop].flatten(0, 1), t.b) for t in weights.targets]
        found = []
        for target in weights.targets:
            b = self.parallel.all_gather(target.b.contiguous())  # [ranks, rank, own columns]
            found.append((weights.a_t[:, target.rank_start : target.rank_stop].t(), b.transpose(0, 1).flatten(1)))
        return found
