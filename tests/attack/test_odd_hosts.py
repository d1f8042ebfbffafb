"""A host whose credential was stolen says what it likes: others are used, all else goes on, and nobody pays for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.three_hosts import ThreeHosts, id_of

from control_plane.billing.usage import recovery, request_ids
from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import ApiEndpoint, Outcome, UsageEvent
from control_plane.billing.usage.recovery import recover_usage
from control_plane.core.db import run_db
from control_plane.fleet.hosts.actions import record_status
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.hosts.watcher import HostWatcher
from control_plane.fleet.routing.connections import HostConnection
from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.router import HostLoad, SoonestFirstToken
from control_plane.fleet.transport import plausible
from control_plane.fleet.transport.blocking_client import EngineCalls
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import EngineClient
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.recording.usage import UsageWriter
from lora_engine.wire import adapter_list
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterList, AdapterListError

HUGE = 1 << 63
NUMBERS = [math.nan, math.inf, -math.inf, 1e300]


def usage(**fields: Any) -> pb.UsageRecord:
    now = time.time()
    good: dict[str, Any] = {"outcome": "finished", "submitted_unix": now - 60, "finished_unix": now - 59, "seq": 1}
    return pb.UsageRecord(**good | {"prompt_tokens": 3, "completion_tokens": 4} | fields)


ODD_MESSAGES = [
    pb.HostStatus(unix_time=math.nan),
    pb.HostStatus(tokens_per_second=math.inf),
    pb.HostStatus(steps=HUGE),
    pb.HostStatus(running=(1 << 32) - 1),
    pb.HostStatus(boot_id="x" * 65),
    pb.HostStatus(tenants=[pb.TenantShare(tenant="a\0b")]),
    pb.HostStatus(tenants=[pb.TenantShare(counter=math.nan)]),
    pb.HostStatus(tenants=[pb.TenantShare(reason="x" * (10 << 20))]),
    pb.HostStatus(service_gap=pb.ServiceGap(gap=math.inf, bound=1)),
    pb.HostStatus(load_times=pb.LoadTimes(to_device=pb.LoadTime(fixed_s=math.nan))),
    pb.HostStatus(adapters=[pb.AdapterResidency(digest="x" * 72)]),
    pb.HostStatus(adapters=[pb.AdapterResidency(digest="x", bytes=HUGE)]),
    pb.HostStatus(adapters=[pb.AdapterResidency(digest="x", tier=99)]),  # type: ignore[arg-type]
    pb.HostStatus(adapters_gone=["\0"]),
    pb.EngineDescription(base_model="\0"),
    pb.EngineDescription(policies={"order": "x" * (10 << 20)}),
    pb.EngineDescription(page_bytes=HUGE),
    pb.EngineDescription(last_end=pb.LastEnd(unix_time=math.nan)),
    pb.EngineDescription(geometry=pb.BaseGeometry(num_layers=(1 << 32) - 1)),
    usage(prompt_tokens=(1 << 32) - 1),
    usage(device_us=HUGE),
    usage(queue_ms=(1 << 32) - 1),
    usage(request_id="x" * 65),
    usage(preemption_spans=[pb.PreemptionSpan(at_ms=(1 << 32) - 1)]),
]


@pytest.mark.parametrize("message", ODD_MESSAGES, ids=lambda message: str(message.ListFields()[0][0].name))
def test_what_no_engine_says(message: Any) -> None:
    with pytest.raises(HostError) as raised:
        plausible.require_plausible("h", message)
    assert raised.value.code == plausible.IMPLAUSIBLE and len(raised.value.detail) < 200


def test_what_engines_say() -> None:
    plausible.require_plausible("h", usage(device_us=10**12, decode_ms=1 << 30))
    plausible.require_plausible("h", pb.HostStatus(adapters_sum=(1 << 64) - 1, prefixes=[(1 << 64) - 1], steps=1 << 40))


# -- heartbeats -------------------------------------------------------------------------------------------------------


def saying(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    good = engine.status

    def status() -> pb.HostStatus:
        said = good()
        said.MergeFrom(pb.HostStatus(**fields))
        return said

    monkeypatch.setattr(engine, "status", status)


async def until(condition: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


@pytest.mark.django_db(transaction=True)
async def test_a_host_with_odd_heartbeats_is_away_until_it_mends(
    loop_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_db(lambda: EngineHost.objects.create(name="local", address=loop_engine.address))
    monkeypatch.setattr("control_plane.fleet.hosts.watcher.RETRY_S", 0.02)
    task = asyncio.create_task(HostWatcher(HostEndpoint("local", loop_engine.address), interval_s=0.05).run())

    async def state_is(state: HostState) -> bool:
        return await run_db(EngineHost.objects.filter(name="local", state=state).exists)

    try:
        await until(lambda: state_is(HostState.ONLINE))
        with monkeypatch.context() as patch:
            saying(loop_engine, patch, tokens_per_second=math.nan)
            await until(lambda: state_is(HostState.OFFLINE))
        await until(lambda: state_is(HostState.ONLINE))
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.django_db
def test_a_gap_beside_no_bound_is_none(host: Any) -> None:
    name = EngineHost.objects.get().name
    record_status(name, pb.HostStatus(service_gap=pb.ServiceGap(gap=1, bound=0, ahead="a", behind="b")))


def test_a_host_cannot_list_adapters_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_list, "MAX_ADAPTERS", 100)
    known = AdapterList()
    with pytest.raises(AdapterListError):
        for page in range(11):
            status = pb.HostStatus(adapter_changes=page > 0)
            status.adapters.extend(pb.AdapterResidency(digest=f"{page}-{index}") for index in range(10))
            known.observe(status)
    assert len(known.by_digest) <= 100


# -- dispatch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [*NUMBERS, -1.0])
@pytest.mark.parametrize("field", ["seconds", "prompt_token_s", "place_s"])
def test_a_forecast_that_cannot_be_decides_nothing(field: str, number: float) -> None:
    said, submit = FirstTokenPrediction(), pb.Submit(text="x" * 100, tenant="t")
    said.observed(pb.HostStatus(first_token=pb.FirstTokenForecast(**{field: number})))
    assert said.seconds(submit) is None and said.prompt_token_s == 0
    good = FirstTokenPrediction()
    good.observed(pb.HostStatus(first_token=pb.FirstTokenForecast(seconds=1)))
    loads = [HostLoad(name, 0, first_token_s=one.seconds(submit)) for name, one in (("bad", said), ("good", good))]
    assert SoonestFirstToken().choose(loads).name in ("bad", "good")


@pytest.mark.parametrize("number", NUMBERS)
def test_load_times_that_cannot_be(number: float) -> None:
    said = FirstTokenPrediction()
    said.observed(
        pb.HostStatus(
            first_token=pb.FirstTokenForecast(seconds=1),
            load_times=pb.LoadTimes(to_device=pb.LoadTime(fixed_s=number)),
            adapters=[pb.AdapterResidency(digest="d", tier=pb.AdapterResidency.HOST)],
        )
    )
    assert said.seconds(pb.Submit(text="x", adapter_digest="d")) is None


async def test_what_cannot_be_read_does_not_end_the_following(
    loop_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.fleet.routing.connections.RETRY_S", 0.02)
    connection = HostConnection(EngineClient(HostEndpoint("local", loop_engine.address)))
    failures = iter([OverflowError("odd"), ValueError("odd")])
    real = FirstTokenPrediction.observed

    def observed(self: FirstTokenPrediction, status: pb.HostStatus) -> None:
        if failure := next(failures, None):
            raise failure
        real(self, status)

    monkeypatch.setattr(FirstTokenPrediction, "observed", observed)
    connection.start()
    try:
        async with asyncio.timeout(20):
            while connection.status is None:
                await asyncio.sleep(0.02)
        assert connection.accepts
    finally:
        await connection.close()


# -- answers ----------------------------------------------------------------------------------------------------------


class Odd(FakeEngine):
    """Answers each request by `script`."""

    script: Any = staticmethod(lambda submit: iter(()))

    def _submit(self, submit: pb.Submit, outbox: Any) -> None:
        for step in self.script(submit):
            outbox.put_nowait(pb.EngineMessage(step=step))


@asynccontextmanager
async def odd_fleet(tmp_path: Path, script: Any) -> AsyncIterator[tuple[EngineClient, Odd]]:
    engine = Odd(f"unix:{tmp_path}/odd.sock")
    engine.script = script
    await engine.start()
    client = EngineClient(HostEndpoint("odd", engine.address))
    try:
        yield client, engine
    finally:
        await client.close()
        await engine.stop()


async def read(client: EngineClient, **sampling: Any) -> list[Any]:
    stream = await client.submit(
        pb.Submit(request_id=uuid4().hex, tenant="t", text="hi", sampling=pb.Sampling(**sampling))
    )
    async with stream:
        return [chunk async for chunks in stream for chunk in chunks]


def endless(submit: pb.Submit) -> Iterator[pb.StepDeltas]:
    for _ in range(40):
        yield pb.StepDeltas(deltas=[pb.Delta(request_id=submit.request_id, text="x" * 100_000, num_tokens=1)])


def silent(submit: pb.Submit) -> Iterator[pb.StepDeltas]:
    """No text and no tokens: prompts' logprobs and calls of tools that nobody asked for."""
    call = pb.ToolCallDelta(arguments="x" * 100_000)
    for _ in range(40):
        yield pb.StepDeltas(deltas=[pb.Delta(request_id=submit.request_id, tool_calls=[call])])


