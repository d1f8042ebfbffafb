"""Memory of each GPU of a host that the processes of all ranks have mapped, through the driver's calls for that.

torch's symmetric memory does the same, but its first allocation in a process takes 2 to 4 s (docs/LOG.md), for which
every restart of ranks would wait.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from lora_engine.model.parallel import Parallel

# CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """CUipcMemHandle: the name of an allocation for another process."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


@dataclass(frozen=True, slots=True)
class PeerMemory:
    """Bytes of this GPU, zero at first, and the addresses at which this process has mapped those of every rank."""

    local: torch.Tensor
    addresses: tuple[int, ...]
    rank: int

    def at(self, start: int) -> torch.Tensor:
        """Return the addresses of a byte in every rank's memory, ``[ranks]`` int64 on the device."""
        return torch.tensor([address + start for address in self.addresses], device=self.local.device)


def share_memory(parallel: Parallel, device: torch.device, num_bytes: int) -> PeerMemory:
    """Allocate and map memory; all ranks call this. Raises ``RuntimeError`` if the driver cannot share it.

    It stays mapped until this process ends.
    """
    local = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    torch.cuda.synchronize(device)  # no rank may raise a flag before it is zero
    driver = ctypes.CDLL("libcuda.so.1")
    name, problem = _named(driver, local)
    names = parallel.all_gather(torch.tensor(name, dtype=torch.uint8, device=device)).cpu()
    if problem:
        raise RuntimeError(problem)
    addresses = []
    for rank, theirs in enumerate(names):
        addresses.append(local.data_ptr() if rank == parallel.rank else _opened(driver, bytes(theirs.tolist())))
    return PeerMemory(local, tuple(addresses), parallel.rank)


def _named(driver: ctypes.CDLL, memory: torch.Tensor) -> tuple[bytearray, str]:
    """Return the handle of the allocation that contains a tensor, with the tensor's offset; or the problem."""
    base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), _Handle()
    address = ctypes.c_uint64(memory.data_ptr())
    status = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
    status = status or driver.cuIpcGetMemHandle(ctypes.byref(handle), base)
    offset = memory.data_ptr() - base.value if not status else 0
    problem = f"the driver cannot share memory with other processes (error {status})" if status else ""
    return bytearray(bytes(handle) + offset.to_bytes(8, "little")), problem


def _opened(driver: ctypes.CDLL, name: bytes) -> int:
    """Map another process's memory into this one, for the current device; return its address."""
    base, handle = ctypes.c_uint64(), _Handle.from_buffer_copy(name[:64])
    status = driver.cuIpcOpenMemHandle_v2(ctypes.byref(base), handle, ctypes.c_uint(_PEER_ACCESS))
    if status:
        raise RuntimeError(f"the driver cannot map another process's memory (error {status})")
    return base.value + int.from_bytes(name[64:], "little")
