from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import torch
from lorikeet_testing.adapter_files import make_tensors, save_adapter

from lora_engine.peft_format import Part, adapter_digest, combined_digest, folder_digests
from lora_engine.wire import engine_pb2 as pb


async def stage(tiers, artifact):
    return [event async for event in tiers.stage(artifact)]


def wait_until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


async def test_staging_goes_through_its_phases(make_tiers, make_artifact):
    tiers, artifact = make_tiers(), make_artifact()
    assert not tiers.knows(artifact.digest)
    stream = tiers.stage(artifact)
    with tiers._alone(artifact.digest):  # nothing begins before it is watched
        events = [await anext(stream)]
    events += [event async for event in stream]
    phases = [event.phase for event in events]
    assert phases[0] == pb.StageEvent.QUEUED and phases[-1] == pb.StageEvent.READY
    assert phases == sorted(phases)
    packed = tiers.get(artifact.digest)
    assert packed.data.abs().sum() > 0
    assert (events[-1].rank, events[-1].pool_pages) == (packed.rank, packed.num_pages) == (4, packed.data.shape[1])
    assert [event.phase for event in await stage(tiers, artifact)] == [pb.StageEvent.READY]


async def test_many_streams_share_one_job(make_tiers, make_artifact, packer, monkeypatch):
    tiers, artifact = make_tiers(), make_artifact()
    packs, pack = [], packer.pack

    def slow(*arguments, **options):
        packs.append(arguments)
        time.sleep(0.2)
        return pack(*arguments, **options)

    monkeypatch.setattr(packer, "pack", slow)
    results = await asyncio.gather(*(stage(tiers, artifact) for _ in range(8)))
    assert all(events[-1].phase == pb.StageEvent.READY for events in results)
    assert len(packs) == 1


async def test_work_goes_on_when_the_watcher_leaves(make_tiers, make_artifact):
    tiers, artifact = make_tiers(), make_artifact()
    events = tiers.stage(artifact)
    await anext(events)
    await events.aclose()
    while tiers.get(artifact.digest) is None:
        await asyncio.sleep(0.01)


async def test_a_restart_loads_from_disk_on_request(make_tiers, make_artifact):
    artifact = make_artifact()
    await stage(make_tiers(), artifact)
    shutil.rmtree(Path(artifact.source_uri[7:]))
    tiers = make_tiers()
    changed = threading.Event()
    tiers.on_change = changed.set
    assert tiers.get(artifact.digest) is None
    assert tiers.knows(artifact.digest)
    for _ in range(50):
        tiers.request_load(artifact.digest)
    assert await asyncio.to_thread(changed.wait, 10)
    assert tiers.get(artifact.digest) is not None
    assert tiers.load_error(artifact.digest) is None


async def test_a_bad_adapter_fails_with_its_first_problem(make_tiers, tmp_path):
    tensors = make_tensors()
    next(iter(tensors.values()))[0, 0] = np.nan
    folder = save_adapter(tmp_path / "bad", tensors)
    digests = folder_digests(folder)
    artifact = pb.StageAdapterRequest(
        digest=adapter_digest(digests), source_uri=f"file://{folder}", file_digests=digests
    )
    tiers = make_tiers()
    last = (await stage(tiers, artifact))[-1]
    assert last.phase == pb.StageEvent.FAILED
    assert last.error.code == "not_finite"
    assert tiers.load_error(artifact.digest).code == "not_finite"
    assert tiers.get(artifact.digest) is None


async def test_a_failure_is_no_verdict_for_ever(make_tiers, make_artifact):
    tiers, artifact = make_tiers(), make_artifact()
    gone = pb.StageAdapterRequest(
        digest=artifact.digest, source_uri="file:///nowhere", file_digests=artifact.file_digests
    )
    last = (await stage(tiers, gone))[-1]
    assert last.error.code == "artifact_not_found"
    assert not tiers.knows(artifact.digest)
    assert (await stage(tiers, artifact))[-1].phase == pb.StageEvent.READY
    assert tiers.load_error(artifact.digest) is None


