"""Requests that are cut at random, within milliseconds of their beginning: nothing of them is left two seconds later.

The real gateway in the test's process, so that a cut comes between any two turns of the event loop: its ASGI handler
and its socket, quotas and keys in real Redis (or memory), a scripted engine over gRPC, few places at the host.
LORIKEET_CUTS makes so many cuts instead of 300, LORIKEET_CUTS_SEED others.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.platform_fixtures import Org
from lorikeet_testing.web import PATIENCE

from control_plane.billing.limits.actions import set_key_limits, set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.redis_limiter import RedisLimiter
from control_plane.core.db import run_db
from control_plane.fleet.hosts import actions as fleet
from control_plane.fleet.transport.endpoint import configured_endpoints
from control_plane.gateway.dispatch import runtime as gateway
from control_plane.gateway.dispatch.idempotency_store import MemoryStore
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.openai.asgi import GatewayHandler
from control_plane.gateway.websocket import resume_relay
from control_plane.gateway.websocket.inference_socket import InferenceConsumer
from control_plane.identity import single_flight
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")
CUTS = int(os.environ.get("LORIKEET_CUTS", "300"))
SEED = int(os.environ.get("LORIKEET_CUTS_SEED", "1"))
LEFT_S = 2.0
AT_ONCE = 16
LONGEST_S = 0.015
MAX_TURNS = 80
CONCURRENCY = (4, 8, None)

Left = dict[str, Any]


class Gateway:
    """The gateway's ASGI applications, and clients of them that go away."""

    def __init__(self, keys: list[str], seed: int) -> None:
        self.keys, self.random = keys, random.Random(seed)
        self.ends: collections.Counter[str] = collections.Counter()
        self._rest = GatewayHandler()
        self._socket = InferenceConsumer.as_asgi()

    async def post(self, path: str, key: str, body: dict[str, Any], name: str = "", cut: bool = False) -> int:
        """The status, 0 if the client went before it came."""
        content = json.dumps(body).encode()
        headers = {"host": "testserver", "authorization": f"Bearer {key}", "idempotency-key": name}
        sent: asyncio.Queue[Any] = asyncio.Queue()
        sent.put_nowait({"type": "http.request", "body": content, "more_body": False})
        status = 0

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await asyncio.sleep(0)

        answer = asyncio.ensure_future(self._rest(_http_scope(path, headers), sent.get, send))
        if cut:
            await self._moment()
            sent.put_nowait({"type": "http.disconnect"})
        await answer
        return status

    async def generate(self, key: str, body: dict[str, Any], end: str) -> None:
        """One generation on a socket that is cut, perhaps after the client's own cancel."""
        events: asyncio.Queue[Any] = asyncio.Queue()
        greeted = asyncio.Event()

        async def send(message: Any) -> None:
            if '"hello"' in message.get("text", ""):
                greeted.set()
            await asyncio.sleep(0)

        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = {"type": "websocket", "path": "/ws/inference", "headers": headers}
        events.put_nowait({"type": "websocket.connect"})
        socket = asyncio.ensure_future(self._socket(scope, events.get, send))
        await greeted.wait()
        for frame in ({"type": "generate", "id": "g", "request": body}, {"type": "cancel", "id": "g"}):
            if frame["type"] == end or frame["type"] == "generate":
                events.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})
                await self._moment()
        events.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await socket

    async def _moment(self) -> None:
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, LONGEST_S))
            return
        for _ in range(self.random.randrange(MAX_TURNS)):
            await asyncio.sleep(0)

    async def cut_one(self) -> None:
        draw, key = self.random, self.random.choice(self.keys)
        words = draw.choice(["say hi", "words 40", "words 3000"])
        kind = draw.choice(["chat", "chat", "prompts", "socket"])
        body: dict[str, Any] = {"model": "fake-base", "max_tokens": 3500, "stream": draw.random() < 0.5}
        if kind == "prompts":
            body["prompt"] = [words] * draw.randint(1, 3)
        else:
            body |= {"messages": [{"role": "user", "content": words}], "n": draw.randint(1, 2)}
        if kind == "socket":
            del body["stream"]
            await self.generate(key, body, draw.choice(["cut", "cancel"]))
            return
        path = "/v1/completions" if kind == "prompts" else "/v1/chat/completions"
        name = draw.choice(["", f"few-{draw.randrange(4)}", uuid.uuid4().hex])
        self.ends[str(await self.post(path, key, body, name, cut=True))] += 1


def _http_scope(path: str, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
    }


def left_in_redis(client: redis.Redis, runtime: Runtime) -> Left:
    """Leases, what they hold, and keys that are claimed without an answer."""
    left: Left = {}
    for key in client.scan_iter("lorikeet:quota:*"):
        name = key.decode()
        if name.endswith(":leases"):
            left[name] = client.zcard(key)
        elif name.endswith(":open"):
            left[name] = client.hlen(key)
        elif name.endswith(":held"):
            left[name] = sum(int(value) for value in cast(dict[bytes, bytes], client.hgetall(key)).values())
    for key in client.scan_iter("lorikeet:idempotency:*:key:*"):
        left[key.decode()] = int(not client.hexists(key, "body"))
    for reservations in (runtime.reservations, runtime.budgets):
        limiter = reservations._limiter
        assert isinstance(limiter, RedisLimiter)
        pool = limiter._redis.connection_pool
        left[f"connections of {id(limiter)}"] = len(cast(Any, pool)._in_use_connections)
    return left


def left_in_memory(runtime: Runtime) -> Left:
    limiter, store = runtime.reservations._limiter, runtime.idempotency._answers
    assert isinstance(limiter, MemoryLimiter) and isinstance(store, MemoryStore)
    left: Left = {"keys": sum(answer.body is None for _, answer in store._entries.values())}
    for name, tenant in limiter._tenants.items():
        left[name] = len(tenant.leases) + tenant.open.total() + tenant.reserved.total()
    return left


