"""A gRPC client of an engine host, for tests: many requests on one session, each collected to its end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc
from lora_engine.wire.versions import WIRE_VERSION

_numbers = itertools.count(1)


@dataclass
class Collected:
    """Everything that came for one request."""

    deltas: list[pb.Delta] = field(default_factory=list)
    finished: pb.Finished | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    first_delta: asyncio.Event = field(default_factory=asyncio.Event)

    def text(self, choice: int = 0) -> str:
        return "".join(delta.text for delta in self.deltas if delta.choice == choice)

    @property
    def tokens(self) -> int:
        return sum(delta.num_tokens for delta in self.deltas)

    @property
    def usage(self) -> pb.UsageRecord:
        assert self.finished is not None
        return self.finished.usage

    @property
    def error(self) -> pb.EngineError:
        assert self.finished is not None
        return self.finished.error


class EngineSession:
    """A session with an engine host. ``steps`` keeps every message as it arrived."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self.boot_id = self.base_digest = ""
        self.steps: list[pb.StepDeltas] = []
        self.requests: dict[str, Collected] = {}
        self._call = stub.Session(metadata=metadata)
        self._reader = asyncio.create_task(self._read())
        self._writing = asyncio.Lock()  # gRPC allows one write at a time

    async def hello(self) -> None:
        await self._write(pb.ClientMessage(hello=pb.Hello(client_id="test", wire_version=WIRE_VERSION)))
        while not self.boot_id:
            await asyncio.sleep(0.001)

    async def submit(self, submit: pb.Submit) -> Collected:
        collected = self.requests.setdefault(submit.request_id, Collected())
        await self._write(pb.ClientMessage(submit=submit))
        return collected

    async def abort(self, request_id: str) -> None:
        await self._write(pb.ClientMessage(abort=pb.Abort(request_id=request_id)))

    async def run(self, submit: pb.Submit, seconds: float = 30) -> Collected:
        """Submit and wait for ``Finished``."""
        collected = await self.submit(submit)
        await asyncio.wait_for(collected.done.wait(), seconds)
        return collected

    async def half_close(self) -> None:
        await self._call.done_writing()

    async def ended(self) -> None:
        """Wait until the server ends the stream."""
        await self._reader

    async def cancel(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _write(self, message: pb.ClientMessage) -> None:
        async with self._writing:
            await self._call.write(message)

    async def _read(self) -> None:
        while (message := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            if message.WhichOneof("kind") == "welcome":
                self.boot_id, self.base_digest = message.welcome.boot_id, message.welcome.base_digest
                continue
            self.steps.append(message.step)
            for delta in message.step.deltas:
                collected = self.requests[delta.request_id]
                assert collected.finished is None, "a delta came after Finished"
                collected.deltas.append(delta)
                collected.first_delta.set()
            for finished in message.step.finished:
                collected = self.requests[finished.request_id]
                assert collected.finished is None, "Finished came twice"
                collected.finished = finished
                collected.done.set()


class EngineClient:
    """Unary calls and sessions."""

    def __init__(self, address: str, token: str = "") -> None:
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = engine_pb2_grpc.EngineStub(self._channel)  # type: ignore[no-untyped-call]
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def close(self) -> None:
        await self._channel.close(None)

    async def wait_ready(self, seconds: float = 60) -> pb.EngineDescription:
        description: pb.EngineDescription = await self.stub.Describe(
            pb.DescribeRequest(), wait_for_ready=True, timeout=seconds, metadata=self.metadata
        )
        return description

    @asynccontextmanager
    async def session(self) -> AsyncIterator[EngineSession]:
        session = EngineSession(self.stub, self.metadata)
        await session.hello()
        try:
            yield session
        finally:
            await session.cancel()

    async def stage(self, **fields: Any) -> list[pb.StageEvent]:
        return [event async for event in self.stub.StageAdapter(pb.StageAdapterRequest(**fields))]

    async def status(self) -> pb.HostStatus:
        watch = self.stub.Watch(pb.WatchRequest(interval_ms=60_000))
        status: pb.HostStatus = await watch.read()
        watch.cancel()
        return status

    async def pull(self, after_seq: int = 0, limit: int = 0) -> list[pb.UsageRecord]:
        reply = await self.stub.PullUsage(pb.PullUsageRequest(after_seq=after_seq, limit=limit))
        return list(reply.records)


def text_request(text: str, *, max_tokens: int = 8, digest: str = "", **sampling: Any) -> pb.Submit:
    """A completion request with an id of its own."""
    return pb.Submit(
        request_id=f"req-{next(_numbers)}",
        tenant="tenant",
        adapter_digest=digest,
        text=text,
        sampling=pb.Sampling(max_tokens=max_tokens, **sampling),
    )


@asynccontextmanager
async def connected(address: str, token: str = "") -> AsyncIterator[EngineClient]:
    client = EngineClient(address, token)
    try:
        yield client
    finally:
        await client.close()
