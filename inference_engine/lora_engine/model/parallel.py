"""Where this process stands among its tensor-parallel peers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Parallel:
    """Rank and world size of a tensor-parallel group; world 1 needs no process group.

    The base model is sharded as Megatron does (column layers by output, row layers by input).
    Adapters: B of a column layer and A of a row layer are sharded, the other factor is
    replicated, so LoRA adds no collective of its own (S-LoRA section 6 shards both factors
    and pays two small ones).
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of ``x`` over the group, in place. Nothing on the meta device."""
        if self.world > 1 and not x.is_meta:
            dist.all_reduce(x, group=self.group)
        return x

    def broadcast(self, x: torch.Tensor) -> None:
        """Rank 0's ``x`` to the whole group, in place."""
        if self.world > 1:
            dist.broadcast(x, src=0, group=self.group)

    def smallest(self, value: int, device: torch.device) -> int:
        """The least of the group's values. Waits for all ranks."""
        if self.world == 1:
            return value
        least = torch.tensor(value, device=device)
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=self.group)
        return int(least)

    def sums(self, values: list[float], device: torch.device) -> list[float]:
        """Of each value, its sum over the group. Waits for all ranks."""
        if self.world == 1:
            return values
        return [float(value) for value in self.all_reduce(torch.tensor(values, dtype=torch.float64, device=device))]

    def shard(self, size: int, what: str) -> int:
        """This rank's share of ``size``. Raises ``ValueError`` if it does not divide."""
        if size % self.world:
            raise ValueError(f"{what} ({size}) cannot be split over {self.world} tensor-parallel ranks")
        return size // self.world
