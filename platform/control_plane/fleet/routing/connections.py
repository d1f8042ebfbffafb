"""The sessions of one event loop to the engine hosts, each with the host's latest heartbeat."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TypeVar

import grpc.aio

from control_plane.core import config
from control_plane.core.cancellation import end_if_cancelled
from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.host_slots import HostSlots
from control_plane.fleet.routing.migration import HostNow
from control_plane.fleet.routing.router import HostLoad, LeastPending, RoutingPolicy, compared, no_host
from control_plane.fleet.transport.coalescing import Coalescing
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import (
    EngineClient,
    LostSink,
    RequestStream,
    UsageSink,
    ignore_lost,
    ignore_usage,
)
from control_plane.fleet.transport.errors import HostError, unavailable
from lora_engine.peft_format import digests_of
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterListError
from lora_engine.wire.prompt_prefixes import PrefixMark, prefix_marks

logger = logging.getLogger(__name__)
T = TypeVar("T")
# Seconds between heartbeats of a host, and between its reports of its load, which other web processes change too.
HEARTBEAT_S, LOAD_EVERY_S = 1.0, 0.25
# Heartbeats missed before the session counts as dead.
SILENT_HEARTBEATS = 5
# Seconds without any report after which a host counts as silent: its requests continue on another host that accepts
# them.
SILENT_S = 2.0
# Seconds by which a timer of this process may be late. If it is later, the process itself was stopped for a while.
LATE_S = 0.5
# Seconds before a broken stream of heartbeats is opened again.
RETRY_S = 1.0
# Tokens per second; a reported rate above it is ignored.
_MAX_SPEED = 1e9
# Part of an equal share of a host's requests that a tenant has without waiting, like the engine's `--guaranteed-share`
# of places. Such requests exceed a host's bound by this part of it at most, however many tenants there are.
GUARANTEED_SHARE = 0.5


class HostConnection:
    """The session to one host, and the heartbeats that report its load."""

    def __init__(self, client: EngineClient, observed: Callable[[], None] = lambda: None) -> None:
        """Wrap a session. ``observed`` is called after each heartbeat."""
        self.client = client
        self._observed = observed
        self.status: pb.HostStatus | None = None
        self._first_token = FirstTokenPrediction()
        self._sent_since_status = 0
        self.silent = False  # no report for `SILENT_S`
        self._silence: asyncio.TimerHandle | None = None
        self._progress_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.client.start()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow(), name=f"engine-heartbeat-{self.client.host}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._expect_report(None)
        await self.client.close()

    @property
    def accepts(self) -> bool:
        """True if the host should get new requests. A host that is silent or hangs is tried last."""
        if not self.client.connected or self.silent or self.hangs:
            return False
        return self.status is None or not self.status.draining

    @property
    def hangs(self) -> bool:
        """True if the host has work and has made no step for LORIKEET_ENGINE_HANG_S."""
        busy = self.status is not None and (self.status.running or self.status.waiting or self._sent_since_status)
        return bool(busy) and time.monotonic() - self._progress_at > config.current().engine_hang_s

    def serves(self, base_digest: str) -> bool:
        """Return False if the engine has reported another base model."""
        return self.client.base_digest in ("", base_digest) or not base_digest

    def load(self, submit: pb.Submit, marks: Sequence[PrefixMark]) -> HostLoad:
        status, digest = self.status, submit.adapter_digest
        if status is None:
            return HostLoad(self.client.host, self.client.open_requests, resident=not digest)
        # Open requests of this process count too: the status of a host that hangs is old.
        pending = max(status.waiting + status.running + self._sent_since_status, self.client.open_requests)
        resident = not digest or self._first_token.adapters.by_digest.keys() >= set(digests_of(digest))
        return HostLoad(
            self.client.host,
            pending,
            _speed(status),
            resident,
            self._first_token.seconds(submit, marks),
            self._first_token.cached_share(marks),
        )

    @property
    def now(self) -> HostNow | None:
        """The state by which migration compares hosts; None before the first heartbeat."""
        status = self.status
        if status is None:
            return None
        return HostNow(
            self.client.host,
            waiting=status.waiting + self._sent_since_status,
            running=status.running,
            tokens_per_second=_speed(status),
            prompt_token_s=self._first_token.prompt_token_s,
            pages_used=status.pool.kv,
            pages=max(0, status.pool.total - status.pool.reserved),
        )

    def sent(self, submit: pb.Submit, marks: Sequence[PrefixMark]) -> None:
        """Count a request that was sent to the host since its last heartbeat."""
        self._sent_since_status += 1
        self._first_token.sent(submit, marks)

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_heartbeats()
            except (grpc.aio.AioRpcError, TimeoutError):
                pass
            except AdapterListError as error:
                logger.warning("The list of adapters of host %s is read from its start: %s", self.client.host, error)
            except Exception:  # a faulty heartbeat must not end the reading of later ones
                logger.exception("A heartbeat of host %s cannot be read.", self.client.host)
            end_if_cancelled()
            self._expect_report(None)
            self.status = None
            self._first_token.forget()
            await asyncio.sleep(RETRY_S)

    async def _read_heartbeats(self) -> None:
        heartbeats = aiter(self.client.watch(HEARTBEAT_S, LOAD_EVERY_S, prefixes=True))
        self._expect_report(SILENT_S)  # requests may be there before its first heartbeat
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S * SILENT_HEARTBEATS):
                    status = await anext(heartbeats)
            except StopAsyncIteration:
                return
            except TimeoutError:
                # A machine that lost power closes no connection: without this its requests would wait for ever.
                await self.client.reset(f"no heartbeat for {HEARTBEAT_S * SILENT_HEARTBEATS:.0f} s")
                raise
            self._observe(status)

    def _observe(self, status: pb.HostStatus) -> None:
        """Take over a heartbeat. Raises AdapterListError."""
        self._first_token.observed(status)
        self._expect_report(SILENT_S)
        now = time.monotonic()
        before, self.status = self.status, status
        if status.load_only:
            self.status = _with_load(before, status)
        idle = not (status.running or status.waiting or self._sent_since_status)
        if before is None or before.boot_id != status.boot_id or before.steps != status.steps or idle:
            self._progress_at = now
        self._sent_since_status = 0
        self._observed()

    def _expect_report(self, seconds: float | None) -> None:
        """Count the host as silent if it reports nothing for this long; with None no report is expected."""
        if self._silence is not None:
            self._silence.cancel()
        self.silent, self._silence = False, None
        if seconds is not None:
            self._silence = asyncio.get_running_loop().call_later(seconds, self._was_silent)

    def _was_silent(self) -> None:
        assert self._silence is not None
        if asyncio.get_running_loop().time() - self._silence.when() > LATE_S:
            self._expect_report(LATE_S)  # reports that arrived meanwhile are still to be read
            return
        self.silent, self._silence = True, None
        self.client.interrupt()


def _speed(status: pb.HostStatus) -> float:
    """Return the reported tokens per second; 0 for an impossible value."""
    return status.tokens_per_second if 0.0 <= status.tokens_per_second < _MAX_SPEED else 0.0


def _with_load(status: pb.HostStatus | None, load: pb.HostStatus) -> pb.HostStatus | None:
    """Return the last heartbeat with its load updated in place: a copy would copy its list of all adapters."""
    if status is None or status.boot_id != load.boot_id:
        return status
    for name in ("steps", "running", "waiting", "draining", "tokens_per_second"):
        setattr(status, name, getattr(load, name))
    return status


def _excess(client: EngineClient) -> int:
    """Return how many more requests a host may have of tenants below their guaranteed share."""
    return round(config.current().host_requests * (1 + GUARANTEED_SHARE)) - client.foreground_requests


class Fleet:
    """The engine hosts that one event loop is connected to."""

    def __init__(
        self,
        endpoints: Mapping[str, HostEndpoint],
        *,
        policy: RoutingPolicy | None = None,
        usage_sink: UsageSink = ignore_usage,
        lost_sink: LostSink = ignore_lost,
    ) -> None:
        self._policy = policy or LeastPending()
        self._usage_sink, self._lost_sink = usage_sink, lost_sink
        self._slots = HostSlots(self._room, self._may_exceed)
        self._hosts = {name: self._connection(endpoint) for name, endpoint in endpoints.items()}

    def _connection(self, endpoint: HostEndpoint) -> HostConnection:
        client = EngineClient(endpoint, usage_sink=self._usage_sink, lost_sink=self._lost_sink)
        client.has_room = self._slots.grant
        return HostConnection(client, self._slots.grant)

    def start(self) -> None:
        """Connect to every host in the background."""
        for host in self._hosts.values():
            host.start()

    async def follow(self, endpoints: Mapping[str, HostEndpoint]) -> None:
        """Replace the list of hosts. Requests on a host that was removed or joined again fail as if it had broken."""
        known = {name: host.client.endpoint for name, host in self._hosts.items()}
        gone = [self._hosts.pop(name) for name, endpoint in known.items() if endpoints.get(name) != endpoint]
        for name, endpoint in endpoints.items():
            if name not in self._hosts:
                self._hosts[name] = self._connection(endpoint)
                self._hosts[name].start()
        self._slots.grant()
        await asyncio.gather(*(host.close() for host in gone))

    async def close(self) -> None:
        self._slots.close()
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def client(self, host: str) -> EngineClient:
        """Return the session to a host. Raises ``HostError`` if it is a host no longer."""
        if host not in self._hosts:
            raise unavailable(host, "it is no longer a host of this installation")
        return self._hosts[host].client

    def status(self, host: str) -> pb.HostStatus | None:
        return self._hosts[host].status if host in self._hosts else None

    def now(self) -> list[HostNow]:
        """Return the state of the hosts that accept requests."""
        return [now for host in self._hosts.values() if host.accepts and (now := host.now) is not None]

    def accepts(self, host: str, base_digest: str) -> bool:
        """Return whether the host accepts a request for this base model now."""
        known = self._hosts.get(host)
        return known is not None and known.accepts and known.serves(base_digest)

    def has_room(self, host: str) -> bool:
        """Return whether this process may send the host another request."""
        return self._room(frozenset([host])) != 0

    def hangs(self, host: str) -> bool:
        return host in self._hosts and self._hosts[host].hangs

    def is_silent(self, host: str) -> bool:
        """Return whether the host has reported nothing for `SILENT_S`. Its readers are woken when that begins."""
        return host in self._hosts and self._hosts[host].silent

    def resumes(self, host: str) -> bool:
        """Return whether the host continues answers that another host began; False before the first connection."""
        return host in self._hosts and self._hosts[host].client.resumes

    async def first_reply(
        self, hosts: Iterable[str], base_digest: str, model: str, call: Callable[[EngineClient], Awaitable[T]]
    ) -> T:
        """Return the reply of the first of ``hosts`` for which ``call`` succeeds. Raises ``HostError``."""
        known = [name for name in hosts if name in self._hosts and self._hosts[name].serves(base_digest)]
        failure = no_host(model)
        for name in sorted(known, key=lambda name: not self._hosts[name].accepts):
            if name not in self._hosts:  # removed during an earlier call
                continue
            try:
                return await call(self._hosts[name].client)
            except HostError as error:
                failure = error
        raise failure

    def charge(self, submit: pb.Submit, output_tokens: int) -> None:
        """Count output tokens of a request for its tenant's place in the order of waiting requests."""
        self._slots.charge(submit, output_tokens)

    def _room(self, hosts: frozenset[str]) -> int | None:
        """Return how many more requests these hosts have room for; None if no request should wait for them."""
        most = config.current().host_requests
        open_now = [self._hosts[name] for name in hosts if name in self._hosts and self._hosts[name].accepts]
        if not most or not open_now:
            return None
        return sum(max(0, most - host.client.foreground_requests) for host in open_now)

    def _may_exceed(self, hosts: frozenset[str], tenant: str, sending: Counter[str]) -> bool:
        """Return whether a tenant may have one more request at these hosts although they are full.

        It may while it has none there, or less than `GUARANTEED_SHARE` of an equal share among the tenants that have
        some. Weights are left to the order and to the engine. ``sending`` counts, by tenant, requests on their way.
        """
        clients = [self._hosts[name].client for name in hosts if name in self._hosts and self._hosts[name].accepts]
        if sum(max(0, _excess(client)) for client in clients) <= sending.total():
            return False
        already = sum(client.requests_of[tenant] for client in clients)
        tenants = max(len(client.requests_of) for client in clients) + (not already)
        share = config.current().host_requests * len(clients) / tenants
        return already + sending[tenant] < max(1, int(GUARANTEED_SHARE * share))

    async def submit(
        self,
        submit: pb.Submit,
        hosts: Iterable[str],
        model: str,
        coalescing: Coalescing | None = None,
        *,
        waits: bool = True,
        after_wait: Callable[[], Awaitable[object]] | None = None,
    ) -> RequestStream:
        """Send a request to the best of ``hosts``, or to the next best if that one cannot be reached.

        With ``waits`` it waits for a slot in fair order of the tenants while all these hosts are full. ``after_wait``
        is called if it had to wait, before it is sent.

        Raises ``HostError``: ``no_ready_host``, ``engine_unavailable`` of the last one tried, or what ``after_wait``
        raises.
        """
        known = [name for name in hosts if name in self._hosts and self._hosts[name].serves(submit.base_digest)]
        failure = no_host(model)
        if not known:
            raise failure
        marks = prefix_marks(submit) if len(known) > 1 else ()
        async with self._slots.slot(submit, frozenset(known)) if waits else nullcontext(0.0) as queued_s:
            if queued_s and after_wait is not None:
                await after_wait()
            for host in self._choices(submit, known, marks):
                try:
                    stream = await host.client.submit(submit, coalescing)
                except HostError as error:
                    failure = error
                    continue
                host.sent(submit, marks)
                stream.queued_s = queued_s
                return stream
        raise failure

    def _choices(self, submit: pb.Submit, known: list[str], marks: Sequence[PrefixMark]) -> Iterator[HostConnection]:
        """Yield the hosts in the order in which they are tried, each chosen when the one before it has failed."""
        for pool in self._pools(known):
            while pool := [name for name in pool if name in self._hosts]:  # some may have been removed meanwhile
                host = self._policy.choose([self._hosts[name].load(submit, marks) for name in pool]).name
                pool.remove(host)
                yield self._hosts[host]

    def _pools(self, known: list[str]) -> Iterator[list[str]]:
        """Yield groups of hosts, the preferred one first: full hosts after those with room, for when the others fail.

        Hosts without a connection come last: their session may just be starting.
        """
        drawn, others = compared(known)
        first = self._by_readiness(drawn)
        yield first[0]
        for ready, rest in zip([*first[1:], []], self._by_readiness(others), strict=True):
            yield rest
            yield ready

    def _by_readiness(self, known: list[str]) -> list[list[str]]:
        """Return the hosts with room, the full ones, and the others."""
        now = [name for name in known if name in self._hosts]
        without_room = [name for name in now if self._room(frozenset([name])) == 0]
        ready = [name for name in now if self._hosts[name].accepts and name not in without_room]
        full = [name for name in without_room if _excess(self._hosts[name].client) > 0]
        return [ready, full, [name for name in now if name not in ready and name not in full]]
