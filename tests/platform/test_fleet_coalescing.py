"""What a request's buffer hands to its reader, and when."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from control_plane.fleet.transport import errors
from control_plane.fleet.transport.coalescing import WHOLE, Coalescing, RequestBuffer
from control_plane.fleet.transport.errors import HostError
from control_plane.fleet.transport.pace import Pace
from lora_engine.wire import engine_pb2 as pb

POLICY = Coalescing(max_delay_s=1.0, max_tokens=3, stall_tokens=4, stall_bytes=100, stall_s=5.0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def delta(text: str = "x", choice: int = 0, tokens: int = 1, **more: Any) -> pb.Delta:
    return pb.Delta(request_id="r", choice=choice, text=text, num_tokens=tokens, **more)


def test_the_first_token_leaves_at_once_and_the_next_in_company() -> None:
    async def go() -> None:
        buffer, now = RequestBuffer(POLICY), asyncio.get_running_loop().time()
        assert not buffer.push(delta("a"), now)
        assert [chunk.text for chunk in await buffer.take()] == ["a"]
        assert buffer.push(delta("b"), now)  # begins a wait
        assert not buffer.push(delta("c"), now)
        buffer.make_due(now)
        (chunk,) = await buffer.take()
        assert (chunk.text, chunk.tokens) == ("bc", 2)
        for text in "def":
            buffer.push(delta(text), now)
        assert [chunk.text for chunk in await buffer.take()] == ["def"]

    run(go())


def test_tokens_leave_as_they_come_while_the_loop_has_time() -> None:
    async def go() -> None:
        pace = Pace(1.0)
        buffer, now = RequestBuffer(POLICY, pace=pace), asyncio.get_running_loop().time()
        for text in "abc":
            assert not buffer.push(delta(text), now + 0.001)
            assert [chunk.text for chunk in await buffer.take()] == [text]
        pace.adapt(late_s=0.0, busy=0.9)
        buffer.push(delta("d"), now)
        buffer.make_due(now)
        await buffer.take()
        assert buffer.push(delta("e"), asyncio.get_running_loop().time())  # begins a wait
        whole = RequestBuffer(WHOLE, pace=Pace(1.0))
        whole.push(delta("a"), now)
        await whole.take()
        assert not whole.push(delta("b"), now + 60) and not whole._due

    run(go())


def test_the_delay_grows_while_the_loop_is_behind_and_shrinks_to_none() -> None:
    pace, delays = Pace(0.030), []
    for late_s, busy in ((0.0, 0.1), *[(0.02, 0.1)] * 5, (0.0, 0.6), (0.006, 0.1), *[(0.0, 0.2)] * 4):
        pace.adapt(late_s, busy)
        delays.append(pace.delay_s)
    assert delays == [0.0, 0.004, 0.008, 0.016, 0.030, 0.030, 0.030, 0.030, 0.015, 0.0075, 0.00375, 0.0]


def test_a_busy_loop_is_measured_while_there_are_streams() -> None:
    async def go() -> None:
        pace, needed = Pace(0.030, clock=lambda: 0.0), True
        pace.start(lambda: needed)
        pace.start(lambda: needed)  # changes nothing
        for _ in range(3):
            time.sleep(0.09)  # the loop is late
            await asyncio.sleep(0)
        assert pace.delay_s > 0
        while pace.delay_s:
            await asyncio.sleep(0.01)
        needed = False
        await asyncio.sleep(0.12)
        assert pace._timer is None

    run(go())


def test_a_reader_that_waits_is_woken() -> None:
    async def go() -> None:
        buffer = RequestBuffer(POLICY)
        waiting = asyncio.ensure_future(buffer.take())
        await asyncio.sleep(0)
        buffer.push(delta("a"), asyncio.get_running_loop().time())
        assert [chunk.text for chunk in await waiting] == ["a"]
        waiting = asyncio.ensure_future(buffer.take())
        await asyncio.sleep(0)
        buffer.finish(errors.disconnected("one"))
        buffer.finish()  # what comes second changes nothing
        with pytest.raises(HostError, match="engine_disconnected"):
            await waiting
        assert buffer.finished

    run(go())


def test_what_is_buffered_comes_before_the_error() -> None:
    async def go() -> None:
        buffer = RequestBuffer(WHOLE)
        now = asyncio.get_running_loop().time()
        buffer.push(delta("a"), now)
        await buffer.take()
        assert not buffer.push(delta("b"), now)  # a reader of the whole wants no company made due
        buffer.finish(errors.stopped("one"))
        assert [chunk.text for chunk in await buffer.take()] == ["b"]
        with pytest.raises(HostError, match="engine_stopped"):
            await buffer.take()

    run(go())


def test_everything_of_a_delta_is_kept() -> None:
    async def go() -> None:
        buffer, now = RequestBuffer(POLICY), asyncio.get_running_loop().time()
        prompt = pb.PromptDescription(token_ids=[1, 2], text="hi")
        buffer.push(delta("", tokens=0, prompt_logprobs=pb.PromptLogprobs(token_ids=[1]), prompt=prompt), now)
        buffer.push(delta("", tokens=0, embedding=b"1234"), now)
        buffer.push(delta("a", token_ids=[7], logprobs=[pb.TokenLogprob(token_id=7)], reasoning="hm"), now)
        called = [pb.ToolCallDelta(index=0, id="c", name="f", arguments="{")]
        buffer.push(delta("", token_ids=[8], tool_calls=called, reasoning="m"), now)
        ended = [pb.ToolCallDelta(index=0, arguments="}"), pb.ToolCallDelta(index=1, id="d", name="g")]
        buffer.push(delta("", token_ids=[9], tool_calls=ended, finish_reason="tool_calls"), now)
        buffer.push(delta("other", choice=1, prompt=prompt), now)
        chunk, other = await buffer.take()
        assert (chunk.text, chunk.tokens, chunk.token_ids, chunk.finish_reason) == ("a", 3, [7, 8, 9], "tool_calls")
        assert (chunk.reasoning, chunk.embedding, chunk.prompt) == ("hmm", b"1234", prompt)
        assert [(call.name, call.arguments) for call in chunk.tool_calls] == [("f", "{}"), ("g", "")]
        assert [entry.token_id for entry in chunk.logprobs] == [7]
        assert [list(part.token_ids) for part in chunk.prompt_logprobs] == [[1]]
        assert (other.choice, other.text, other.prompt) == (1, "other", prompt)

    run(go())


@pytest.mark.parametrize(
    ("deltas", "later_s"),
    [
        ([delta() for _ in range(5)], 0.0),
        ([delta("x" * 101)], 0.0),
        ([delta(logprobs=[pb.TokenLogprob(token="x" * 101)])], 0.0),
        ([delta(reasoning="x" * 101)], 0.0),
        ([delta(tool_calls=[pb.ToolCallDelta(arguments="x" * 101)])], 0.0),
        ([delta()], 6.0),
    ],
)
def test_a_reader_that_leaves_too_much_is_given_up(deltas: list[pb.Delta], later_s: float) -> None:
    async def go() -> None:
        buffer, now = RequestBuffer(POLICY), asyncio.get_running_loop().time()
        assert not buffer.stalled(now + math.inf)
        for each in deltas:
            buffer.push(each, now)
        assert buffer.stalled(now + later_s)
        buffer.give_up(errors.client_too_slow(buffer.tokens))
        with pytest.raises(HostError, match="client_too_slow"):
            await buffer.take()

    run(go())


def test_a_reader_that_waits_has_not_stalled() -> None:
    async def go() -> None:
        buffer, now = RequestBuffer(POLICY), asyncio.get_running_loop().time()
        waiting = asyncio.ensure_future(buffer.take())
        await asyncio.sleep(0)
        for _ in range(9):
            buffer.push(delta(), now)
        assert not buffer.stalled(now + 60)
        await waiting

    run(go())


def test_plain_tokens_join_what_is_there() -> None:
    async def go() -> None:
        buffer, now = RequestBuffer(POLICY), asyncio.get_running_loop().time()
        assert not buffer.push_plain("a", 7, now)
        (chunk,) = await buffer.take()
        assert (chunk.choice, chunk.text, chunk.tokens, chunk.token_ids) == (0, "a", 1, [7])
        assert buffer.push(delta("b", token_ids=[8]), now)  # begins a wait
        assert not buffer.push_plain("c", 9, now)
        buffer.push(delta("d", finish_reason="stop", token_ids=[10]), now)
        (chunk,) = await buffer.take()
        assert (chunk.text, chunk.tokens, chunk.token_ids, chunk.finish_reason) == ("bcd", 3, [8, 9, 10], "stop")
        for _ in range(5):
            buffer.push_plain("x" * 30, 1, now)
        assert buffer.stalled(now)

    run(go())


def test_a_reader_with_patience() -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        buffer = RequestBuffer(POLICY)
        began = loop.time()
        assert await buffer.take(0.05) is None
        assert 0.05 <= loop.time() - began < 5
        assert await buffer.take(0) is None
        waiting = asyncio.ensure_future(buffer.take(1000))
        await asyncio.sleep(0)
        buffer.interrupt()
        assert await waiting is None
        buffer.interrupt()  # while nobody waits: it is no one's
        waiting = asyncio.ensure_future(buffer.take(0.3))
        await asyncio.sleep(0.2)
        buffer.push(delta("a"), loop.time())
        assert [chunk.text for chunk in await waiting or []] == ["a"]
        began = loop.time()
        assert await buffer.take(0.3) is None
        assert loop.time() - began >= 0.3  # from the last output on
        buffer.push(delta("b"), loop.time())
        buffer.make_due(loop.time())
        assert [chunk.text for chunk in await buffer.take(0) or []] == ["b"]
        buffer.finish()
        assert await buffer.take(0) == []

    run(go())
