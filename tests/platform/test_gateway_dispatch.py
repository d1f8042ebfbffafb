"""What a dispatch does when something happens just while it waits: with a stub of everything around it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from control_plane.adapters.registry.resolve import ModelKind, ModelNotFoundError, ResolvedModel
from control_plane.billing.quotas.budgets import UNBUDGETED
from control_plane.billing.usage.counters import Details
from control_plane.fleet.routing.migration import MAX_MOVES, Lengths
from control_plane.fleet.transport import errors
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import dispatch as dispatch_module
from control_plane.gateway.dispatch import errors as api_errors
from control_plane.gateway.dispatch.dispatch import Dispatch
from control_plane.identity.keys.auth import InvalidKeyError
from lora_engine.wire import engine_pb2 as pb

ACME = SimpleNamespace(slug="acme")
REQUEST = "req_1"


class Stream:
    """What a test puts there: chunks, failures, None for the end."""

    def __init__(self, request_id: str, host: str) -> None:
        self.request_id, self.host = request_id, host
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.closed, self.queued_s = False, 0.0
        self._waiting: asyncio.Timeout | None = None

    async def take(self, patience_s: float) -> list[Chunk] | None:
        try:
            async with asyncio.timeout(patience_s) as self._waiting:
                item = await self.items.get()
        except TimeoutError:
            return None
        finally:
            self._waiting = None
        if isinstance(item, HostError):
            raise item
        return [] if item is None else [item]

    def interrupt(self) -> None:
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def abort(self) -> None: ...

    @property
    def tokens(self) -> int:
        return self.items.qsize()

    def hand_out(self) -> bool:
        return not self.items.empty()

    def close(self) -> None:
        self.closed = True


class Around:
    """A runtime, as far as a dispatch knows it."""

    def __init__(self) -> None:
        self.closing = False
        self.tries: dict[str, Any] = {}
        self.submits: dict[str, pb.Submit] = {}
        self.streams: dict[str, Stream] = {}
        self.rows: list[Any] = []
        self.abandoned: list[str] = []
        self.reserved: set[str] = set()
        self.settled: list[int | None] = []
        self.found = asyncio.Event()
        self.asked = asyncio.Event()
        self.usage = SimpleNamespace(
            put=lambda host, name, ended, *, reported: self.rows.append(ended),
            abandon=lambda host, name, *, reported: self.abandoned.append(name),
            acknowledge=lambda host, name: None,
        )
        self.reservations = SimpleNamespace(ended=self._ended)
        self.lengths = Lengths()
        self.migrator = SimpleNamespace(ended=lambda submit, tokens: self.lengths.ended("t", "", tokens))
        self.fleet = SimpleNamespace(submit=self._submit, hangs=lambda host: True, is_silent=lambda host: False,
                                     accepts=lambda host, base: True, resumes=lambda host: True,
                                     has_room=lambda host: True, charge=lambda submit, tokens: None)  # fmt: skip
        self.admission_cache = SimpleNamespace(
            admission=self._admission, remembered=lambda *_: self.admission, check_again=self._check_again
        )
        self.lost_access: Exception | None = None  # the caller's, of a request that waits
        model = ResolvedModel(ModelKind.BASE, None, None, "", "m")
        self.admission: Any = SimpleNamespace(hosts=("a", "b"), model=model, base_digest="",
                                              principal=SimpleNamespace(tenant=ACME, api_key=None, user=None),
                                              sleeper=None, base_model_id=None, base_model="m",
                                              budgets=UNBUDGETED)  # fmt: skip
        self.admission.for_request = lambda _name: self.admission

    def expect(self, name: str, attempt: Any, reservation: Any) -> None:
        self.tries[name] = attempt
        self.reserved.add(name)

    def unsent(self, name: str) -> None:
        self._ended(name, 0)

    def ended(self, name: str, tokens: int | None, cost: int | None) -> None:
        self._ended(name, tokens)

    def _ended(self, name: str, tokens: int | None) -> None:
        if name in self.reserved:
            self.reserved.discard(name)
            self.settled.append(tokens)

    async def _submit(
        self, submit: pb.Submit, hosts: Any, name: str, coalescing: Any, *, waits: bool, after_wait: Any
    ) -> Stream:
        assert waits == (not self.submits), "a request had its turn when it was sent first"
        self.submits[submit.request_id] = submit
        self.streams[submit.request_id] = stream = Stream(submit.request_id, hosts[0])
        return stream

    async def _admission(self, principal: Any, name: str, **_: bool) -> Any:
        self.asked.set()
        await self.found.wait()
        return self.admission

    async def _check_again(self, principal: Any) -> None:
        if self.lost_access is not None:
            raise self.lost_access

    async def dispatch(self, *, streamed: bool = True, **asked: Any) -> Dispatch:
        context = SimpleNamespace(
            streamed=streamed, endpoint="e", created_at=None, ignored=[], optional={}, schemas=None,
            keep=None, trace_parent="", client_request_id="", details=Details(auth_ms=3, quota_ms=2),
        )  # fmt: skip
        submit = pb.Submit(request_id=REQUEST, **asked)
        made = Dispatch(self, self.admission, context, submit, None)  # type: ignore[arg-type]
        await made.begin(waits=True)
        return made

    def report(self, outcome: str, tokens: int = 0, code: str = "", name: str = REQUEST, **more: Any) -> None:
        usage = pb.UsageRecord(request_id=name, outcome=outcome, prompt_tokens=5, completion_tokens=tokens, **more)
        error = pb.EngineError(code=code) if code else None
        self.tries[name].finished("a", pb.Finished(request_id=name, usage=usage, error=error))

    def row(self) -> tuple[str, str, int, int]:
        (row,) = self.rows
        assert not self.reserved, "something stays reserved"
        return row.outcome, row.error_code, row.counts.prompt_tokens, row.counts.completion_tokens


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_caller_that_leaves_while_another_host_is_looked_for() -> None:
    async def go() -> None:
        around = Around()
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        await asyncio.sleep(0)
        around.tries[REQUEST].lost(REQUEST)
        around.streams[REQUEST].items.put_nowait(errors.disconnected("a"))
        await around.asked.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        dispatch.close()
        assert around.row() == ("failed", "engine_disconnected", 0, 0)
        assert list(around.tries) == [REQUEST]

    run(go())


def test_a_host_that_goes_on_while_another_one_is_looked_for(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"engine_hang_s": 0.2})

    async def go() -> None:
        around = Around()
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        await around.asked.wait()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "late", 1))
        around.streams[REQUEST].items.put_nowait(None)
        around.report("finished", 1)
        around.found.set()
        assert [chunk.text for chunk in await reading] == ["late"]
        assert await anext(dispatch, []) == []
        assert around.row() == ("finished", "", 5, 1)
        assert list(around.tries) == [REQUEST] and around.abandoned == []

    run(go())


def test_a_host_that_hung_reports_after_another_one_was_asked(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"engine_hang_s": 0.2})

    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        while len(around.tries) < 2:
            await asyncio.sleep(0.01)
        second = f"{REQUEST}.2"
        around.fleet.hangs = lambda host: False
        around.report("finished", 3)
        around.streams[second].items.put_nowait(Chunk(0, "mine", 1))
        assert [chunk.text for chunk in await reading] == ["mine"]
        dispatch._settlement.started_at -= 10
        around.report("finished", 1, name=second, finish_reason="stop", preemption_spans=[pb.PreemptionSpan(ms=7)])
        assert around.row() == ("finished", "", 5, 1)
        told = around.rows[0].details
        assert (told.auth_ms, told.quota_ms, told.finish_reason) == (3, 2, "stop")
        [(since_the_first, lost)] = told.preemption_spans
        assert since_the_first >= 10_000 and lost == 7
        assert around.abandoned == [REQUEST] and around.streams[REQUEST].closed

    run(go())


def test_what_was_gathered_of_a_host_that_broke_is_thrown_away() -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch(streamed=False)
        for item in (Chunk(0, "half", 1), errors.disconnected("a")):
            around.streams[REQUEST].items.put_nowait(item)
        reading = asyncio.ensure_future(anext(dispatch, []))
        while len(around.tries) < 2:
            await asyncio.sleep(0)
        second = f"{REQUEST}.2"
        for item in (Chunk(0, "whole", 1), None):
            around.streams[second].items.put_nowait(item)
        around.report("finished", 1, name=second)
        assert [chunk.text for chunk in await reading] == ["whole"]

    run(go())


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_a_host_that_does_not_come_back_is_waited_for_so_long(
    settings: Any, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"host_return_s": 60.0 if leaves else 0.2})
    monkeypatch.setattr(dispatch_module, "RETURN_PROBE_S", 0.01)

    async def go() -> None:
        around = Around()
        around.admission.hosts = ("a",)
        around.found.set()
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "half", 2, token_ids=[7, 8]))
        assert [chunk.text for chunk in await anext(dispatch)] == ["half"]
        around.fleet.accepts = lambda host, base: False
        around.tries[REQUEST].lost(REQUEST)
        around.streams[REQUEST].items.put_nowait(errors.disconnected("a"))
        reading = asyncio.ensure_future(anext(dispatch, []))
        if leaves:
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            dispatch.close()
        else:
            with pytest.raises(HostError, match="engine_disconnected"):
                await reading
        assert around.row() == ("failed", "engine_disconnected", 0, 2)
        assert list(around.tries) == [REQUEST]
        assert around.abandoned == [REQUEST]  # at once: its host may bring it up when it is back

    run(go())


DRAINING = HostError("draining", "This host is draining.", "")


class Asleep(Around):
    """A runtime whose only host of a base model that may sleep drains as the first request arrives."""

    def __init__(self, settings: Any, monkeypatch: pytest.MonkeyPatch, wake_wait_s: float = 60.0) -> None:
        super().__init__()
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"wake_wait_s": wake_wait_s, "host_return_s": 0.0})
        monkeypatch.setattr(dispatch_module, "RETURN_PROBE_S", 0.01)
        self.admission.hosts, self.admission.sleeper = ("a",), "m"
        self.found.set()
        self.fleet.accepts = lambda host, base: self.awake
        self.awake = False

    def refuse(self) -> None:
        self.report("refused", code="draining")
        self.streams[REQUEST].items.put_nowait(DRAINING)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_base_model_that_fell_asleep_is_woken_and_waited_for(
    settings: Any, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    async def go() -> None:
        around = Asleep(settings, monkeypatch)
        dispatch = await around.dispatch(streamed=streamed)
        reading = asyncio.ensure_future(anext(dispatch, []))
        around.refuse()
        await asyncio.sleep(0.05)
        assert not reading.done() and list(around.tries) == [REQUEST]
        around.awake = True
        second = f"{REQUEST}.2"
        while second not in around.streams:
            await asyncio.sleep(0)
        assert around.streams[second].host == "a"
        for item in (Chunk(0, "one", 1), None):
            around.streams[second].items.put_nowait(item)
        around.report("finished", 1, name=second)
        assert [chunk.text for chunk in await reading] == ["one"]
        assert around.row() == ("finished", "", 5, 1)

    run(go())


@pytest.mark.parametrize("end", ["late", "aborted", "left"])
def test_a_base_model_is_waited_for_so_long(settings: Any, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    async def go() -> None:
        around = Asleep(settings, monkeypatch, wake_wait_s=0.1 if end == "late" else 60.0)
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        around.refuse()
        await asyncio.sleep(0.05)
        assert not reading.done()
        if end == "left":
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            dispatch.close()
        else:
            if end == "aborted":
                dispatch.abort()
            with pytest.raises(HostError, match="draining"):
                await reading
        around.awake = True
        await asyncio.sleep(0.05)
        assert around.row() == ("refused", "draining", 0, 0)
        assert list(around.tries) == [REQUEST]

    run(go())


@pytest.mark.parametrize("gone", ["key", "adapter"])
@pytest.mark.parametrize("sent", [True, False], ids=["after-it-was-refused", "before-it-was-sent"])
def test_the_wait_for_a_base_model_ends_with_the_key_and_with_the_adapter(
    settings: Any, monkeypatch: pytest.MonkeyPatch, gone: str, sent: bool
) -> None:
    error = InvalidKeyError() if gone == "key" else ModelNotFoundError("m", [])

    async def go() -> None:
        around = Asleep(settings, monkeypatch)
        submit = around.fleet.submit

        async def is_away(*arguments: Any, **more: Any) -> Stream:
            if not sent:
                raise errors.unavailable("a")
            return await submit(*arguments, **more)

        around.fleet.submit = is_away
        beginning = asyncio.create_task(around.dispatch())
        if sent:
            dispatch = await beginning
            around.refuse()
        reading = asyncio.ensure_future(anext(dispatch, []) if sent else beginning)
        await asyncio.sleep(0.03)
        assert not reading.done()
        if gone == "key":
            around.lost_access = error
        else:

            async def not_found(*_: Any, **__: Any) -> Any:
                raise error

            around.admission_cache.admission = not_found
        with pytest.raises(HostError, match=error.code):
            await reading
        assert api_errors.from_failure(HostError(error.code, "", "")).status == error.status
        if sent:
            assert around.row() == ("refused", error.code, 0, 0)

    run(go())


def test_an_answer_that_has_begun_is_finished_without_its_key(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "RETURN_PROBE_S", 0.01)

    async def go() -> None:
        around = Around()
        around.found.set()
        around.admission.hosts = ("a",)
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "half", 2, token_ids=[7, 8]))
        assert [chunk.text for chunk in await anext(dispatch)] == ["half"]
        around.lost_access = InvalidKeyError()
        around.tries[REQUEST].lost(REQUEST)
        around.streams[REQUEST].items.put_nowait(errors.disconnected("a"))
        reading = asyncio.ensure_future(anext(dispatch, []))
        second = f"{REQUEST}.2"
        async with asyncio.timeout(2):
            while second not in around.streams:
                await asyncio.sleep(0)
        around.streams[second].items.put_nowait(Chunk(0, " whole", 1, token_ids=[9]))
        assert [chunk.text for chunk in await reading] == [" whole"]

    run(go())


def test_a_base_model_that_never_sleeps_is_not_waited_for(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        around = Asleep(settings, monkeypatch)
        around.admission.sleeper = None
        dispatch = await around.dispatch()
        around.refuse()
        async with asyncio.timeout(1):
            with pytest.raises(HostError, match="draining"):
                await anext(dispatch)

    run(go())


def test_a_host_that_went_to_sleep_before_the_request_was_sent_is_waited_for(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        around = Asleep(settings, monkeypatch)
        submit = around.fleet.submit

        async def is_away(*arguments: Any, **more: Any) -> Stream:
            if not around.awake:
                raise errors.unavailable("a")
            return await submit(*arguments, **more)

        around.fleet.submit = is_away
        sending = asyncio.create_task(around.dispatch())
        await asyncio.sleep(0.05)
        assert not sending.done()
        around.awake = True
        await sending
        assert around.streams[REQUEST].host == "a"

        around.awake, around.admission.sleeper = False, None
        with pytest.raises(HostError, match="engine_unavailable"):
            await around.dispatch()

    run(go())


def test_a_host_that_returns_continues_what_an_alias_stands_for_no_longer(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version went live, or a canary ended, while the request ran."""
    monkeypatch.setattr(dispatch_module, "RETURN_PROBE_S", 0.01)

    async def go() -> None:
        around = Around()
        around.found.set()
        version: Any = SimpleNamespace(adapter=SimpleNamespace(name="support"), number=1)
        first = ResolvedModel(ModelKind.ADAPTER, version.adapter, version, "sha256:1", "support")
        around.admission.hosts, around.admission.model = ("a",), first
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "half", 2, token_ids=[7, 8]))
        assert [chunk.text for chunk in await anext(dispatch)] == ["half"]

        async def now(principal: Any, name: str, **_: bool) -> Any:
            admission = SimpleNamespace(**vars(around.admission))
            admission.model = replace(first, digest="sha256:1" if name == "support@v1" else "sha256:2")
            admission.for_request = lambda _name: admission
            return admission

        around.admission_cache.admission = now
        around.tries[REQUEST].lost(REQUEST)
        around.streams[REQUEST].items.put_nowait(errors.disconnected("a"))
        reading = asyncio.ensure_future(anext(dispatch, []))
        second = f"{REQUEST}.2"
        async with asyncio.timeout(2):
            while second not in around.streams:
                await asyncio.sleep(0)
        around.streams[second].items.put_nowait(Chunk(0, " whole", 1, token_ids=[9]))
        assert [chunk.text for chunk in await reading] == [" whole"]

    run(go())


