"""A host with adapters in FP8 serves each in the dtype that its answers allow, and says why."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.cancelling import cancelling

from lora_engine.adapters.dtypes import variants
from lora_engine.config import EngineConfig
from lora_engine.model.loading import LoadedModel, load_model
from lora_engine.peft_format import Part, adapter_digest, combined_digest, folder_digests
from lora_engine.server import adapter_dtypes
from lora_engine.server.adapter_dtypes import LEAST_AGREEING, MOST_DISTANCE, judge
from lora_engine.server.adapter_probes import DtypeReading
from lora_engine.server.host import HostServer
from lora_engine.server.process import build_host
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[3] / "demo"
PIRATE, HAIKU = DEMO / "adapters" / "pirate", DEMO / "adapters" / "haiku"
Report = pb.DtypeReport
NUMBERS = itertools.count()


def settings(folder: Path, **other: Any) -> EngineConfig:
    return EngineConfig(model=DEMO / "model", data_dir=folder, **{"adapter_dtype": "fp8", "threads": 1, **other})


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(settings(tmp_path_factory.mktemp("loaded")))


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cancelling(PIRATE, tmp_path_factory.mktemp("fragile") / "adapter")


@asynccontextmanager
async def running(config: EngineConfig, loaded: LoadedModel) -> AsyncIterator[HostServer]:
    host = build_host(config, loaded)
    host.start()
    try:
        yield host
    finally:
        host.stop()


@pytest.fixture
async def host(tmp_path: Path, loaded: LoadedModel) -> AsyncIterator[HostServer]:
    async with running(settings(tmp_path / "data"), loaded) as host:
        yield host


async def stage(host: HostServer, folder: Path, setting: str = "") -> str:
    files = folder_digests(folder)
    request = pb.StageAdapterRequest(
        digest=adapter_digest(files), source_uri=folder.resolve().as_uri(), file_digests=files, adapter_dtype=setting
    )
    events = [event async for event in host.tiers.stage(request)]
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return request.digest


async def report(host: HostServer, digest: str, setting: str = "", patience_s: float = 60) -> pb.DtypeReport:
    reply = await host.resident_adapters.compare_dtypes(digest, setting, patience_s)
    assert not reply.HasField("error"), reply.error
    return reply.report


Request = tuple[str, str]  # digest and setting


async def answers(host: HostServer, requests: Sequence[Request], tokens: int = 8) -> list[list[int]]:
    """Run requests together; return the tokens of each."""
    names = [f"request-{next(NUMBERS)}" for _ in requests]
    session, sampling = ClientSession(), pb.Sampling(max_tokens=tokens, ignore_eos=True)
    for number, (digest, setting) in enumerate(requests):
        submit = pb.Submit(
            request_id=names[number], text="Once upon a time", adapter_digest=digest, adapter_dtype=setting,
            sampling=sampling, echo_token_ids=True,
        )  # fmt: skip
        host.requests.submit(session, submit)
    session.end_when_idle()
    found: dict[str, list[int]] = {}

    async def take(message: pb.EngineMessage) -> None:
        for delta in message.step.deltas:
            found.setdefault(delta.request_id, []).extend(delta.token_ids)
        for end in message.step.finished:
            assert (end.usage.outcome, end.error.message) == ("finished", "")
            assert not end.usage.adapter_digest.endswith("fp8")

    async with asyncio.timeout(60):
        await session.send_all(take)
    return [found[name] for name in names]


async def in_memory(host: HostServer) -> dict[str, str]:
    """Return the dtypes of the host's adapters in memory, by digest."""
    return {each.digest: each.dtype for each in (await host.status.read()).adapters if each.dtype}


