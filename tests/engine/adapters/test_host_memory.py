"""Slabs of page-locked memory: nothing overlaps, everything comes back."""

from __future__ import annotations

import gc
import random
import threading

import torch

from lora_engine.adapters.host_memory import PinnedSlabs

KIB = 1024


def slabs(slab_bytes: int = 256 * KIB) -> PinnedSlabs:
    return PinnedSlabs(slab_bytes, lambda size: torch.full((size,), 255, dtype=torch.uint8))


def test_tensors_are_zero_and_never_overlap() -> None:
    memory, rnd, held = slabs(), random.Random(1), []
    for step in range(400):
        tensor = memory.zeros((rnd.randint(1, 40), 1000), torch.float16)
        assert not tensor.any()
        tensor.fill_(step % 2000 + 1)
        held.append((step % 2000 + 1, tensor))
        while held and rnd.random() < 0.49:
            value, tensor = held.pop(rnd.randrange(len(held)))
            assert (tensor == value).all()
            del tensor
    assert all((tensor == value).all() for value, tensor in held)


def test_what_is_given_back_is_used_again() -> None:
    memory = slabs()
    for _ in range(50):
        held = [memory.zeros((60 * KIB,), torch.uint8) for _ in range(4)]
        assert memory.num_bytes == 256 * KIB
        del held
    whole = memory.zeros((256 * KIB,), torch.uint8)  # the four extents are one again
    assert memory.num_bytes == whole.numel()


def test_empty_slabs_are_given_back() -> None:
    memory = slabs()
    held = [memory.zeros((200 * KIB,), torch.uint8) for _ in range(10)]
    large = memory.zeros((3, 256 * KIB), torch.uint8)
    assert memory.num_bytes == 13 * 256 * KIB
    del held, large
    gc.collect()
    memory.zeros((1,), torch.uint8)
    assert memory.num_bytes in (256 * KIB, 3 * 256 * KIB)


def test_many_threads() -> None:
    memory, wrong = slabs(), []

    def work(seed: int) -> None:
        rnd = random.Random(seed)
        for _ in range(200):
            tensor = memory.zeros((rnd.randint(1, 20 * KIB),), torch.uint8)
            tensor.fill_(seed)
            if not (tensor == seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
