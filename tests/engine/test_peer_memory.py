"""Memory that all ranks have mapped, with a driver that stands for CUDA's."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from lora_engine.model.parallel import Parallel
from lora_engine.tensor_parallel import peer_memory
from lora_engine.tensor_parallel.peer_memory import share_memory

CPU = torch.device("cpu")
# Bytes between the start of an allocation and a tensor in it.
OFFSET = 4096
# Address at which this process maps the other rank's allocation.
MAPPED = 1 << 40


class Driver:
    """The driver's calls; ``fails`` names one that returns an error."""

    def __init__(self, fails: str = "") -> None:
        self._fails = fails

    def cuMemGetAddressRange_v2(self, base: Any, _size: Any, address: ctypes.c_uint64) -> int:  # noqa: N802
        base._obj.value = address.value - OFFSET
        return 201 if self._fails == "range" else 0

    def cuIpcGetMemHandle(self, handle: Any, _base: ctypes.c_uint64) -> int:  # noqa: N802
        handle._obj.reserved[:4] = b"mine"
        return 801 if self._fails == "name" else 0

    def cuIpcOpenMemHandle_v2(self, base: Any, handle: Any, _flags: ctypes.c_uint) -> int:  # noqa: N802
        assert bytes(handle.reserved[:5]) == b"other"
        base._obj.value = MAPPED
        return 217 if self._fails == "map" else 0


class TwoRanks(Parallel):
    """Rank 1 of two; rank 0 has the same offset within an allocation of another name."""

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        theirs = x.clone()
        theirs[:5] = torch.tensor([*b"other"], dtype=torch.uint8)
        return torch.stack((theirs, x))


@pytest.fixture(params=["", "range", "name", "map"])
def fails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(peer_memory.ctypes, "CDLL", lambda _name: Driver(request.param))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    return str(request.param)


def test_each_rank_has_the_addresses_of_all_or_the_error(fails: str) -> None:
    if fails:
        with pytest.raises(RuntimeError, match=r"the driver cannot .* \(error (201|801|217)\)"):
            share_memory(TwoRanks(1, 2), CPU, 64)
        return
    memory = share_memory(TwoRanks(1, 2), CPU, 64)
    assert memory.addresses == (MAPPED + OFFSET, memory.local.data_ptr()) and memory.rank == 1
    assert memory.at(16).tolist() == [address + 16 for address in memory.addresses]
    assert memory.local.nbytes == 64 and not memory.local.any()
