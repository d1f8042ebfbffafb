"""The multiplexed session against a real gRPC server with a scripted model."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lorikeet_testing import script
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.tcp_proxy import TcpProxy
from lorikeet_testing.web import free_port, wait_until

from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.coalescing import Coalescing
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import EngineClient
from control_plane.fleet.transport.errors import HostError
from lora_engine.wire import engine_pb2 as pb


@pytest_asyncio.fixture
async def client(loop_engine: FakeEngine) -> AsyncIterator[EngineClient]:
    client = EngineClient(HostEndpoint("local", loop_engine.address))
    yield client
    await client.close()


def ask(request_id: str, prompt: str, **sampling: object) -> pb.Submit:
    return pb.Submit(request_id=request_id, tenant="t", text=prompt, sampling=pb.Sampling(**sampling))


async def read(client: EngineClient, submit: pb.Submit) -> str:
    stream = await client.submit(submit)
    async with stream:
        return "".join([chunk.text async for chunks in stream for chunk in chunks])


async def test_many_requests_share_one_session(client: EngineClient, loop_engine: FakeEngine) -> None:
    submits = [ask(f"r{i}", f"question {i}") for i in range(32)]
    texts = await asyncio.gather(*(read(client, submit) for submit in submits))
    assert texts == [script.plan(submit).text for submit in submits]
    assert loop_engine.sessions == 1
    assert client.open_requests == 0


def test_a_host_on_a_slow_line_is_reached() -> None:
    """A connection takes longer than the wait after an attempt that failed."""
    port = free_port()
    engine, proxy = FakeEngineThread(f"127.0.0.1:{port}"), TcpProxy(port)
    proxy.delay(0.7)
    with engine_calls(HostEndpoint("far", f"127.0.0.1:{proxy.port}")) as calls:
        assert calls.describe().boot_id == engine.engine.boot_id
    proxy.close()
    engine.close()


async def test_each_token_leaves_in_its_step(client: EngineClient, loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.steps_per_second = 400
    stream = await client.submit(ask("r", "words 41"))
    sizes = [chunk.tokens async for chunks in stream for chunk in chunks]
    assert sum(sizes) == 41 and len(sizes) > 30  # some gather where other processes have the processor


async def test_first_token_at_once_then_chunks_of_four_behind_a_busy_loop(loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.steps_per_second = 400
    client = EngineClient(HostEndpoint("local", loop_engine.address), coalescing=Coalescing(max_delay_s=60))
    client.pace.delay_s = 60
    stream = await client.submit(ask("r", "words 41"))
    assert [chunk.tokens async for chunks in stream for chunk in chunks] == [1] + [4] * 10
    await client.close()


async def test_slow_tokens_are_not_held_back(client: EngineClient, loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.steps_per_second = 5
    stream = await client.submit(ask("r", "words 5"))
    assert [chunk.tokens async for chunks in stream for chunk in chunks] == [1] * 5


async def test_usage_comes_with_the_end(client: EngineClient, loop_engine: FakeEngine) -> None:
    stream = await client.submit(ask("r", "words 7"))
    [_ async for _ in stream]
    assert stream.usage == loop_engine.journal["r"]
    assert stream.usage is not None and stream.usage.completion_tokens == 7


async def test_leaving_early_aborts(client: EngineClient, loop_engine: FakeEngine) -> None:
    async with await client.submit(ask("r", "words 5000")) as stream:
        await anext(stream)
    await wait_until(lambda: "r" in loop_engine.aborts)
    await wait_until(lambda: "r" in loop_engine.journal)
    assert loop_engine.journal["r"].outcome == "aborted"


async def test_cancelling_the_reader_aborts(client: EngineClient, loop_engine: FakeEngine) -> None:
    task = asyncio.create_task(read(client, ask("r", "hang")))
    await wait_until(lambda: loop_engine.submits)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: loop_engine.aborts == ["r"])


async def test_refusals_carry_the_engines_words(client: EngineClient) -> None:
    with pytest.raises(HostError) as caught:
        await read(client, ask("r", "fail overloaded"))
    assert caught.value.code == "overloaded"
    assert caught.value.retry_after_s == 1.5


async def test_output_before_a_failure_is_delivered(client: EngineClient) -> None:
    stream = await client.submit(ask("r", "break 6"))
    tokens = 0
    with pytest.raises(HostError, match="device_error"):
        async for chunks in stream:
            tokens += sum(chunk.tokens for chunk in chunks)
    assert tokens == 6


async def test_a_stalled_reader_is_given_up_and_others_never_notice(loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.steps_per_second = 0
    client = EngineClient(HostEndpoint("local", loop_engine.address), coalescing=Coalescing(stall_tokens=100))
    stalled = await client.submit(ask("stalled", "words 15000"))
    await anext(stalled)
    assert await read(client, ask("quick", "words 500")) == script.plan(ask("quick", "words 500")).text
    await wait_until(lambda: loop_engine.aborts == ["stalled"])
    with pytest.raises(HostError, match="client_too_slow"):
        await anext(stalled)
    await client.close()


async def test_a_slow_reader_only_gets_longer_chunks(client: EngineClient, loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.steps_per_second = 500
    submit = ask("r", "words 200")
    text, sizes = "", []
    async for chunks in await client.submit(submit):
        for chunk in chunks:
            text += chunk.text
            sizes.append(chunk.tokens)
        await asyncio.sleep(0.1)
    assert text == script.plan(submit).text
    assert max(sizes) > 8


async def test_every_choice_has_its_own_text(client: EngineClient) -> None:
    submit = ask("r", "tell me", n=3)
    texts = {0: "", 1: "", 2: ""}
    async for chunks in await client.submit(submit):
        for chunk in chunks:
            texts[chunk.choice] += chunk.text
    assert texts == {i: script.plan(submit, i).text for i in range(3)}


async def test_a_crash_ends_open_requests_and_the_next_one_is_served(
    client: EngineClient, loop_engine: FakeEngine
) -> None:
    stream = await client.submit(ask("r", "words 5000"))
    await anext(stream)
    boot_id = client.boot_id
    await loop_engine.stop()
    with pytest.raises(HostError, match="engine_disconnected") as caught:
        [_ async for _ in stream]
    assert caught.value.retry_after_s
    await loop_engine.start()
    submit = ask("r2", "again")
    assert await read(client, submit) == script.plan(submit).text
    assert client.boot_id != boot_id


async def test_no_engine_is_said_within_the_connect_timeout(tmp_path: Path) -> None:
    client = EngineClient(HostEndpoint("local", f"unix:{tmp_path}/none.sock"), connect_timeout_s=2)
    with pytest.raises(HostError, match="engine_unavailable") as caught:
        await client.submit(ask("r", "hello"))
    assert "unix:" in str(caught.value), "for the log"
    assert "unix:" not in caught.value.message, "callers need not know where hosts are"
    await client.close()


async def test_usage_of_an_abandoned_request_reaches_the_sink(loop_engine: FakeEngine) -> None:
    seen: list[pb.Finished] = []
    endpoint = HostEndpoint("local", loop_engine.address)
    client = EngineClient(endpoint, usage_sink=lambda _host, finished: seen.append(finished))
    async with await client.submit(ask("r", "words 5000")) as stream:
        await anext(stream)
    await wait_until(lambda: seen)
    assert seen[0].usage.outcome == "aborted"
    assert await client.acknowledge(["r"]) == 1
    await client.close()


async def test_a_wrong_host_token_is_refused(loop_engine: FakeEngine) -> None:
    loop_engine.behaviour.host_token = "right"
    wrong = EngineClient(HostEndpoint("local", loop_engine.address, token="wrong"), connect_timeout_s=2)

    async def is_named() -> bool:
        """On a busy machine gRPC may report a failure of its own for one of the attempts to connect."""
        with pytest.raises(HostError) as refused:
            await wrong.submit(ask("r", "hello"))
        return "wrong host token" in str(refused.value)

    assert any([await is_named() for _ in range(3)])
    await wrong.close()
    right = EngineClient(HostEndpoint("local", loop_engine.address, token="right"))
    assert (await right.describe()).boot_id == loop_engine.boot_id
    await right.close()
