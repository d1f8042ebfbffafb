"""Small sums over the GPUs of a host in one kernel: each reads what all others wrote into memory that all can see.

A sum of NCCL is a chain of steps, which for the activations of a decode step cost more than the bytes do. Here every
GPU copies its part into symmetric memory, waits for the others, and adds all parts up itself, in the order of the
ranks. That reads N times as much, and pays only up to some size. Multicast of the switches is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

import torch

from lora_engine.model.parallel import Parallel

log = logging.getLogger(__name__)

_DTYPES = (torch.bfloat16, torch.float32)
_ALIGNED = 16  # bytes that the kernel reads at once


class SymmetricSums:
    """``SmallSums`` through one buffer of symmetric memory, which all ranks have mapped."""

    def __init__(self, buffer: torch.Tensor, group_name: str) -> None:
        """``buffer``: as large as the largest sum, bfloat16."""
        self._buffer, self._group_name = buffer, group_name

    def takes(self, x: torch.Tensor) -> bool:
        return (
            x.dtype in _DTYPES
            and 0 < x.nbytes <= self._buffer.nbytes
            and x.nbytes % _ALIGNED == 0
            and x.is_contiguous()
        )

    def all_reduce(self, x: torch.Tensor) -> None:
        flat = x.view(-1)
        shared = self._buffer.view(x.dtype)[: flat.numel()]
        torch.ops.symm_mem.one_shot_all_reduce_copy_out(shared, flat, "sum", self._group_name, flat)


def with_small_sums(parallel: Parallel, device: torch.device, num_bytes: int, peers: Collection[int]) -> Parallel:
    """With sums of up to ``num_bytes`` (0: none) by symmetric memory, if all ranks can; else as it is, and the log says
    why. All ranks call it. ``peers``: indices of the GPUs of all ranks.
    """
    if not num_bytes or parallel.world == 1:
        return parallel
    sums, problem = None, _refused(device, peers)
    if parallel.smallest(not problem, device):
        try:
            sums = _allocate(parallel, device, num_bytes)
        except (RuntimeError, AttributeError, ImportError) as error:  # its interface is not stable yet
            problem = str(error).splitlines()[0]
        if parallel.smallest(sums is not None, device) and sums is not None:
            problem = _tried(sums, parallel, device)
            if parallel.smallest(not problem, device):
                log.info("sums of up to %d KiB go through symmetric memory", num_bytes >> 10)
                return replace(parallel, small=sums)
    log.warning("all sums go through NCCL: %s", problem or "another rank has no symmetric memory")
    return parallel


def _refused(device: torch.device, peers: Collection[int]) -> str:
    """Why this GPU cannot; empty if it may."""
    if device.type != "cuda":
        return "symmetric memory is of GPUs"
    alone = [peer for peer in peers if peer != device.index and not torch.cuda.can_device_access_peer(device, peer)]
    return f"{device} cannot read the memory of cuda:{alone[0]}" if alone else ""


def _allocate(parallel: Parallel, device: torch.device, num_bytes: int) -> SymmetricSums:
    import torch.distributed._symmetric_memory as symmetric

    assert parallel.group is not None
    buffer = symmetric.empty(num_bytes // torch.bfloat16.itemsize, dtype=torch.bfloat16, device=device)
    symmetric.rendezvous(buffer, parallel.group)
    return SymmetricSums(buffer, parallel.group.group_name)


def _tried(sums: SymmetricSums, parallel: Parallel, device: torch.device) -> str:
    """What is wrong with a sum of known result; empty if nothing is."""
    x = torch.arange(64, dtype=torch.float32, device=device) + parallel.rank
    expected = parallel.world * torch.arange(64.0) + sum(range(parallel.world))
    try:
        sums.all_reduce(x)
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]
    return "" if torch.equal(x.cpu(), expected) else f"a sum over symmetric memory is {x[:4].tolist()}"
