"""The slots of engine hosts for requests of this process, and the requests that wait for one in fair order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from prometheus_client import Gauge

from control_plane.fleet.routing.fair_order import INPUT_PRICE, OUTPUT_PRICE, FairOrder, Hosts, Waiter
from control_plane.fleet.routing.first_token import prompt_tokens
from control_plane.fleet.transport.errors import stopping
from lora_engine.wire import engine_pb2 as pb

QUEUED = Gauge("lorikeet_requests_queued", "Requests that wait in this process because all their hosts are full.")


class HostSlots:
    """The slots of one event loop's hosts, granted in fair order of the tenants."""

    def __init__(
        self, room: Callable[[Hosts], int | None], may_exceed: Callable[[Hosts, str, Counter[str]], bool]
    ) -> None:
        """Create the slots, which are granted as the callers' functions allow.

        Args:
            room: Returns how many more requests these hosts have room for; None if no request should wait.
            may_exceed: Returns whether a tenant may send one more request to full hosts. Its third argument counts, by
                tenant, requests that have a slot and are not yet sent.
        """
        self._room, self._may_exceed = room, may_exceed
        self._order = FairOrder()
        self._futures: dict[Waiter, asyncio.Future[None]] = {}
        # Requests with a slot that are being sent, by tenant: they are not among a host's requests yet.
        self._granted = Counter[str]()

    def charge(self, submit: pb.Submit, output_tokens: int) -> None:
        """Count output tokens for the tenant of a request."""
        self._order.charge(submit.tenant, output_tokens * OUTPUT_PRICE, submit.slo.weight)

    def grant(self) -> None:
        """Grant slots to waiting requests as far as there is room. Called whenever there may be some."""
        while self._futures and (waiter := self._order.next(self._has_room, self._is_guaranteed)) is not None:
            future = self._futures.pop(waiter)
            if not future.done():
                self._granted[waiter.tenant] += 1
                future.set_result(None)

    def close(self) -> None:
        """End all waits with an error."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(stopping())

    @asynccontextmanager
    async def slot(self, submit: pb.Submit, hosts: Hosts) -> AsyncIterator[float]:
        """Enter when the request may be sent, and yield the seconds that it waited.

        The wait is subtracted from the request's latency targets and ends when they are used up: then the host's own
        admission decides. Background requests, which run when no other request waits, do not wait here.
        """
        if submit.slo.background:
            yield 0.0
            return
        granted, queued_s, began = False, 0.0, time.monotonic()
        if self._futures or not self._has_room(hosts):
            granted = await self._wait(submit, hosts)
            queued_s = time.monotonic() - began
        try:
            self._order.charge(submit.tenant, prompt_tokens(submit) * INPUT_PRICE, submit.slo.weight)
            yield queued_s
        finally:
            if granted:
                self._sent(submit.tenant)

    async def _wait(self, submit: pb.Submit, hosts: Hosts) -> bool:
        """Wait for a slot. Returns False if the request's targets were used up before one was granted."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiter, future = Waiter(submit.tenant, hosts, submit.slo.priority), loop.create_future()
        self._futures[waiter] = future
        self._order.wait(waiter)
        self.grant()  # there may be room at its hosts while others wait for other hosts
        targets = [target for target in (submit.slo.first_token_ms, submit.slo.deadline_ms) if target]
        QUEUED.inc()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(targets) / 1000 if targets else None):
                    await future
        except BaseException:
            if future.done() and not future.cancelled() and not future.exception():  # granted as the caller left
                self._sent(submit.tenant)
            raise
        finally:
            QUEUED.dec()
            waiter.gone = self._futures.pop(waiter, None) is not None
        for name in ("first_token_ms", "deadline_ms"):
            if target := getattr(submit.slo, name):
                setattr(submit.slo, name, max(1, target - round((loop.time() - began) * 1000)))
        return not waiter.gone

    def _has_room(self, hosts: Hosts) -> bool:
        room = self._room(hosts)
        return room is None or room > self._granted.total()

    def _is_guaranteed(self, waiter: Waiter) -> bool:
        return self._may_exceed(waiter.hosts, waiter.tenant, self._granted)

    def _sent(self, tenant: str) -> None:
        """Release a grant: the request is among a host's requests now, or its caller left."""
        self._granted -= Counter([tenant])
        self.grant()
