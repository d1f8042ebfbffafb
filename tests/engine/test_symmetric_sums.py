"""Which sums go through symmetric memory, and what happens where there is none. The sums themselves need GPUs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lora_engine.model.parallel import Parallel
from lora_engine.tensor_parallel import symmetric_sums
from lora_engine.tensor_parallel.symmetric_sums import SymmetricSums, with_small_sums

DEVICE = torch.device("cpu")


@pytest.mark.parametrize(
    ("x", "takes"),
    [
        (torch.zeros(64, 8, dtype=torch.bfloat16), True),
        (torch.zeros(256, dtype=torch.float32), True),  # as much as fits
        (torch.zeros(257 * 2, dtype=torch.bfloat16), False),  # no whole number of 16 bytes
        (torch.zeros(260, dtype=torch.float32), False),  # too large
        (torch.zeros(0, 8), False),
        (torch.zeros(64, dtype=torch.float16), False),
        (torch.zeros(64, dtype=torch.int64), False),
        (torch.zeros(8, 64, dtype=torch.bfloat16)[:, :32], False),
    ],
    ids=lambda value: f"{tuple(value.shape)} {value.dtype}" if isinstance(value, torch.Tensor) else None,
)
def test_sums_are_chosen_by_size_and_type(x: torch.Tensor, takes: bool) -> None:
    assert SymmetricSums(torch.empty(512, dtype=torch.bfloat16), "0").takes(x) is takes


@dataclass
class Doubling:
    """As if two ranks had the same."""

    largest: int
    summed: list[int] = field(default_factory=list)

    def takes(self, x: torch.Tensor) -> bool:
        return x.nbytes <= self.largest

    def all_reduce(self, x: torch.Tensor) -> None:
        self.summed.append(x.numel())
        x.mul_(2)


def test_larger_sums_are_nccls(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[int] = []
    monkeypatch.setattr(dist, "all_reduce", lambda x, group=None: others.append(x.numel()))
    small = Doubling(64)
    parallel = Parallel(0, 2, None, small)
    assert torch.equal(parallel.all_reduce(torch.ones(16)), torch.full((16,), 2.0))
    parallel.all_reduce(torch.ones(17))
    assert (small.summed, others) == ([16], [17])
    meta = torch.ones(4, device="meta")
    assert parallel.all_reduce(meta) is meta and small.summed == [16]


@dataclass(frozen=True)
class Ranks(Parallel):
    """Of which another one says what it can, question by question."""

    world: int = 2
    others: Any = None

    def smallest(self, value: int, device: torch.device) -> int:
        return min(int(value), next(self.others))


@pytest.mark.parametrize(
    ("others", "refused", "allocates", "wrong", "words"),
    [
        ((1, 1, 1), "", True, "", ""),
        ((1,), "this GPU cannot", True, "", "this GPU cannot"),
        ((0,), "", True, "", "another rank has no symmetric memory"),
        ((1, 1), "", False, "", "no such operator"),
        ((1, 0), "", True, "", "another rank has no symmetric memory"),
        ((1, 1, 1), "", True, "a sum over symmetric memory is [0.0]", "is [0.0]"),
        ((1, 1, 0), "", True, "", "another rank has no symmetric memory"),
    ],
)
def test_all_ranks_have_it_or_none(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    others: tuple[int, ...],
    refused: str,
    allocates: bool,
    wrong: str,
    words: str,
) -> None:
    def allocate(*_arguments: object) -> SymmetricSums:
        if not allocates:
            raise AttributeError("no such operator\nand more of it")
        return SymmetricSums(torch.empty(8, dtype=torch.bfloat16), "0")

    monkeypatch.setattr(symmetric_sums, "_refused", lambda *_arguments: refused)
    monkeypatch.setattr(symmetric_sums, "_allocate", allocate)
    monkeypatch.setattr(symmetric_sums, "_tried", lambda *_arguments: wrong)
    answers = iter(others)
    with caplog.at_level(logging.INFO):
        parallel = with_small_sums(Ranks(others=answers), DEVICE, 4096, {0, 1})
    assert next(answers, None) is None, "every rank asks as often"
    assert (parallel.small is not None) == (not words)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "every all-reduce goes through NCCL: " if words else "all-reduces of up to 4 KiB"
    )
    assert words in record.getMessage()


def test_nothing_is_tried_on_one_rank_or_if_it_is_switched_off() -> None:
    alone, two = Parallel(), Ranks()
    assert with_small_sums(alone, DEVICE, 4096, {0}) is alone
    assert with_small_sums(two, DEVICE, 0, {0, 1}) is two


def test_on_cpus_it_is_refused() -> None:
    assert "symmetric memory needs GPUs" in symmetric_sums._refused(DEVICE, {0, 1})