async def test_an_unexpected_failure_is_contained(make_tiers, make_artifact, packer, monkeypatch):
    monkeypatch.setattr(packer, "pack", lambda *_, **__: 1 / 0)
    tiers, artifact = make_tiers(), make_artifact()
    last = (await stage(tiers, artifact))[-1]
    assert last.error.code == "stage_failed"
    assert tiers.arena.used == 0


async def test_a_full_arena_swaps_adapters_through_the_disk(make_tiers, make_artifact):
    first = make_artifact(0)
    probe = make_tiers()
    await stage(probe, first)
    size = probe.arena.used
    tiers = make_tiers(arena=2 * size)
    artifacts = [make_artifact(i) for i in range(5)]
    for artifact in artifacts:
        assert (await stage(tiers, artifact))[-1].phase == pb.StageEvent.READY
    assert tiers.arena.used == 2 * size
    for artifact in artifacts:
        tiers.acquire(artifact.digest)
        assert tiers.knows(artifact.digest)
        tiers.request_load(artifact.digest)
        await asyncio.to_thread(wait_until, lambda digest=artifact.digest: tiers.arena.has(digest))
        expected = probe.get(first.digest).data
        assert torch.equal(tiers.get(artifact.digest).data, expected)
        tiers.release(artifact.digest)


async def test_dropping_waits_for_requests(make_tiers, make_artifact):
    tiers, artifact = make_tiers(), make_artifact()
    await stage(tiers, artifact)
    tiers.acquire(artifact.digest)
    assert tiers.drop(artifact.digest)
    assert tiers.get(artifact.digest) is not None
    assert not tiers.knows(artifact.digest)
    tiers.release(artifact.digest)
    assert tiers.get(artifact.digest) is None
    assert not tiers.disk.has(artifact.digest)
    assert not tiers.drop(artifact.digest)
    assert (await stage(tiers, artifact))[-1].phase == pb.StageEvent.READY
    assert tiers.knows(artifact.digest)


async def test_staging_again_undoes_a_drop(make_tiers, make_artifact):
    tiers, artifact = make_tiers(), make_artifact()
    await stage(tiers, artifact)
    tiers.acquire(artifact.digest)
    tiers.drop(artifact.digest)
    assert (await stage(tiers, artifact))[-1].phase == pb.StageEvent.READY
    tiers.release(artifact.digest)
    assert tiers.knows(artifact.digest)
    assert tiers.get(artifact.digest) is not None


async def test_a_combination_is_put_together_of_what_is_here(make_tiers, make_artifact):
    """Parts come up from disk for it; it is evicted and dropped as any adapter, and with any of its parts."""
    tiers, artifacts = make_tiers(), [make_artifact(i) for i in range(2)]
    parts = [artifact.digest for artifact in artifacts]
    digest = combined_digest(Part(part, 0.5 + number) for number, part in enumerate(parts))
    await stage(tiers, artifacts[0])
    assert not tiers.knows(digest)
    await stage(tiers, artifacts[1])
    for part in parts:
        tiers.arena.remove(part)
    assert tiers.knows(digest) and tiers.get(digest) is None
    tiers.acquire(digest)
    tiers.request_load(digest)
    await asyncio.to_thread(wait_until, lambda: tiers.arena.has(digest))
    assert tiers.get(digest).rank == sum(tiers.get(part).rank for part in parts)
    assert tiers.arena.used == sum(packed.num_bytes for packed in tiers.arena.contents())
    assert tiers.drop(parts[1])
    assert tiers.get(digest) is not None and not tiers.knows(digest)  # a request still runs
    tiers.release(digest)
    assert tiers.get(digest) is None and tiers.get(parts[1]) is None and tiers.get(parts[0]) is not None


async def test_a_combination_that_cannot_be_says_why(make_tiers, make_artifact, packer):
    tiers, artifact = make_tiers(), make_artifact()
    await stage(tiers, artifact)
    digest = combined_digest([Part(artifact.digest, 0.5)])
    packer.limits = dataclasses.replace(packer.limits, max_rank=1)
    tiers.acquire(digest)
    tiers.request_load(digest)
    await asyncio.to_thread(wait_until, lambda: tiers.load_error(digest) is not None)
    assert tiers.load_error(digest).code == "rank_too_high" and tiers.load_error(artifact.digest) is None
    tiers.release(digest)
    assert tiers.arena.used == tiers.get(artifact.digest).num_bytes
