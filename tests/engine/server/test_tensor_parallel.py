"""An engine whose model is split over two processes: started by its command line, drained, killed, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from lorikeet_testing.engine_client import EngineClient, text_request
from lorikeet_testing.engine_process import EngineProcess, running, stage
from lorikeet_testing.tiny_models import save_adapter, save_model

ADAPTERS = ("attention-r8", "mlp-r5", "patterns")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    reference = save_model("llama3-scaled-rope-tied", folder)
    for name in ADAPTERS:
        save_adapter(name, reference, folder.parent / name)
    return folder


def children(pid: int) -> list[int]:
    """The other ranks, and whatever else the engine started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks(process: EngineProcess) -> list[int]:
    return [c for c in children(process.pid) if "spawn_main" in Path(f"/proc/{c}/cmdline").read_text()]


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(10):
        while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text() for pid in pids):
            await asyncio.sleep(0.02)


async def answers(client: EngineClient, model: Path) -> list[tuple[str, int]]:
    """Greedy and seeded ones, of the base and three adapters, in one batch; and how many prompt scores came."""
    digests = ["", *[await stage(client, model.parent / name) for name in ADAPTERS]]
    requests = [
        text_request(f"{i}: the prompt", digest=digests[i % 4], max_tokens=12, temperature=0.8 * (i % 3 == 0), seed=i)
        for i in range(16)
    ]
    requests[5].prompt_logprobs = 2
    async with client.session() as session:
        results = await asyncio.gather(*(session.run(request) for request in requests))
    assert [result.error.code for result in results] == [""] * 16
    scores = [sum(len(delta.prompt_logprobs.token_ids) for delta in result.deltas) for result in results]
    return [(result.text(), score) for result, score in zip(results, scores, strict=True)]


FULL = ("--lora-sharding", "full")
MERGED = ("--mode", "merged")


@pytest.mark.parametrize(
    "options",
    [
        (),
        *(pytest.param(options, marks=pytest.mark.long) for options in (MERGED, FULL, (*FULL, *MERGED))),
    ],
    ids=" ".join,
)
async def test_two_ranks_answer_as_one_and_leave_nothing_behind(
    model: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    async with running(model, tmp_path / "one", *options) as (_, client):
        alone = await answers(client, model)
    async with running(model, tmp_path / "two", "--tensor-parallel", "2", *options) as (process, client):
        description = await client.wait_ready()
        assert description.device == "2 x cpu"
        assert await answers(client, model) == alone
        started = children(process.pid)
        assert len(ranks(process)) == 1
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        await gone(started)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "ended with status -9"),
        pytest.param(signal.SIGSTOP, "has not answered", marks=pytest.mark.long),
    ],
    ids=["killed", "stopped"],
)
async def test_a_lost_rank_ends_the_engine_with_its_reason(
    model: Path, tmp_path: Path, number: signal.Signals, words: str
) -> None:
    """In the midst of an answer; the journal has what came of it, and its supervisor starts it anew."""
    async with running(model, tmp_path, "--tensor-parallel", "2") as (process, client), client.session() as session:
        request = await session.submit(text_request("p", max_tokens=400, n=64, ignore_eos=True))
        await request.first_delta.wait()
        started = children(process.pid)
        os.kill(ranks(process)[0], number)
        assert await asyncio.to_thread(process.wait) == 70
        await gone(started)
    assert words in process.log.read_text()
    assert "Traceback" not in process.log.read_text()


async def test_the_first_rank_killed_takes_the_others_with_it(model: Path, tmp_path: Path) -> None:
    async with running(model, tmp_path, "--tensor-parallel", "2") as (process, _):
        started = children(process.pid)
        process.signal(signal.SIGKILL)
        process.wait()
        await gone(started)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tensor-parallel", "3"), "cannot be split over 3 tensor-parallel ranks"),
        (("--tensor-parallel", "0"), "must be above 0"),
    ],
)
async def test_what_cannot_be_split_is_refused(
    model: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    process = EngineProcess(model, tmp_path, *options)
    try:
        assert await asyncio.to_thread(process.wait, 60) == 2
    finally:
        process.end()
    last = process.log.read_text().splitlines()[-1]
    assert words in last
    assert "Traceback" not in process.log.read_text()
