"""The whole engine process with a small random model: started, killed, drained, restarted."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from pathlib import Path

import pytest
from lorikeet_testing.engine_client import text_request
from lorikeet_testing.engine_process import EngineProcess, running, stage
from lorikeet_testing.tiny_models import save_adapter, save_model

from lora_engine.wire import engine_pb2 as pb

ADAPTERS = ("attention-r8", "mlp-r5", "patterns")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    reference = save_model("llama3-scaled-rope-tied", folder)
    for name in ADAPTERS:
        save_adapter(name, reference, folder.parent / name)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return folder


async def texts(session, digests) -> list[str]:
    requests = [text_request(f"{i}: the prompt", digest=digests[i % len(digests)], max_tokens=12) for i in range(16)]
    results = await asyncio.gather(*(session.run(request) for request in requests))
    assert [result.error.code for result in results] == [""] * 16
    return [result.text() for result in results]


async def test_adapters_in_one_batch_and_from_disk_after_a_restart(model, tmp_path):
    async with running(model, tmp_path) as (process, client):
        description = await client.wait_ready()
        assert description.base_model == "tiny"
        assert description.geometry.num_layers == 3
        digests = ["", *[await stage(client, model.parent / name) for name in ADAPTERS]]
        async with client.session() as session:
            before = await texts(session, digests)
        assert len(set(before)) > 8
        status = await client.status()
        tiers = {adapter.digest: adapter.tier for adapter in status.adapters}
        assert tiers == dict.fromkeys(digests[1:], pb.AdapterResidency.DEVICE)
        times = status.load_times
        assert [times.download.loads, times.from_disk.loads, times.to_device.loads] == [3, 3, 3]
        process.signal(signal.SIGKILL)
        process.wait()
    async with running(model, tmp_path) as (process, client):
        tiers = {adapter.digest: adapter.tier for adapter in (await client.status()).adapters}
        assert tiers == dict.fromkeys(digests[1:], pb.AdapterResidency.DISK)
        async with client.session() as session:
            assert await texts(session, digests) == before
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


FAILS_ONCE_A_FILE_IS_THERE = """
import sys
from pathlib import Path
from lora_engine.execution.runner import Runner
from lora_engine.server.process import main