@pytest.mark.parametrize(
    ("output", "hosts"),
    [([1, 1, 1, 1, 1], 4), ([1, 0], 2), ([0, 0], 2), ([0, 1, 0], 3), ([3, 3, 3], 2)],
    ids=["each-a-token", "then-none", "none", "then-one", "each-anew"],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_hosts_that_break_under_a_request(output: list[int], hosts: int, streamed: bool) -> None:
    """Two losses without a token in between may be its doing; a long stream outlives losses that are not."""
    anew = output == [3, 3, 3]

    async def go() -> None:
        around = Around()
        around.found.set()
        around.admission.hosts = tuple("abcdef")
        around.fleet.resumes = lambda host: not anew
        dispatch = await around.dispatch(streamed=streamed and not anew)

        async def read() -> None:
            async for _ in dispatch:
                pass

        reading = asyncio.ensure_future(read())
        for number, tokens in enumerate(output, 1):
            stream = around.streams[REQUEST if number == 1 else f"{REQUEST}.{number}"]
            for _ in range(tokens):
                stream.items.put_nowait(Chunk(0, "a", 1, token_ids=[7]))
            around.tries[stream.request_id].lost(stream.request_id)
            stream.items.put_nowait(errors.disconnected("a"))
            while not reading.done() and len(around.tries) == number:
                await asyncio.sleep(0)
            if reading.done():
                break
        with pytest.raises(HostError, match="engine_disconnected"):
            await asyncio.wait_for(reading, 1)
        assert len(around.tries) == hosts

    run(go())


def test_another_host_goes_on_after_the_tokens_that_came() -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch(streamed=False)
        for item in (Chunk(0, "half", 2, token_ids=[7, 8]), Chunk(1, "all", 1, "stop", [9]), errors.disconnected("a")):
            around.streams[REQUEST].items.put_nowait(item)
        reading = asyncio.ensure_future(anext(dispatch, []))
        while len(around.tries) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # the pause
        second = f"{REQUEST}.2"
        parts = {part.choice: (list(part.token_ids), part.finished) for part in around.submits[second].so_far}
        assert parts == {0: ([7, 8], False), 1: ([9], True)}
        for item in (Chunk(0, " and half", 1, "tool_calls", [3]), None):
            around.streams[second].items.put_nowait(item)
        around.report("finished", 4, name=second, finish_reason="tool_calls")
        chunks = await reading
        assert [chunk.text for chunk in chunks] == ["half", "all", " and half"]
        assert not any(chunk.token_ids for chunk in chunks)  # nobody asked for them
        assert around.row() == ("finished", "", 5, 4)
        # The caller's times, not those of the host that came last: it reported none.
        assert 0 <= around.rows[0].counts.first_token_ms < around.rows[0].counts.decode_ms
        # Why each choice ended, on whichever host; of the last one the engine tells.
        assert around.rows[0].details.finish_reason == "stop,tool_calls"

    run(go())


def test_what_was_told_of_the_prompt_alone_is_told_anew() -> None:
    """A stream begins with a token: before that, another host can begin it again."""

    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch(prompt_logprobs=1)
        told = [pb.PromptLogprobs(token_ids=[5]), pb.PromptLogprobs(token_ids=[5, 6])]
        for item in (Chunk(0, "", 0, prompt_logprobs=[told[0]]), errors.disconnected("a")):
            around.streams[REQUEST].items.put_nowait(item)
        reading = asyncio.ensure_future(anext(dispatch, []))
        while len(around.tries) < 2:
            await asyncio.sleep(0)
        second = f"{REQUEST}.2"
        assert not around.submits[second].so_far and around.submits[second].HasField("prompt_logprobs")
        for item in (Chunk(0, "", 0, prompt_logprobs=[told[1]]), Chunk(0, "a", 1, token_ids=[7])):
            around.streams[second].items.put_nowait(item)
        chunks = await reading
        assert [(chunk.text, chunk.prompt_logprobs) for chunk in chunks] == [("", [told[1]]), ("a", [])]

    run(go())


def test_a_host_that_is_silent_is_left_where_there_is_another(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not held against the request: two such hosts and a third may answer."""
    monkeypatch.setattr(dispatch_module, "SILENCE_PROBE_S", 0.02)
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"engine_hang_s": 60.0})

    async def go() -> None:
        around = Around()
        around.found.set()
        around.admission.hosts = ("a", "b", "c")
        around.fleet.hangs = lambda host: False
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "one", 1, token_ids=[7]))
        assert [chunk.text for chunk in await anext(dispatch)] == ["one"]
        around.fleet.is_silent = lambda host: True
        around.fleet.accepts = lambda host, base: False
        reading = asyncio.ensure_future(anext(dispatch, []))
        await asyncio.sleep(0)
        around.streams[REQUEST].interrupt()
        await asyncio.sleep(0.01)
        assert len(around.tries) == 1, "there is no other"
        around.fleet.accepts = lambda host, base: True  # nobody tells it of that
        for number in (1, 2):
            engine_id = REQUEST if number == 1 else f"{REQUEST}.{number}"
            while len(around.tries) == number:
                await asyncio.sleep(0)
            assert around.streams[engine_id].closed
            await asyncio.sleep(0)
        around.fleet.is_silent = lambda host: False
        third = f"{REQUEST}.3"
        for item in (Chunk(0, " two", 1, "stop", [8]), None):
            around.streams[third].items.put_nowait(item)
        around.report("finished", 2, name=third)
        assert [chunk.text for chunk in await reading] == [" two"]
        assert around.row() == ("finished", "", 5, 2)

    run(go())


@pytest.mark.parametrize("reported_first", [True, False])
def test_a_caller_that_does_not_read_has_aborted_it(reported_first: bool) -> None:
    """It is billed what was made, and no failure of the platform's."""

    async def go() -> None:
        around = Around()
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(errors.client_too_slow(4096))
        if reported_first:
            around.report("aborted", 4100)
        with pytest.raises(HostError, match="client_too_slow"):
            await anext(dispatch)
        if not reported_first:
            around.report("aborted", 4100)
        assert around.row() == ("aborted", "", 5, 4100)

    run(go())


def test_the_web_process_stops() -> None:
    """Who still reads is told of a failure; what was aborted before is left to the engine's journal."""

    async def go() -> None:
        around, aborted = Around(), Around()
        reading = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "one", 1))
        await anext(reading)
        left = await aborted.dispatch()
        left.close()
        for each in (around, aborted):
            each.closing = True
            each.tries[REQUEST].lost(REQUEST)
        assert around.row() == ("failed", "engine_disconnected", 0, 1)
        assert aborted.rows == [] and aborted.settled == [None]

    run(go())