async def test_an_adapter_that_agrees_is_served_in_fp8_after_its_report(host: HostServer) -> None:
    digest = await stage(host, PIRATE)
    before = await report(host, digest, patience_s=0)
    assert (before.outcome, before.dtype) == (Report.PENDING, "float32")
    in_pool = (await answers(host, [(digest, "")]))[0]
    after = await report(host, digest)
    assert (after.outcome, after.dtype, after.reason) == (Report.AGREES, "fp8", "")
    assert after.tokens > 50 and after.agreeing >= LEAST_AGREEING * after.tokens
    assert 0 < after.mean_distance < MOST_DISTANCE < after.largest_distance + MOST_DISTANCE
    assert (after.least_agreeing, after.most_distance) == (pytest.approx(LEAST_AGREEING), pytest.approx(MOST_DISTANCE))
    packed = host.tiers.get(variants(digest).fp8)
    assert packed is not None and packed.layout.fp8_rows and after.pool_pages == packed.num_pages
    assert host.tiers.get(digest) is None  # it left memory again
    assert await in_memory(host) == {digest: "fp8"}
    host.metrics.status = await host.status.read()
    assert 'lora_engine_adapters_by_dtype{dtype="fp8"} 1\n' in host.metrics.text()
    await host.resident_adapters.probe(digest, 60)
    assert await in_memory(host) == {digest: "fp8"}
    # A setting in the request prevails, in one batch with the others, whose answers are those that they have alone.
    mixed = [(digest, ""), (digest, "bf16"), ("", ""), (digest, "fp8")]
    together = await answers(host, mixed)
    assert together == [(await answers(host, [each]))[0] for each in mixed]
    assert together[1] == in_pool and together[0] == together[3]
    assert (await report(host, digest, "bf16")).dtype == "float32"
    assert (await report(host, digest)).elapsed_ms == after.elapsed_ms  # it is not compared again


async def test_an_adapter_that_differs_stays_in_the_pools_dtype(host: HostServer, fragile: Path) -> None:
    digest, pirate = await stage(host, fragile), await stage(host, PIRATE)
    seen = await report(host, digest)
    assert (seen.outcome, seen.dtype) == (Report.DIFFERS, "float32")
    assert "the same most likely token after" in seen.reason and "log-probabilities move by" in seen.reason
    assert host.tiers.get(variants(digest).fp8) is None
    in_pool, in_fp8 = await answers(host, [(digest, ""), (digest, "fp8")], tokens=32)
    assert in_pool == (await answers(host, [(pirate, "bf16")], tokens=32))[0]
    assert in_pool != in_fp8
    assert (await report(host, digest, "fp8")).dtype == "fp8"
    assert (await report(host, digest, "fp8")).outcome == Report.DIFFERS


async def test_requests_that_run_keep_the_dtype_with_which_they_began(host: HostServer) -> None:
    digest = await stage(host, PIRATE)
    (alone,) = await answers(host, [(digest, "bf16")], tokens=120)
    running = asyncio.create_task(answers(host, [(digest, "")], tokens=120))
    await asyncio.sleep(0.01)
    host.tiers.dtypes.decide(digest, agrees=True)
    await host.resident_adapters._dtypes.retire(digest)
    (in_fp8,) = await answers(host, [(digest, "")])
    assert not running.done()
    assert (await running) == [alone]
    assert in_fp8 == (await answers(host, [(digest, "fp8")]))[0]


async def test_a_restarted_host_and_one_without_fp8_have_reports_of_their_own(
    tmp_path: Path, loaded: LoadedModel, fragile: Path
) -> None:
    for _ in range(2):
        async with running(settings(tmp_path / "data"), loaded) as host:
            assert await in_memory(host) == {}
            both = [await stage(host, folder) for folder in (PIRATE, fragile)]
            assert [(await report(host, digest, patience_s=0)).dtype for digest in both] == ["float32"] * 2
            assert [(await report(host, digest)).dtype for digest in both] == ["fp8", "float32"]
    config = settings(tmp_path / "other", adapter_dtype="auto")
    async with running(config, load_model(config)) as other:
        digest = await stage(other, PIRATE)
        for setting in ("", "bf16", "fp8"):
            seen = await report(other, digest, setting)
            assert (seen.dtype, seen.outcome) == ("float32", Report.NOT_MEASURED)
            assert "started without --adapter-dtype fp8" in seen.reason
        assert len({tuple(tokens) for tokens in await answers(other, [(digest, ""), (digest, "fp8")])}) == 1