sign = Path(sys.argv.pop(1))
Runner.failure = property(lambda runner: "the capture of a decode graph failed" if sign.exists() else "")
sys.exit(main())
"""


async def test_an_engine_that_failed_serves_what_it_has_and_ends_to_be_started_anew(model, tmp_path):
    sign = tmp_path / "fail"
    python = ("-c", FAILS_ONCE_A_FILE_IS_THERE, str(sign))
    async with running(model, tmp_path, python=python) as (process, client):
        async with client.session() as session:
            requests = [await session.submit(text_request("p", max_tokens=400, ignore_eos=True)) for _ in range(3)]
            # All of them run, so that none can meet the closed door instead.
            await asyncio.gather(*(request.first_delta.wait() for request in requests))
            sign.touch()
            await asyncio.wait_for(asyncio.gather(*(request.done.wait() for request in requests)), 30)
        assert [request.usage.completion_tokens for request in requests] == [400] * 3
        assert await asyncio.to_thread(process.wait) == 1
        assert "the capture of a decode graph failed" in process.log.read_text()


async def test_no_usage_is_lost_by_kill_nine(model, tmp_path):
    async with running(model, tmp_path) as (process, client):
        async with client.session() as session:
            requests = [text_request(f"p{i}", max_tokens=1 + 3 * i) for i in range(48)]
            collected = [await session.submit(request) for request in requests]
            await collected[20].done.wait()
            process.signal(signal.SIGKILL)
            process.wait()
            with pytest.raises(BaseException, match=r".*"):
                await session.ended()
        seen = {c.usage.request_id: c.usage for c in collected if c.finished is not None}
        assert len(seen) >= 20
    async with running(model, tmp_path) as (process, client):
        journal = {record.request_id: record for record in await client.pull()}
        for request_id, usage in seen.items():
            assert journal[request_id] == usage
        reply = await client.stub.AckUsage(pb.AckUsageRequest(request_ids=list(journal)))
        assert reply.acknowledged == len(journal)
        assert await client.pull() == []


async def test_sigterm_lets_requests_end_then_stops(model, tmp_path):
    async with running(model, tmp_path, "--max-running", "1") as (process, client), client.session() as session:
        # One choice after the other, so that it does not end before the next request comes.
        request = await session.submit(text_request("p", max_tokens=400, n=4, ignore_eos=True))
        await request.first_delta.wait()
        process.signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while not (await client.status()).draining:
                await asyncio.sleep(0.01)
        refused = await session.run(text_request("p"))
        assert refused.error.code == "draining"
        await asyncio.wait_for(request.done.wait(), 30)
        assert request.usage.outcome == "finished"
        assert request.usage.completion_tokens == 1600
        assert await asyncio.to_thread(process.wait) == 0
        assert "Traceback" not in process.log.read_text(), "the session that is still open is no error"
    assert not (tmp_path / "engine.sock").exists()


async def test_the_drain_deadline_aborts(model, tmp_path):
    async with running(model, tmp_path, "--drain-seconds", "0") as (process, client), client.session() as session:
        requests = [await session.submit(text_request("p", max_tokens=400, ignore_eos=True)) for _ in range(8)]
        # All of them run, so that none can meet the closed door instead.
        await asyncio.gather(*(request.first_delta.wait() for request in requests))
        process.signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*(request.done.wait() for request in requests)), 30)
        assert {request.usage.outcome for request in requests} <= {"aborted", "finished"}
        assert await asyncio.to_thread(process.wait) == 0
    async with running(model, tmp_path) as (process, client):
        assert len(await client.pull()) == 8


async def test_a_restart_waits_for_what_runs_as_long_as_it_may_and_says_so_with_its_status(model, tmp_path):
    async with running(model, tmp_path) as (process, client), client.session() as session:
        boot_id = (await client.wait_ready()).boot_id
        request = await session.submit(text_request("p", max_tokens=400, n=32, ignore_eos=True))
        await request.first_delta.wait()
        assert not (await client.stub.Restart(pb.RestartRequest(boot_id="an earlier process"))).restarts
        assert not (await client.status()).draining
        reply = await client.stub.Restart(pb.RestartRequest(boot_id=boot_id, wait_ms=600_000))
        assert (reply.restarts, reply.running > 0) == (True, True)
        await client.stub.Drain(pb.DrainRequest(undo=True))
        status = await client.status()
        assert (status.restarting, status.draining) == (True, True)
        assert (await session.run(text_request("p"))).error.code == "draining"
        assert not request.done.is_set()
        await client.stub.Restart(pb.RestartRequest(boot_id=boot_id, wait_ms=0))  # the last word holds
        await asyncio.wait_for(request.done.wait(), 30)
        assert await asyncio.to_thread(process.wait) == 75
    async with running(model, tmp_path) as (process, client):
        description = await client.wait_ready()
        assert description.boot_id != boot_id
        assert [record.request_id for record in await client.pull()] == [request.usage.request_id]
        reply = await client.stub.Restart(pb.RestartRequest(boot_id=description.boot_id, wait_ms=600_000))
        assert await asyncio.to_thread(process.wait) == 75  # nothing runs: at once


async def test_a_second_instance_says_so(model, tmp_path):
    async with running(model, tmp_path) as (_, client):
        second = EngineProcess(model, tmp_path)
        try:
            assert await asyncio.to_thread(second.wait) == 2
        finally:
            second.end()
        assert "Another engine listens on" in second.log.read_text()
        assert (await client.wait_ready()).base_model == "tiny"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "/nowhere"), "config.json"),
        (("--order", "best"), "choose one of"),
        (("--dtype", "int3"), "unknown dtype"),
        (("--log-level", "LOUD"), "level"),
    ],
)
async def test_what_keeps_it_from_starting(model, tmp_path, options, words):
    process = EngineProcess(model, tmp_path, *options)
    try:
        assert await asyncio.to_thread(process.wait, 60) == 2
    finally:
        process.end()
    last = json.loads(process.log.read_text().splitlines()[-1])
    assert last["level"] == "critical"
    assert words in last["message"]
    assert "Traceback" not in process.log.read_text()


async def test_metrics_and_json_logs(model, tmp_path, unused_tcp_port):
    async with running(model, tmp_path, "--metrics-port", str(unused_tcp_port)) as (process, client):
        async with client.session() as session:
            await session.run(text_request("p", max_tokens=3, ignore_eos=True))
            await session.run(text_request("p", digest="sha256:" + "0" * 64))
        url, text = f"http://127.0.0.1:{unused_tcp_port}/metrics", ""
        async with asyncio.timeout(30):  # they are counted once a second
            while "lora_engine_completion_tokens_total 3" not in text:
                text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
                await asyncio.sleep(0.05)
        assert 'lora_engine_pool_pages{kind="total"}' in text
    lines = [json.loads(line) for line in process.log.read_text().splitlines()]
    assert any(line["message"].startswith("listening on") for line in lines)
    (refusal,) = [line for line in lines if line["message"].startswith("refused")]
    assert refusal["code"] == "adapter_not_found"
    assert refusal["request_id"].startswith("req-")
