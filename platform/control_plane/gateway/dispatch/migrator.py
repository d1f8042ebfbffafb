"""Looks for hosts that have far more to do than others, and lets other hosts go on with some of their requests.

Each web process moves its own requests only. What it knows of others' is in the heartbeats, as for dispatch.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Hashable, Mapping
from typing import Protocol

from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.routing.migration import Lengths, MigrationPolicy, OpenRequest, Rates, is_uneven
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)
EVERY_S = 1.0
MOST_LOOKS = 32
"""For each plan; others keep the hosts that they were sent with, unless somebody else has just asked for the same."""


class MovableAttempt(Protocol):
    """One attempt of a request on an engine, as far as it may move."""

    @property
    def asked_for(self) -> Hashable:
        """Whose request for what: the same hosts may go on with those that have the same."""

    async def look_again(self) -> None:
        """See which hosts these are now: some may have come since it was sent."""

    def open_request(self, lengths: Lengths) -> OpenRequest | None:
        """What is left of it; None if it stays where it is."""

    def move(self, host: str) -> None:
        """Let this host go on with it."""


class Migrator:
    """Of one event loop. Without a policy it does nothing."""

    def __init__(self, fleet: Fleet, attempts: Mapping[str, MovableAttempt], policy: MigrationPolicy | None) -> None:
        """``attempts`` are those that run now, by the names that engines know them by."""
        self._fleet, self._attempts, self._policy = fleet, attempts, policy
        self._lengths, self._rates = Lengths(), Rates()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._policy is not None:
            self._task = asyncio.create_task(self._run(self._policy), name="migrate")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def ended(self, submit: pb.Submit, tokens: int) -> None:
        """An answer became so long."""
        if self._policy is not None:
            self._lengths.ended(submit.tenant, submit.adapter_digest, tokens)

    async def _run(self, policy: MigrationPolicy) -> None:
        while True:
            # At times of its own: processes that look at the same moment would all fill the same host.
            await asyncio.sleep(EVERY_S * random.uniform(0.5, 1.5))
            try:
                await self.look(policy)
            except Exception:
                logger.exception("Nothing was moved.")

    async def look(self, policy: MigrationPolicy) -> int:
        """Move what is better elsewhere; how many requests were told to. The plan is made on a thread."""
        hosts = self._fleet.now()
        self._rates.observe(hosts, time.monotonic())
        if not is_uneven(hosts):
            return 0
        of_each = {attempt.asked_for: attempt for attempt in self._attempts.values()}
        await asyncio.gather(*(attempt.look_again() for attempt in [*of_each.values()][:MOST_LOOKS]))
        asked = (attempt.open_request(self._lengths) for attempt in [*self._attempts.values()])
        requests = [request for request in asked if request is not None]
        plan = await asyncio.to_thread(policy.moves, hosts, requests, self._rates.of(hosts))
        for name, host in plan.to.items():
            if (attempt := self._attempts.get(name)) is not None:
                attempt.move(host)
        if plan.to:
            logger.info("%d requests move: %.2f s of work become %.2f s", len(plan.to), plan.before_s, plan.after_s)
        return len(plan.to)