async def test_settings_of_versions_without_a_comparison(host: HostServer) -> None:
    """A setting is followed at once: it is loaded in its dtype, pinned in it, and dropped in both."""
    digest, other = await stage(host, PIRATE, "fp8"), await stage(host, HAIKU, "bf16")
    assert await in_memory(host) == {digest: "fp8", other: "float32"}
    seen = await report(host, other, "bf16")
    assert (seen.dtype, seen.outcome, seen.reason) == (
        "float32",
        Report.NOT_MEASURED,
        "The version's adapter_dtype is bf16.",
    )
    assert await host.resident_adapters.pin([digest, other], ["fp8", ""]) == [digest, other]
    assert (await report(host, other)).dtype == "fp8"
    async with asyncio.timeout(10):
        while await host.resident_adapters.pin([digest, other], ["fp8", ""]) != [digest, other]:
            await asyncio.sleep(0.01)
    on_device = {each.digest: each.dtype for each in (await host.status.read()).adapters if each.tier == 3}
    assert on_device == {digest: "fp8", other: "fp8"}
    await answers(host, [(digest, "bf16")])
    assert await host.resident_adapters.drop(digest)
    assert await in_memory(host) == {other: "fp8"} and not host.tiers.knows(variants(digest).fp8)
    missing = await host.resident_adapters.compare_dtypes(digest, "", 1)
    assert missing.error.code == "adapter_not_found"


async def test_combinations_have_the_pools_dtype(host: HostServer) -> None:
    digests = [await stage(host, folder) for folder in (PIRATE, HAIKU)]
    combined = combined_digest([Part(digest, 0.5) for digest in digests])
    before = await answers(host, [(combined, "")])
    assert [(await report(host, digest)).dtype for digest in digests] == ["fp8", "fp8"]
    assert await answers(host, [(combined, "fp8")]) == before


async def test_a_comparison_that_ends_without_a_result_is_made_again(
    host: HostServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await stage(host, PIRATE)
    monkeypatch.setattr(adapter_dtypes, "_LIMIT_S", 0.0)
    failed = await host.resident_adapters.compare_dtypes(digest, "", 60)
    assert failed.error.code == "overloaded" and failed.error.retry_after_ms
    assert len((await answers(host, [(digest, "")]))[0]) == 8  # served meanwhile
    monkeypatch.setattr(adapter_dtypes, "_LIMIT_S", 60.0)
    first, second = await asyncio.gather(report(host, digest), report(host, digest))
    assert first == second and first.dtype == "fp8"


async def test_an_adapter_without_factors_has_nothing_to_compare(
    host: HostServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is packed alike in both dtypes, as one that changes the embedding alone is."""
    monkeypatch.setattr(host.tiers, "_fp8_packer", host.tiers._packer)
    seen = await report(host, await stage(host, PIRATE))
    assert (seen.dtype, seen.outcome) == ("float32", Report.NOT_MEASURED)
    assert seen.reason == "It has no factors of LoRA, which alone are kept in FP8."


def test_bounds() -> None:
    near = DtypeReading(100, 90, (MOST_DISTANCE,))
    assert judge([near]).outcome == Report.AGREES
    for far in (DtypeReading(100, 89, (0.0,)), DtypeReading(100, 100, (MOST_DISTANCE + 0.01,))):
        assert judge([far]).outcome == Report.DIFFERS and judge([far]).reason
    assert "overflow" in judge([near, DtypeReading(overflows=True)]).reason
    assert judge([DtypeReading(0, 0)]).outcome == Report.NOT_MEASURED
