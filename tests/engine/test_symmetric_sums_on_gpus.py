"""Sums over two GPUs, by norms and by a kernel of their own, back to back in CUDA graphs, while one GPU is late."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

from lora_engine.config import EngineConfig
from lora_engine.model.parallel import Exchanges, Parallel, PartialSum
from lora_engine.tensor_parallel import group

pytestmark = pytest.mark.gpu

SUMS, REPLAYS, SIZE, EPS = 14, 60, 1024, 1e-5
ROWS = (1, 64, 192, 600)
SMALL_ROWS = (1, 16, 256)  # the last ones have as many bytes as small sums may have
LATE_CYCLES = 30_000


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_sum_has_both_addends_whoever_is_late(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_sum_on_rank, (tmp_path / "meet", tmp_path), nprocs=2)
    for rank in range(2):
        lines = (tmp_path / f"{rank}").read_text().splitlines()
        assert lines == [f"{rows} rows: 0 of {SUMS * REPLAYS} wrong" for rows in (*ROWS, *SMALL_ROWS)]


def _sum_on_rank(rank: int, place: Path, folder: Path) -> None:
    config = EngineConfig(model=Path("random"), device="cuda", tensor_parallel=2)
    meeting = group.Meeting(place)
    rank_config = group.config_of(config, rank, meeting)
    torch.cuda.set_device(rank)
    parallel = group.join(rank_config, rank, meeting, Exchanges())
    assert parallel.shared is not None
    wrong = [(rows, _wrong_sums(parallel, rows)) for rows in ROWS]
    wrong += [(rows, _wrong_small_sums(parallel, rows)) for rows in SMALL_ROWS]
    lines = [f"{rows} rows: {count} of {SUMS * REPLAYS} wrong" for rows, count in wrong]
    (folder / f"{rank}").write_text("\n".join(lines))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _wrong_sums(parallel: Parallel, rows: int) -> int:
    """Return how many sums of a graph that is replayed differ from those in float64.

    A place has NaN until its addend is written, so that an addend of the sum before the last would be seen, too.
    """
    from lora_kernels.elementwise import add_norm

    torch.manual_seed(rows)  # the same numbers on both ranks
    addends = torch.randn(SUMS, 2, rows, SIZE, device="cuda").bfloat16()
    before, weight = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((SUMS, rows, SIZE), (SIZE,)))
    want = (addends.double().sum(1).bfloat16().double() + before.double()).bfloat16().double()
    normed = want * (want.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()
    residual, out = torch.empty_like(before), torch.empty_like(before)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    delays = random.Random(parallel.rank)

    def sums() -> None:
        residual.copy_(before)
        out.fill_(float("nan"))
        for index in range(SUMS):
            torch.cuda._sleep(delays.choice((0, 0, LATE_CYCLES)))
            addend = parallel.addend(rows, SIZE, torch.bfloat16)
            assert addend is not None
            addend.fill_(float("nan"))
            addend.copy_(addends[index, parallel.rank])
            total = parallel.sum(addend)
            assert isinstance(total, PartialSum)
            add_norm(addend, residual[index], weight, EPS, out[index], addends=total.addresses)
        far = (residual.double() - want).abs() > 0.01 * want.abs() + 0.01
        far |= ~((out.double() - normed).abs() <= 0.03 * normed.abs() + 0.03)
        wrong.add_(far.flatten(1).any(1).sum())

    def exchange() -> None:
        parallel.all_reduce(torch.zeros(8, device="cuda"))  # as the embeddings' sum at the start of each step

    exchange()
    sums()
    torch.cuda.synchronize()
    wrong.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exchange()
        sums()
    for _ in range(REPLAYS):
        torch.cuda._sleep(delays.choice((0, 0, 10 * LATE_CYCLES)))
        graph.replay()
    torch.cuda.synchronize()
    return int(wrong)


def _wrong_small_sums(parallel: Parallel, rows: int) -> int:
    """Return how many sums through the same memory differ, of a graph that is replayed."""
    torch.manual_seed(rows)
    addends = torch.randn(SUMS, 2, rows, SIZE, device="cuda").bfloat16()
    want = (addends[:, 0].float() + addends[:, 1].float()).bfloat16()
    x, wrong = torch.empty_like(addends[:, 0]), torch.zeros((), dtype=torch.int64, device="cuda")
    assert parallel.small is not None and parallel.small.takes(x[0])
    delays = random.Random(parallel.rank)

    def sums() -> None:
        x.copy_(addends[:, parallel.rank])
        for index in range(SUMS):
            torch.cuda._sleep(delays.choice((0, 0, LATE_CYCLES)))
            parallel.all_reduce(x[index])
        wrong.add_((x != want).flatten(1).any(1).sum())

    sums()
    torch.cuda.synchronize()
    wrong.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums()
    for _ in range(REPLAYS):
        torch.cuda._sleep(delays.choice((0, 0, 10 * LATE_CYCLES)))
        graph.replay()
    torch.cuda.synchronize()
    return int(wrong)
