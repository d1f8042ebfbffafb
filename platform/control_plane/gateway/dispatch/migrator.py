"""Moves requests from hosts that have far more work than others to those others.

Each web process moves its own requests only. It knows the others' load from the heartbeats, as dispatch does.
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
# Seconds between two plans, on average.
EVERY_S = 1.0
# Maximum number of models whose hosts are queried for one plan.
MAX_REFRESHES = 32


class MovableRequest(Protocol):
    """A running request, as the migrator sees it."""

    @property
    def model_key(self) -> Hashable:
        """Tenant and model: requests with the same key can continue on the same hosts."""

    async def refresh_hosts(self) -> None:
        """Query the hosts of the model: some may have joined since the request was sent."""

    def open_request(self, engine_id: str, lengths: Lengths) -> OpenRequest | None:
        """Describe the remaining work; None if the request must stay where it is, or runs under another id now."""

    def move(self, engine_id: str, host: str) -> None:
        """Let this host continue the request."""


class Migrator:
    """A planner of moves of requests to other hosts, for one event loop. Without a policy it does nothing."""

    def __init__(self, fleet: Fleet, running: Mapping[str, MovableRequest], policy: MigrationPolicy | None) -> None:
        """``running`` maps the engine request ids of running attempts to their requests."""
        self._fleet, self._running, self._policy = fleet, running, policy
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
        """Record the length of an answer, for estimates of later ones."""
        if self._policy is not None:
            self._lengths.ended(submit.tenant, submit.adapter_digest, tokens)

    async def _run(self, policy: MigrationPolicy) -> None:
        while True:
            # A random interval: processes that plan at the same moment would all fill the same host.
            await asyncio.sleep(EVERY_S * random.uniform(0.5, 1.5))
            try:
                await self.rebalance(policy)
            except Exception:
                logger.exception("The plan of moves failed; no request was moved.")

    async def rebalance(self, policy: MigrationPolicy) -> int:
        """Move requests that finish sooner elsewhere. Returns the number of moves. The plan is computed on a thread."""
        hosts = self._fleet.now()
        self._rates.observe(hosts, time.monotonic())
        if not is_uneven(hosts):
            return 0
        by_model = {request.model_key: request for request in self._running.values()}
        await asyncio.gather(*(request.refresh_hosts() for request in [*by_model.values()][:MAX_REFRESHES]))
        described = (request.open_request(name, self._lengths) for name, request in [*self._running.items()])
        requests = [request for request in described if request is not None]
        plan = await asyncio.to_thread(policy.moves, hosts, requests, self._rates.of(hosts))
        for name, host in plan.to.items():
            if (moving := self._running.get(name)) is not None:
                moving.move(name, host)
        if plan.to:
            logger.info("%d requests move: %.2f s of work become %.2f s", len(plan.to), plan.before_s, plan.after_s)
        return len(plan.to)
