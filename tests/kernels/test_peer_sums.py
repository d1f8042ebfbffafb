"""GPUs that meet and add up tensors through memory that all have mapped: here processes that share memory."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401

from lora_kernels.peer_sums import SUM_BYTES, meet, meeting_places, sum_in_place

GPUS = 3
_forks = multiprocessing.get_context("fork")


class Shared:
    """Memory and flags of each of three GPUs, at the same addresses in all processes that are forked later."""

    def __init__(self, num_bytes: int) -> None:
        places = meeting_places(num_bytes)
        self._flags = torch.zeros(GPUS, places, GPUS, dtype=torch.int32).share_memory_()
        self._memory = torch.full((GPUS, num_bytes), 0xFF, dtype=torch.uint8).share_memory_()  # NaN
        self.flags, self.memory = (torch.tensor([x.data_ptr() for x in each]) for each in (self._flags, self._memory))

    def run(self, does: Callable[[int], bool]) -> None:
        """Run ``does`` with the number of each GPU, each in a process of its own; all must return True in time."""
        processes = [_forks.Process(target=self._check, args=(does, gpu), daemon=True) for gpu in range(GPUS)]
        for process in processes:
            process.start()
        try:
            for process in processes:
                process.join(60)
            assert [process.exitcode for process in processes] == [0] * GPUS
        finally:
            for process in processes:
                process.kill()
        assert not self._flags.any(), "a flag is still up"

    @staticmethod
    def _check(does: Callable[[int], bool], gpu: int) -> None:
        torch.set_num_threads(1)
        raise SystemExit(0 if does(gpu) else 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_gpu_has_the_sum_whoever_is_late(dtype: torch.dtype) -> None:
    """Also of the next tensors in the same memory."""
    count = SUM_BYTES // dtype.itemsize + 40  # two programs
    shared = Shared(count * dtype.itemsize)
    parts = torch.randn(3, GPUS, count).to(dtype)

    def sums(gpu: int) -> bool:
        delays, right = random.Random(gpu), True
        for of_gpus in parts:
            time.sleep(delays.choice((0.0, 0.05)))
            x = of_gpus[gpu].clone()
            sum_in_place(x, shared.memory, shared.flags, gpu)
            want = of_gpus.double().sum(0)
            right &= bool(torch.allclose(x.double(), want, rtol=1e-2 if dtype is torch.bfloat16 else 1e-6, atol=1e-6))
        return right

    shared.run(sums)


def test_what_was_written_before_a_meeting_is_seen_behind_it() -> None:
    shared, written = Shared(16), torch.zeros(GPUS, dtype=torch.int64).share_memory_()

    def meetings(gpu: int) -> bool:
        delays, right = random.Random(gpu), True
        for number in range(1, 4):
            time.sleep(delays.choice((0.0, 0.05)))
            written[gpu] = number
            meet(shared.flags, gpu)
            right &= bool((written >= number).all())
            meet(shared.flags, gpu)
        return right

    shared.run(meetings)


@pytest.mark.parametrize("x", [torch.zeros(4, 8)[:, :4], torch.zeros(6)])
def test_tensors_must_be_contiguous_and_read_16_bytes_at_once(x: torch.Tensor) -> None:
    addresses = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="must be contiguous, of 16 n bytes"):
        sum_in_place(x, addresses, addresses, 0)