def test_an_engine_that_dies_after_the_caller_left() -> None:
    async def go() -> None:
        around = Around()
        dispatch = await around.dispatch()
        around.streams[REQUEST].items.put_nowait(Chunk(0, "one", 1))
        await anext(dispatch)
        dispatch.close()
        around.tries[REQUEST].lost(REQUEST)
        assert around.row() == ("failed", "engine_disconnected", 0, 1)

    run(go())


def test_a_request_that_is_refused_after_all_is_nobodys_usage() -> None:
    async def go() -> None:
        around = Around()
        dispatch = await around.dispatch()
        dispatch.retract()
        around.report("aborted", 7)
        assert around.rows == [] and around.abandoned == [REQUEST] and not around.reserved

    run(go())


# -- requests that move ------------------------------------------------------------------------------------------------


async def settled() -> None:
    await asyncio.sleep(0.02)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("waits", [True, False], ids=["while-it-waits", "before-it-reads-on"])
def test_a_request_that_moves_goes_on_after_all_that_came(streamed: bool, waits: bool) -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch(streamed=streamed)
        first = around.tries[REQUEST]
        assert first.open_request(REQUEST, around.lengths).output_tokens == 0
        around.streams[REQUEST].items.put_nowait(Chunk(0, "one", 1, token_ids=[7]))
        reading: asyncio.Future[list[Chunk]] = asyncio.ensure_future(anext(dispatch, []))
        await settled()
        if streamed:
            assert [chunk.text for chunk in await reading] == ["one"]
            reading = asyncio.ensure_future(anext(dispatch, [])) if waits else reading
            await settled()
        around.streams[REQUEST].items.put_nowait(Chunk(0, " two", 1, token_ids=[8]))  # not read yet
        first.move(REQUEST, "b")
        texts = []
        if streamed:
            reading = reading if waits else asyncio.ensure_future(anext(dispatch, []))
            texts += [chunk.text for chunk in await reading]
            reading = asyncio.ensure_future(anext(dispatch, []))
        await settled()
        second = f"{REQUEST}.2"
        assert [list(part.token_ids) for part in around.submits[second].so_far] == [[7, 8]]
        assert around.abandoned == [REQUEST] and around.streams[REQUEST].closed
        assert not first.open_request(REQUEST, around.lengths), "it is another's now"
        around.report("aborted", 2)  # the old host's, which nobody is billed for
        for item in (Chunk(0, " three", 1, "stop", [9]), None):
            around.streams[second].items.put_nowait(item)
        around.report("finished", 3, name=second)
        texts += [chunk.text for chunk in await reading]
        assert "".join(texts) == (" two three" if streamed else "one two three")
        assert around.row() == ("finished", "", 5, 3)

    run(go())