@pytest.mark.parametrize("script", [endless, silent])
async def test_an_answer_without_end(tmp_path: Path, script: Any) -> None:
    async with odd_fleet(tmp_path, script) as (client, engine), asyncio.timeout(20):
        with pytest.raises(HostError) as raised:
            await read(client, max_tokens=5)
        assert raised.value.code == plausible.IMPLAUSIBLE
        while not engine.aborts:
            await asyncio.sleep(0.02)
        assert client.connected and not client.open_requests


def uneven(submit: pb.Submit) -> Iterator[pb.StepDeltas]:
    yield pb.StepDeltas(plain=pb.PlainTokens(handles=[submit.handle], texts=["a"]))


def unpayable(submit: pb.Submit) -> Iterator[pb.StepDeltas]:
    said = usage(request_id=submit.request_id, device_us=HUGE)
    yield pb.StepDeltas(finished=[pb.Finished(request_id=submit.request_id, usage=said)])


@pytest.mark.parametrize("script", [uneven, unpayable])
async def test_what_cannot_be_is_a_broken_session(tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.fleet.transport.engine_client.BACKOFF_ODD_S", 0.05)
    async with odd_fleet(tmp_path, script) as (client, engine), asyncio.timeout(20):
        for _ in range(2):  # it is connected to again
            with pytest.raises(HostError) as raised:
                await read(client)
            assert raised.value.code == "engine_disconnected"
        assert engine.sessions == 2


async def test_a_text_of_an_error_has_an_end(tmp_path: Path) -> None:
    def script(submit: pb.Submit) -> Iterator[pb.StepDeltas]:
        text = "x" * (10 << 20)
        error = pb.EngineError(code=text, message=text, fix=text, param=text)
        yield pb.StepDeltas(finished=[pb.Finished(request_id=submit.request_id, error=error)])

    async with odd_fleet(tmp_path, script) as (client, _), asyncio.timeout(20):
        with pytest.raises(HostError) as raised:
            await read(client)
    assert len(str(vars(raised.value))) < 30_000


def test_an_error_can_be_stored() -> None:
    error = HostError.from_wire(pb.EngineError(code="a\0b", message="a\0b", fix="\0", param="\0"))
    assert (error.code, error.message, error.fix, error.param) == ("engine_error", "ab", "", "")
    assert HostError.from_wire(pb.EngineError(code="adapter_overflow")).code == "adapter_overflow"


# -- usage ------------------------------------------------------------------------------------------------------------


def test_nobody_pays_for_more_than_was_asked_for() -> None:
    submit = pb.Submit(text="x" * 1000, sampling=pb.Sampling(max_tokens=10, n=2))
    said = Counts.of(usage(prompt_tokens=1 << 25, cached_prompt_tokens=1 << 25, completion_tokens=1 << 25))
    bound = said.within(plausible.most_prompt_tokens(submit), plausible.most_output_tokens(submit))
    assert bound.completion_tokens == 20
    assert bound.cached_prompt_tokens <= bound.prompt_tokens < 100_000


def ended(org: Any, **fields: Any) -> Ended:
    request_id = f"req_{uuid4().hex}"
    good = {"request_id": request_id, "tenant": org.tenant, "model": "m", "endpoint": ApiEndpoint.CHAT}
    return Ended(**good | {"outcome": "finished", "created_at": timezone.now(), "counts": Counts()} | fields)


@pytest.mark.django_db(transaction=True)
async def test_usage_that_cannot_be_stored_holds_up_no_other(acme: Any) -> None:
    acknowledged: list[str] = []

    async def acknowledge(_host: str, ids: list[str]) -> None:
        acknowledged.extend(ids)

    writer = UsageWriter(acknowledge)
    writer.start()
    good = [ended(acme) for _ in range(3)]
    odd = [ended(acme, outcome="odd"), ended(acme, counts=Counts(prompt_tokens=-1))]
    for one in (good[0], *odd, *good[1:]):
        writer.put("h", one.request_id, one, reported=True)
    async with asyncio.timeout(20):
        while await run_db(UsageEvent.objects.count) < 3:
            await asyncio.sleep(0.05)
    await writer.close()
    stored = await run_db(lambda: set(UsageEvent.objects.values_list("request_id", flat=True)))
    assert stored == {one.request_id for one in good}
    assert set(acknowledged) >= stored


class Journal:
    """Of a host, as `engine_calls` gives it."""

    def __init__(self, pages: Any) -> None:
        self._pages = pages
        self.acknowledged: list[str] = []

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_exc: object) -> None: ...

    def pull_usage(self, after_seq: int, limit: int) -> list[pb.UsageRecord]:
        return self._pages(after_seq)

    def acknowledge(self, request_ids: list[str]) -> None:
        self.acknowledged += request_ids


