"""Requests that wait in front of full hosts, for their tenant's turn."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from prometheus_client import Gauge

from control_plane.fleet.routing.fair_turns import INPUT_PRICE, OUTPUT_PRICE, FairTurns, Hosts, Waiter
from control_plane.fleet.routing.first_token import prompt_tokens
from control_plane.fleet.transport.errors import stopping
from lora_engine.wire import engine_pb2 as pb

HELD = Gauge("lorikeet_requests_held", "Requests that wait in this process, as every host has as many as it may.")


class Turns:
    """The requests of one event loop that wait for room at hosts, in fair order of their tenants."""

    def __init__(
        self, room: Callable[[Hosts], int | None], may_exceed: Callable[[Hosts, str, Counter[str]], bool]
    ) -> None:
        """``room`` returns for how many more requests hosts have room; None: none should wait.

        ``may_exceed`` returns whether a tenant may send one more there although there is no room. Its third argument
        counts, by tenant, requests that had their turn and are no host's yet.
        """
        self._room, self._may_exceed = room, may_exceed
        self._order = FairTurns()
        self._futures: dict[Waiter, asyncio.Future[None]] = {}
        # By tenant, requests that had their turn and are being sent: they are not among a host's requests yet.
        self._granted = Counter[str]()

    def charge(self, submit: pb.Submit, output_tokens: int) -> None:
        self._order.charge(submit.tenant, output_tokens * OUTPUT_PRICE, submit.slo.weight)

    def give(self) -> None:
        """Let go on who is next, as far as there is room. Called whenever there may be some."""
        while self._futures and (waiter := self._order.next(self._has_room, self._is_guaranteed)) is not None:
            future = self._futures.pop(waiter)
            if not future.done():
                self._granted[waiter.tenant] += 1
                future.set_result(None)

    def close(self) -> None:
        """Nobody's turn comes any more."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(stopping())

    @asynccontextmanager
    async def turn(self, submit: pb.Submit, hosts: Hosts) -> AsyncIterator[float]:
        """Enter when it may be sent; gives the seconds that it waited.

        They are taken from its targets, and it waits no longer than these let it: then the host's own admission
        decides. What runs when nobody else waits does not wait here.
        """
        if submit.slo.background:
            yield 0.0
            return
        granted, held_s, began = False, 0.0, time.monotonic()
        if self._futures or not self._has_room(hosts):
            granted = await self._wait(submit, hosts)
            held_s = time.monotonic() - began
        try:
            self._order.charge(submit.tenant, prompt_tokens(submit) * INPUT_PRICE, submit.slo.weight)
            yield held_s
        finally:
            if granted:
                self._sent(submit.tenant)

    async def _wait(self, submit: pb.Submit, hosts: Hosts) -> bool:
        """Whether it was its turn; else its time is up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiter, future = Waiter(submit.tenant, hosts, submit.slo.priority), loop.create_future()
        self._futures[waiter] = future
        self._order.wait(waiter)
        self.give()  # there may be room at its hosts, where others wait for other hosts
        targets = [target for target in (submit.slo.first_token_ms, submit.slo.deadline_ms) if target]
        HELD.inc()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(targets) / 1000 if targets else None):
                    await future
        except BaseException:
            if future.done() and not future.cancelled() and not future.exception():  # its turn came as its caller left
                self._sent(submit.tenant)
            raise
        finally:
            HELD.dec()
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
        """Count a granted request no longer: it is among a host's requests, or its caller left."""
        self._granted -= Counter([tenant])
        self.give()