def test_what_has_no_token_yet_begins_elsewhere() -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        await settled()
        around.tries[REQUEST].move(REQUEST, "b")
        await settled()
        second = f"{REQUEST}.2"
        assert not around.submits[second].so_far and around.abandoned == [REQUEST]
        around.streams[second].items.put_nowait(Chunk(0, "one", 1))
        assert [chunk.text for chunk in await reading] == ["one"]

    run(go())


def test_what_does_not_move() -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch()
        attempt = around.tries[REQUEST]
        reading = asyncio.ensure_future(anext(dispatch, []))
        await settled()
        around.fleet.accepts = lambda host, base: False  # it drains, since the plan was made
        attempt.move(REQUEST, "b")
        await settled()
        attempt.move(REQUEST, "c")  # which has not the content
        await settled()
        around.fleet.accepts, around.fleet.has_room = lambda host, base: True, lambda host: False
        attempt.move(REQUEST, "b")  # which is full
        await settled()
        around.fleet.has_room = lambda host: True
        around.fleet.accepts, around.fleet.resumes = lambda host, base: True, lambda host: False
        around.streams[REQUEST].items.put_nowait(Chunk(0, "one", 1, token_ids=[7]))
        assert [chunk.text for chunk in await reading] == ["one"]
        reading = asyncio.ensure_future(anext(dispatch, []))
        attempt.move(REQUEST, "b")  # which cannot go on with what another began
        await settled()
        assert list(around.tries) == [REQUEST] and attempt.open_request(REQUEST, around.lengths) is not None
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        dispatch.close()
        attempt.move(REQUEST, "b")
        assert attempt.open_request(REQUEST, around.lengths) is None

    run(go())


def test_a_request_moves_so_often_at_most_and_a_host_that_refuses_it_sends_it_on() -> None:
    async def go() -> None:
        around = Around()
        around.found.set()
        dispatch = await around.dispatch()
        reading = asyncio.ensure_future(anext(dispatch, []))
        for number in range(1, MAX_MOVES + 1):
            await settled()
            name = REQUEST if number == 1 else f"{REQUEST}.{number}"
            around.tries[name].move(name, "b")
        await settled()
        last = f"{REQUEST}.{MAX_MOVES + 1}"
        assert around.tries[last].open_request(last, around.lengths) is None
        around.streams[last].items.put_nowait(HostError("overloaded", "", ""))
        await settled()
        after = f"{REQUEST}.{MAX_MOVES + 2}"
        around.streams[after].items.put_nowait(Chunk(0, "one", 1))
        assert [chunk.text for chunk in await reading] == ["one"]

    run(go())