def left_in_process(runtime: Runtime, engine: FakeEngine, tasks: set[asyncio.Task[Any]]) -> Left:
    client = runtime.fleet.client("local")
    slots = runtime.fleet._slots
    reservations = [runtime.reservations, runtime.budgets]
    return {
        "tasks": sorted(str(task) for task in asyncio.all_tasks() - tasks - engine.readers if not _is_of_grpc(task)),
        # A busy machine may break the one session with the host, and it begins anew.
        "sessions with the engine": max(0, len(engine.readers) - 1),
        "attempts": len(runtime._attempts),
        "reservations": sum(len(r._open) + len(r._by_request) + len(r._settling) for r in reservations),
        "writes": len(runtime.idempotency._writing),
        "sockets' sessions": len(resume_relay.resume_relay().sessions._known),
        "streams": len(client._streams) + len(client._unfinished) + len(client._by_handle),
        "slots": len(slots._futures) + slots._granted.total(),
        "requests in the engine": len(engine.running) + len(engine.waiting),
    }


def _is_of_grpc(task: asyncio.Task[Any]) -> bool:
    """gRPC makes a task for each of its calls and messages, at both ends."""
    return "cython" in type(task.get_coro()).__name__ or "cython" in repr(task.get_coro())


async def nothing(left: Callable[[], Left]) -> Left:
    """What is left after ``LEFT_S`` of a machine that has nothing else to do; empty as soon as there is nothing."""
    end = time.monotonic() + LEFT_S * PATIENCE
    while rest := {name: value for name, value in left().items() if value}:
        if time.monotonic() > end:
            return rest
        await asyncio.sleep(0.02)
    return {}


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
def counters(
    request: pytest.FixtureRequest, lorikeet: Any, settings: Any, tmp_path: Path
) -> Iterator[redis.Redis | None]:
    """A database of its own in Redis, or None."""
    url = ""
    if request.param == "redis":
        with redis.Redis.from_url(REDIS_URL) as counter:
            url = f"{REDIS_URL.rpartition('/')[0]}/{counter.incr('test-installations')}"
    settings.LORIKEET = lorikeet.model_copy(
        update={"redis_url": url, "host_requests": 6, "engine_hosts": {"local": f"unix:{tmp_path}/engine.sock"}}
    )
    if not url:
        yield None
        return
    with redis.Redis.from_url(url) as client:
        yield client


@asynccontextmanager
async def serving(acme: Org, tmp_path: Path) -> AsyncIterator[tuple[Runtime, FakeEngine, list[str]]]:
    """A host that is ready, and a key for each of ``CONCURRENCY``."""
    engine = FakeEngine(f"unix:{tmp_path}/engine.sock", Behaviour(steps_per_second=400, max_running=5))
    await engine.start()
    runtime = gateway.runtime()
    await resume_relay.start()
    try:
        keys = await run_db(_prepare, acme, await engine.Describe(pb.DescribeRequest(), None))
        single_flight.forget()
        await runtime.follow_fleet()
        while not runtime.fleet.accepts("local", ""):
            await asyncio.sleep(0.01)
        yield runtime, engine, keys
    finally:
        await resume_relay.stop()
        await gateway.stop()
        await engine.stop()


def _prepare(acme: Org, description: pb.EngineDescription) -> list[str]:
    fleet.sync_hosts(configured_endpoints())
    fleet.record_boot("local", description)
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(tokens_per_minute=10**12, concurrency=40))
    keys = []
    for number, concurrency in enumerate(CONCURRENCY):
        key, secret = acme.key(f"key {number}")
        if concurrency:
            acting = acme.principal(Role.OWNER)
            set_key_limits(acting=acting, key=key, limits=Limits(tokens_per_day=10**12, concurrency=concurrency))
        keys.append(secret)
    return keys


async def cut_many(cuts: int, acme: Org, tmp_path: Path, counters: redis.Redis | None) -> collections.Counter[str]:
    async with serving(acme, tmp_path) as (runtime, engine, keys):
        clients = Gateway(keys, SEED)
        for key in keys:
            assert await clients.post("/v1/completions", key, {"model": "fake-base", "prompt": "say hi"}) == 200
        await asyncio.sleep(0.1)
        tasks = asyncio.all_tasks()
        places = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                await clients.cut_one()

        for begun in range(0, cuts, 500):
            await asyncio.gather(*(one() for _ in range(min(500, cuts - begun))))

        def left() -> Left:
            stored = left_in_memory(runtime) if counters is None else left_in_redis(counters, runtime)
            return {**left_in_process(runtime, engine, tasks), **stored}

        assert not await nothing(left), f"left after {cuts} cuts"
        body = {"model": "fake-base", "prompt": "say hi", "n": CONCURRENCY[0]}
        for key in keys:
            for name in ("", "few-0", uuid.uuid4().hex):
                status = await clients.post("/v1/completions", key, {**body, "user": name}, name)
                assert status in ((200, 422) if name == "few-0" else (200,)), "the next request does not pass at once"
                assert not await nothing(left), "left after an answer"
        return clients.ends


@pytest.mark.also_embedded
@pytest.mark.parametrize("cuts", [CUTS, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.django_db(transaction=True)
async def test_requests_that_are_cut_leave_nothing(
    cuts: int, acme: Org, tmp_path: Path, counters: redis.Redis | None
) -> None:
    ends = await cut_many(cuts, acme, tmp_path, counters)
    assert ends["0"] > cuts // 20, "too few were cut before their answer began"
    print(f"{cuts} cuts, seed {SEED}: statuses {dict(ends)}, the rest sockets")