ODD_RECORDS: list[dict[str, Any]] = [
    {"submitted_unix": math.nan}, {"submitted_unix": 1e300}, {"submitted_unix": -1e12}, {"submitted_unix": 4e9},
    {"finished_unix": math.nan}, {"outcome": "odd"}, {"outcome": ""}, {"device_us": HUGE},
    {"prompt_tokens": (1 << 32) - 1}, {"decode_ms": (1 << 32) - 1}, {"error_code": "\0"}, {"request_id": "\0"},
    {"request_id": "req_" + "١" * 44 + "cs"}, {"tenant": "\0"}, {"adapter_digest": "*+*"},
    {"adapter_loaded_from": "x" * 9},
]  # fmt: skip


@pytest.mark.django_db
def test_odd_records_hold_up_no_others(acme: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = request_ids.make(acme.principal(), ApiEndpoint.CHAT, streamed=False)
    records = [
        usage(
            **{"request_id": made.replace(made[4:6], f"{index:02}"), "tenant": str(acme.tenant.pk), "seq": index + 1}
            | odd
        )
        for index, odd in enumerate(ODD_RECORDS)
    ]
    records.append(usage(request_id=made, tenant=str(acme.tenant.pk), seq=len(records) + 1))
    journal = Journal(lambda after: [record for record in records if record.seq > after])
    monkeypatch.setattr(recovery, "engine_calls", lambda endpoint: journal)
    assert recover_usage(HostEndpoint("local", "unix:/nowhere")) >= 1
    assert UsageEvent.objects.filter(request_id=made, outcome=Outcome.FINISHED).exists()
    assert made in journal.acknowledged


@pytest.mark.django_db
def test_a_host_makes_up_no_requests(acme: Any, globex: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was asked for is paid, by who asked, once."""
    made = request_ids.make(acme.principal(), ApiEndpoint.CHAT, streamed=False)
    own, other = str(acme.tenant.pk), str(globex.tenant.pk)
    spelt = made[:25] + chr(ord(made[25]) + 1) + made[26:]  # the same bytes, where its last two bits do not count
    tries = [
        (made, other),
        (f"{made[:-1]}b", own),
        (f"{made[:-2]}tw", own),
        (f"req_{'A' * 22}{made[26:]}", own),
        (made.replace(made[10:14], "AAAA"), own),
        (made[:26] + request_ids.make(globex.principal(), ApiEndpoint.CHAT, streamed=False)[26:], other),
        (spelt, own),
    ]
    records = [usage(request_id=text, tenant=tenant, seq=seq) for seq, (text, tenant) in enumerate(tries, 1)]
    records.append(usage(request_id=f"{made}.2", tenant=own, seq=100))
    records.append(usage(request_id=made, tenant=own, seq=101))
    journal = Journal(lambda after: [record for record in records if record.seq > after])
    monkeypatch.setattr(recovery, "engine_calls", lambda endpoint: journal)
    assert recover_usage(HostEndpoint("local", "unix:/nowhere")) == 1
    assert [*UsageEvent.objects.values_list("request_id", "tenant")] == [(made, acme.tenant.pk)]


@pytest.mark.django_db
@pytest.mark.parametrize("seq", [0, 5])
def test_a_journal_that_does_not_go_on_is_left(acme: Any, host: Any, seq: int, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(lambda after: [usage(request_id="x", tenant="t", seq=seq)])
    monkeypatch.setattr(recovery, "engine_calls", lambda endpoint: journal)
    with pytest.raises(HostError, match="journal"):
        recover_usage(HostEndpoint("local", "unix:/nowhere"))


@pytest.mark.django_db
def test_a_journal_without_end_is_left(acme: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LONGEST_S", 0.2)
    journal = Journal(lambda after: [usage(request_id="x", tenant="t", seq=after + 1)])
    monkeypatch.setattr(recovery, "engine_calls", lambda endpoint: journal)
    began = time.monotonic()
    assert recover_usage(HostEndpoint("local", "unix:/nowhere")) == 0
    assert time.monotonic() - began < 5


# -- what tenants look at ---------------------------------------------------------------------------------------------

OWNER = pb.PageOwner(kind=pb.PageOwner.FREE)


@pytest.mark.parametrize(
    "said",
    [
        pb.PageMap(owners=[OWNER], owner_of=[1], lengths=[5]),
        pb.PageMap(owners=[OWNER], owner_of=[0], lengths=[5, 6]),
        pb.PageMap(owners=[OWNER], owner_of=[0], lengths=[(1 << 32) - 1]),
        pb.PageMap(owner_of=[0], lengths=[5]),
        pb.PageMap(unix_time=math.nan),
        pb.PageMap(owners=[pb.PageOwner(kind=99)]),  # type: ignore[arg-type]
        pb.PageMap(owners=[pb.PageOwner(tenant="\0")]),
    ],
    ids=str,
)
@pytest.mark.django_db
def test_a_map_of_pages_that_leads_nowhere(
    acme: Any, host: Any, said: pb.PageMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineCalls, "_unary", lambda *_: said)
    answer = acme.client().get(acme.path(f"hosts/{host.name}/pages"))
    assert answer.status_code == 503, answer.content
    assert answer.json()["error"]["fix"]


# -- the whole way ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [unpayable, uneven, endless, silent])
def test_others_answer_and_one_answer_is_paid(
    three_hosts: ThreeHosts, lie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_hosts.ready()
    odd = three_hosts.engines[0]

    def step() -> None:
        odd._admit()
        for request in [*odd.running.values()]:
            del odd.running[request.request_id]
            for said in lie(request.submit):
                request.outbox.put_nowait(pb.EngineMessage(step=said))

    with monkeypatch.context() as patch:
        patch.setattr(odd, "step", step)
        lied_to = len(odd.submits)
        answers = [three_hosts.post("ok", max_tokens=24) for _ in range(6)]
        assert len(odd.submits) > lied_to
    assert [answer.status_code for answer in answers] == [200] * 6
    for answer in answers:
        row = three_hosts.row(id_of(answer))
        assert (row["outcome"], row["prompt_tokens"], row["completion_tokens"]) == ("finished", 3, 24)
        assert answer.json()["usage"]["completion_tokens"] == 24
