"""The multiplexed gRPC session from this event loop to one engine host.

Every request of the process shares the stream: the engine sends one message per step, and this client hands each delta
to its request's own buffer. No code here creates a task, takes a lock or touches the database per token.
"""

import asyncio
import contextlib
import logging
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Self

import grpc
import grpc.aio

from control_plane.core.cancellation import end_if_cancelled
from control_plane.fleet.transport import errors
from control_plane.fleet.transport.coalescing import Chunk, Coalescing, RequestBuffer
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.errors import HostError, client_too_slow
from control_plane.fleet.transport.pace import Pace
from control_plane.fleet.transport.plausible import implausible, max_bytes, require_plausible
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc
from lora_engine.wire.versions import WIRE_VERSION

logger = logging.getLogger(__name__)

# Seconds before the first attempt to reconnect, and at most before a later one.
BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 0.5
# Seconds between attempts while the host answers what no engine answers.
BACKOFF_ODD_S = 3.0
_MAX_HANDLE = (1 << 32) - 1  # a uint32 on the wire
UsageSink = Callable[[str, pb.Finished], None]
LostSink = Callable[[Iterable[str]], None]


def ignore_usage(_host: str, _finished: pb.Finished) -> None:
    """The sink of a client whose usage others collect from the engine's journal."""


def ignore_lost(_request_ids: Iterable[str]) -> None:
    """The sink of a client that keeps nothing for each request."""


class RequestStream(RequestBuffer):
    """The output of one submitted request: lists of chunks until the end. Leaving it early aborts the request.

    ``usage`` is the engine's own count, set when the iteration ends.
    """

    __slots__ = ("_client", "_closed", "handle", "queued_s", "request_id", "usage")

    def __init__(self, client: "EngineClient", submit: pb.Submit, coalescing: Coalescing) -> None:
        super().__init__(coalescing, max_bytes(submit), client.pace)
        self.request_id, self.handle = submit.request_id, submit.handle
        self.usage: pb.UsageRecord | None = None
        self.queued_s = 0.0  # seconds that it waited for a slot of a host
        self._client = client
        self._closed = False

    @property
    def host(self) -> str:
        return self._client.host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Chunk]:
        chunks = await self.take()
        if not chunks:
            raise StopAsyncIteration
        return chunks

    def hand_out(self) -> bool:
        """Release the buffered output at once. Returns False if there is none and more may come."""
        self.make_due(asyncio.get_running_loop().time())
        return self.tokens > 0 or self.finished

    def abort(self) -> None:
        """Ask the engine to stop. The output until then and the usage still arrive."""
        if not (self._closed or self.finished):
            self._client.abort(self.request_id)

    def close(self) -> None:
        """Close the stream. Idempotent; needs no await, so it also works while its task is being cancelled."""
        if not self._closed:
            self._closed = True
            self._client._forget(self.request_id, abort=not self.finished)


