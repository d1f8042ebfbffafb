"""An engine whose model is split over two processes: started by its command line, drained, killed, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest
from lorikeet_testing.engine_client import EngineClient, connected, text_request
from lorikeet_testing.engine_process import EngineProcess, descendants, running, stage
from lorikeet_testing.tiny_models import save_adapter, save_model

from lora_engine.server.end_note import EndNote
from lora_engine.tensor_parallel.meeting_folder import MeetingFolder
from lora_engine.wire import engine_pb2 as pb

ADAPTERS = ("attention-r8", "mlp-r5", "dora-r6")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an odd vocabulary: the second rank has one token fewer."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    reference = save_model("llama3-scaled-rope-tied", folder, vocab_size=515, eos_token_id=2)
    for name in ADAPTERS:
        save_adapter(name, reference, folder.parent / name)
    return folder


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(10):
        while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text() for pid in pids):
            await asyncio.sleep(0.02)


Answer = tuple[str, list[float], list[float]]  # log-probabilities of its tokens, and of its prompt's


async def answers(client: EngineClient, model: Path) -> list[Answer]:
    """Of the base and three adapters, in one batch, in every way to choose tokens. The first ones come alone: a step in
    which all take the likeliest token is another than one in which some do not."""
    digests = ["", *[await stage(client, model.parent / name) for name in ADAPTERS]]
    requests = [
        text_request(f"{i}: the prompt", digest=digests[i % 4], max_tokens=12, temperature=0.8 * (i % 3 == 0), seed=i)
        for i in range(16)
    ]
    greedy = [text_request(f"greedy {i}", digest=digests[i], max_tokens=12) for i in range(4)]
    requests[5].prompt_logprobs = 2
    for i, more in enumerate(
        (
            {"logprobs": True, "top_logprobs": 3},
            {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.3},
            {"temperature": 0.9, "top_p": 0.7, "top_k": 30, "min_p": 0.02},
            {"logit_bias": {65: 4.0, 66: -100.0}},
        )
    ):
        requests[i].sampling.MergeFrom(pb.Sampling(**more))  # type: ignore[arg-type]
    requests[8].constraint.CopyFrom(pb.Constraint(kind=pb.Constraint.REGEX, text="[a-f]{3,9}"))
    async with client.session() as session:
        results = await asyncio.gather(*(session.run(request) for request in greedy))
        results += await asyncio.gather(*(session.run(request) for request in requests))
    assert [result.error.code for result in results] == [""] * 20
    return [
        (
            result.text(),
            [top.logprob for delta in result.deltas for token in delta.logprobs for top in token.top],
            [value for delta in result.deltas for value in delta.prompt_logprobs.logprobs],
        )
        for result in results
    ]


def assert_same(found: list[Answer], expected: list[Answer]) -> None:
    """Sums of another order differ in the last bits."""
    assert [answer[0] for answer in found] == [answer[0] for answer in expected]
    assert any(answer[1] for answer in expected) and any(answer[2] for answer in expected)
    for (_, chosen, prompt), (_, want_chosen, want_prompt) in zip(found, expected, strict=True):
        assert chosen == pytest.approx(want_chosen, abs=1e-4) and prompt == pytest.approx(want_prompt, abs=1e-4)


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
        assert_same(await answers(client, model), alone)
        started = descendants(process.pid)
        assert len(process.ranks) == 2
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        await gone(started)


@pytest.mark.parametrize(
    ("rank", "number", "words"),
    [
        (1, signal.SIGKILL, "ended with status -9"),
        (0, signal.SIGKILL, "it was killed"),
        (0, signal.SIGSTOP, "was stopped by a signal for 2 s"),
        pytest.param(1, signal.SIGSTOP, "was stopped by a signal for 2 s", marks=pytest.mark.long),
    ],
)
async def test_when_a_rank_is_lost_all_start_again_at_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, number: signal.Signals, words: str
) -> None:
    """In the midst of an answer. What was pinned is so again when it is asked for, from the disk."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    async with running(model, tmp_path, "--tensor-parallel", "2") as (process, client):
        first = await client.wait_ready()
        async with client.session() as session:
            digest = await stage(client, model.parent / "dora-r6")
            await pinned(client, digest)
            request = await session.submit(text_request("p", digest=digest, max_tokens=400, n=64, ignore_eos=True))
            await request.first_delta.wait()
            started = descendants(process.pid)
            os.kill(process.ranks[rank], number)
            await gone(started)
        async with connected(process.address) as again:
            second = await again.wait_ready()
            assert second.boot_id != first.boot_id and words in second.last_end.reason
            await pinned(again, digest)
            assert len(process.ranks) == 2 and not {*descendants(process.pid)} & {*started}
        assert len([*(tmp_path / "tmp").glob("lora-meeting-*")]) == 1
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
    assert not [*(tmp_path / "tmp").glob("lora-meeting-*")]
    assert EndNote(tmp_path / "data").begin() is None
    assert "Traceback" not in process.log.read_text()


async def pinned(client: EngineClient, digest: str) -> None:
    """Ask for an adapter, and what its prompts begin with, to stay, until both do."""
    prompt = pb.Submit(text="Once upon a time there was a parrot. " * 2, tenant="acme", adapter_digest=digest)
    prefix = pb.PinnedPrefix(name="beginning", prompt=prompt)
    async with asyncio.timeout(20):
        while True:
            adapters = await client.stub.PinAdapters(pb.PinAdaptersRequest(digests=[digest]))
            prefixes = await client.stub.PinPrefixes(pb.PinPrefixesRequest(prefixes=[prefix]))
            states = [state.state for state in prefixes.prefixes]
            if [*adapters.digests] == [digest] and states == [pb.PrefixState.KEPT]:
                return
            await asyncio.sleep(0.05)


async def test_the_end_of_the_program_is_the_end_of_all_ranks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing behind that the next engine does not remove."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    async with running(model, tmp_path, "--tensor-parallel", "2") as (process, _):
        started = descendants(process.pid)
        process.signal(signal.SIGKILL)
        process.wait()
        await gone(started)
    last = EndNote(tmp_path / "data").begin()
    assert last is not None and "it was killed" in last.reason
    (left,) = (tmp_path / "tmp").glob("lora-meeting-*")
    monkeypatch.setattr(tempfile, "tempdir", str(left.parent))
    async with asyncio.timeout(10):
        while [*left.parent.glob("lora-meeting-*")]:  # locked until the last thread of a killed process ends
            MeetingFolder().remove()


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
