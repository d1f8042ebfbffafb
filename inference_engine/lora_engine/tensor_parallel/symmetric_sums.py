"""Small all-reduces over the GPUs of a host in one kernel, through symmetric memory that all of them can read.

NCCL's all-reduce is a chain of steps, whose latency exceeds the transfer time for the activations of a decode step.
Here every GPU copies its part into symmetric memory, waits for the others, and adds up all parts in the order of the
ranks. That reads N times as many bytes, and is faster only up to some size. The switches' multicast is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

import torch

from lora_engine.model.parallel import Parallel

log = logging.getLogger(__name__)

_DTYPES = (torch.bfloat16, torch.float32)
# Bytes that the kernel reads at once; tensors must be a multiple of it.
_ALIGNED = 16


class SymmetricSums:
    """The ``SmallSums`` through a buffer of symmetric memory, which all ranks have mapped."""

    def __init__(self, buffer: torch.Tensor, group_name: str) -> None:
        """Create the symmetric sums on a bfloat16 ``buffer``, whose size bounds the size of a tensor."""
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
    """Return ``parallel`` with all-reduces of up to ``num_bytes`` (0: none) through symmetric memory.

    If not all ranks support it, ``parallel`` is returned unchanged, and the log has the reason. All ranks call this.
    ``peers``: indices of the GPUs of all ranks.
    """
    if not num_bytes or parallel.world == 1:
        return parallel
    sums, problem = None, _refused(device, peers)
    if parallel.smallest(not problem, device):
        try:
            sums = _allocate(parallel, device, num_bytes)
        except (RuntimeError, AttributeError, ImportError) as error:  # torch's interface is not stable yet
            problem = str(error).splitlines()[0]
        if parallel.smallest(sums is not None, device) and sums is not None:
            problem = _tried(sums, parallel, device)
            if parallel.smallest(not problem, device):
                log.info("all-reduces of up to %d KiB go through symmetric memory", num_bytes >> 10)
                return replace(parallel, small=sums)
    log.warning("every all-reduce goes through NCCL: %s", problem or "another rank has no symmetric memory")
    return parallel


def _refused(device: torch.device, peers: Collection[int]) -> str:
    """Return the reason why this GPU cannot use symmetric memory; empty if it can."""
    if device.type != "cuda":
        return "symmetric memory needs GPUs"
    alone = [peer for peer in peers if peer != device.index and not torch.cuda.can_device_access_peer(device, peer)]
    return f"{device} cannot read the memory of cuda:{alone[0]}" if alone else ""


def _allocate(parallel: Parallel, device: torch.device, num_bytes: int) -> SymmetricSums:
    import torch.distributed._symmetric_memory as symmetric

    assert parallel.group is not None
    buffer = symmetric.empty(num_bytes // torch.bfloat16.itemsize, dtype=torch.bfloat16, device=device)
    symmetric.rendezvous(buffer, parallel.group)
    return SymmetricSums(buffer, parallel.group.group_name)


def _tried(sums: SymmetricSums, parallel: Parallel, device: torch.device) -> str:
    """Check an all-reduce of known result; return the problem, empty if there is none."""
    x = torch.arange(64, dtype=torch.float32, device=device) + parallel.rank
    expected = parallel.world * torch.arange(64.0) + sum(range(parallel.world))
    try:
        sums.all_reduce(x)
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]
    return "" if torch.equal(x.cpu(), expected) else f"a sum over symmetric memory is {x[:4].tolist()}"