class EngineClient:
    """The session to one host: connects on first use, reconnects with back-off, fails open requests when it breaks."""

    def __init__(
        self,
        endpoint: HostEndpoint,
        *,
        usage_sink: UsageSink = ignore_usage,
        lost_sink: LostSink = ignore_lost,
        coalescing: Coalescing | None = None,
        connect_timeout_s: float = 3.0,
    ) -> None:
        self.endpoint = endpoint
        self.boot_id = ""
        self.base_digest = ""  # reported by the last engine that connected; "" if none did or it reports none
        self.resumes = False  # whether the engine continues answers that another host began
        self._usage_sink = usage_sink
        self._lost_sink = lost_sink
        self._coalescing = coalescing or Coalescing()
        self.pace = Pace(self._coalescing.max_delay_s)
        self._connect_timeout_s = connect_timeout_s
        self._client_id = f"web-{uuid.uuid4().hex[:12]}"
        self._streams: dict[str, RequestStream] = {}
        self._by_handle: dict[int, RequestStream] = {}
        self._last_handle = 0
        self._foreground: dict[str, str] = {}  # tenants of the open requests that do not yield to others
        self.requests_of = Counter[str]()  # number of those by tenant; a tenant without one is not listed
        self.has_room: Callable[[], None] = lambda: None  # called when a request has ended
        # Includes requests whose reader has left: the engine still reports their end.
        self._unfinished: set[str] = set()
        self._lingering: list[RequestStream] = []
        self._outbox: asyncio.Queue[pb.ClientMessage] = asyncio.Queue()
        self._connected = asyncio.Event()
        self._last_error = ""
        self._task: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None
        self._trust: tuple[str, ...] = ()
        self._closing: asyncio.Task[None] | None = None  # of the channel before

    # -- for the gateway -------------------------------------------------------

    @property
    def host(self) -> str:
        return self.endpoint.name

    @property
    def open_requests(self) -> int:
        return len(self._streams)

    @property
    def foreground_requests(self) -> int:
        """Number of open requests that do not yield to others (not background)."""
        return len(self._foreground)

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def submit(self, submit: pb.Submit, coalescing: Coalescing | None = None) -> RequestStream:
        """Send a request to the host. Raises ``HostError`` (engine_unavailable) if there is no session in time."""
        await self._ensure_connected()
        submit.handle = self._next_handle()
        stream = RequestStream(self, submit, coalescing or self._coalescing)
        self._streams[submit.request_id] = self._by_handle[submit.handle] = stream
        if not submit.slo.background:
            self._foreground[submit.request_id] = submit.tenant
            self.requests_of[submit.tenant] += 1
        self._unfinished.add(submit.request_id)
        self._outbox.put_nowait(pb.ClientMessage(submit=submit))
        self.pace.start(lambda: bool(self._streams))
        return stream

    def abort(self, request_id: str) -> None:
        """Ask the engine to end a request early."""
        self._outbox.put_nowait(pb.ClientMessage(abort=pb.Abort(request_id=request_id)))

    def interrupt(self) -> None:
        """Wake all readers, so that each checks whether to wait any longer."""
        for stream in self._streams.values():
            stream.interrupt()

    async def close(self) -> None:
        """End the session; open requests fail."""
        await self._stop_task()
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    async def reset(self, reason: str) -> None:
        """Drop a session that seems dead and reconnect; open requests fail as if the connection had broken."""
        self._last_error = reason
        if self._task is not None:
            await self._stop_task()
            self.start()

    async def describe(self, timeout_s: float = 5.0) -> pb.EngineDescription:
        description: pb.EngineDescription = await self._unary("Describe", pb.DescribeRequest(), timeout_s)
        return description

    async def tokenize(self, submit: pb.Submit, timeout_s: float = 10.0) -> pb.TokenizeReply:
        """Return a prompt's tokens; the reply holds the error of an invalid prompt. Raises ``HostError``."""
        reply: pb.TokenizeReply = await self._unary("Tokenize", submit, timeout_s)
        return reply

    async def detokenize(self, token_ids: pb.TokenIds, timeout_s: float = 10.0) -> pb.DetokenizeReply:
        reply: pb.DetokenizeReply = await self._unary("Detokenize", token_ids, timeout_s)
        return reply

    async def acknowledge(self, request_ids: Iterable[str], timeout_s: float = 5.0) -> int:
        """Acknowledge usage that is safely stored. Returns the number of records that the host freed."""
        reply: pb.AckUsageReply = await self._unary("AckUsage", pb.AckUsageRequest(request_ids=request_ids), timeout_s)
        return reply.acknowledged

    async def watch(
        self, interval_s: float, load_every_s: float = 0.0, *, prefixes: bool = False
    ) -> AsyncIterator[pb.HostStatus]:
        """Yield the host's heartbeats, and its load in between, until the connection breaks (``AioRpcError``).

        A heartbeat lists only the adapters that changed, for an ``AdapterList``; with ``prefixes`` also the prefixes,
        for ``KnownPrefixes``.
        """
        request = pb.WatchRequest(
            interval_ms=int(interval_s * 1000),
            load_every_ms=int(load_every_s * 1000),
            adapter_changes=True,
            prefixes=prefixes,
        )
        call = self._stub().Watch(request, metadata=self.endpoint.metadata, wait_for_ready=False)
        async for status in call:
            yield status

    # -- connection ------------------------------------------------------------

    async def _ensure_connected(self) -> None:
        if self._connected.is_set():
            return
        self.start()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise errors.unavailable(self.host, self._last_error) from None

    def start(self) -> None:
        """Begin to connect in the background. Idempotent."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"engine-session-{self.host}")

    async def _stop_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _stub(self) -> Any:
        # A channel keeps its credentials. Before a new connection it gets those of the authorities of today.
        trust = self.endpoint.trust
        if self._channel is not None and trust != self._trust and not self._connected.is_set():
            self._closing = asyncio.create_task(self._channel.close(None))
            self._channel = None
        if self._channel is None:
            self._channel, self._trust = self.endpoint.open_async_channel(), trust
        return engine_pb2_grpc.EngineStub(self._channel)  # type: ignore[no-untyped-call]

    async def _unary(self, method: str, request: object, timeout_s: float) -> Any:
        try:
            call = getattr(self._stub(), method)
            return await call(request, timeout=timeout_s, metadata=self.endpoint.metadata)
        except grpc.aio.AioRpcError as error:
            raise errors.unavailable(self.host, error.details() or str(error.code())) from error

    async def _run(self) -> None:
        delay, logged = BACKOFF_FIRST_S, ""
        while True:
            is_odd = False
            try:
                await self._session()
            except grpc.aio.AioRpcError as error:
                self._last_error = error.details() or str(error.code())
            except asyncio.InvalidStateError:
                self._last_error = "the call ended before the greeting"
            except HostError as error:
                self._last_error, is_odd = str(error), True
            except ValueError as error:  # a message that cannot be parsed
                self._last_error, is_odd = repr(error), True
            except asyncio.CancelledError:
                # gRPC reports a call that the server cancelled the same way as a task that was cancelled.
                self._last_error = "the engine cancelled the session"
            finally:
                was_connected = self._connected.is_set()
                self._disconnect()
            end_if_cancelled()
            further = BACKOFF_FIRST_S if was_connected else min(delay * 2, BACKOFF_LAST_S)
            delay = BACKOFF_ODD_S if is_odd else further
            # A host that stays away is named once, not with each of two attempts a second.
            level = logging.DEBUG if self._last_error == logged and not was_connected else logging.WARNING
            logger.log(
                level, "The session to engine host %s ended (%s); reconnecting in %.1f s", self.host, self._last_error,
                delay,
            )  # fmt: skip
            logged = self._last_error
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))

    async def _session(self) -> None:
        call = self._stub().Session(metadata=self.endpoint.metadata)
        writer: asyncio.Task[None] | None = None
        try:
            await call.write(pb.ClientMessage(hello=pb.Hello(client_id=self._client_id, wire_version=WIRE_VERSION)))
            async for message in call:
                if message.HasField("step"):
                    self._deliver(message.step)
                else:
                    welcome = message.welcome
                    self.boot_id, self.base_digest = welcome.boot_id, welcome.base_digest
                    self.resumes = welcome.resumes
                    writer = writer or asyncio.create_task(self._write(call), name=f"engine-writer-{self.host}")
                    self._connected.set()
            self._last_error = "the engine closed the session"
        finally:
            if writer is not None:
                writer.cancel()
            call.cancel()

    async def _write(self, call: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader reports the break
            while True:
                await call.write(await self._outbox.get())

    def _disconnect(self) -> None:
        self._connected.clear()
        self._outbox = asyncio.Queue()
        for stream in [*self._streams.values()]:
            stream.finish(errors.disconnected(self.host))
        self._streams.clear()
        self._by_handle.clear()
        self._foreground.clear()
        self.requests_of.clear()
        self.has_room()
        lost, self._unfinished = self._unfinished, set()
        self._lost_sink(lost)

    # -- per step --------------------------------------------------------------

    def _deliver(self, step: pb.StepDeltas) -> None:
        now, streams = asyncio.get_running_loop().time(), self._streams
        for handle, text, token_id in zip(step.plain.handles, step.plain.texts, step.plain.token_ids, strict=True):
            if (stream_of_handle := self._by_handle.get(handle)) is not None:
                self._pushed(stream_of_handle, now, begins=stream_of_handle.push_plain(text, token_id, now))
        for delta in step.deltas:
            stream = streams.get(delta.request_id)
            if stream is not None:  # None: closed by its reader, and the abort is on its way
                self._pushed(stream, now, begins=stream.push(delta, now))
        for finished in step.finished:
            self._finish(finished)

    def _pushed(self, stream: RequestStream, now: float, *, begins: bool) -> None:
        if stream.overflows:
            stream.give_up(implausible(self.host, "an answer is longer than the request allows"))
            self._forget(stream.request_id, abort=True)
        elif begins:
            self._linger(stream)
        elif stream.stalled(now):
            stream.give_up(client_too_slow(stream.tokens))
            self._forget(stream.request_id, abort=True)

    def _linger(self, stream: RequestStream) -> None:
        # One timer serves all buffers of the host: those that begin to wait later leave a little early.
        if not self._lingering:
            asyncio.get_running_loop().call_later(self.pace.delay_s, self._flush)
        self._lingering.append(stream)

    def _flush(self) -> None:
        lingering, self._lingering = self._lingering, []
        now = asyncio.get_running_loop().time()
        for stream in lingering:
            stream.make_due(now)

    def _finish(self, finished: pb.Finished) -> None:
        """End a request. Raises ``HostError`` for implausible usage: the session breaks, and its requests fail over."""
        require_plausible(self.host, finished.usage)
        self._unfinished.discard(finished.request_id)
        if finished.HasField("usage"):
            self._usage_sink(self.host, finished)
        else:
            self._lost_sink([finished.request_id])
        stream = self._remove(finished.request_id)
        if stream is not None:
            stream.usage = finished.usage
            error = HostError.from_wire(finished.error) if finished.HasField("error") else None
            stream.finish(error)

    def _forget(self, request_id: str, *, abort: bool) -> None:
        known = self._remove(request_id)
        if abort and known is not None:
            self.abort(request_id)

    def _remove(self, request_id: str) -> RequestStream | None:
        stream = self._streams.pop(request_id, None)
        if (tenant := self._foreground.pop(request_id, None)) is not None:
            self.requests_of[tenant] -= 1
            if not self.requests_of[tenant]:
                del self.requests_of[tenant]
        if stream is not None:
            self._by_handle.pop(stream.handle, None)
            self.has_room()
        return stream

    def _next_handle(self) -> int:
        """Return a handle that no open request has: late output of a closed request must not reach another one."""
        self._last_handle = self._last_handle % _MAX_HANDLE + 1
        return self._last_handle if self._last_handle not in self._by_handle else self._next_handle()
