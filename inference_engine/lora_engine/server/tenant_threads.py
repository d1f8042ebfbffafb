"""Threads that tenants share fairly, for texts, templates and grammars."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TenantThreads:
    """A few threads that serve waiting tenants round-robin. One tenant never has all of several threads, so a tenant
    waits for one task of another at most. It lives on the event loop.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._free, self._most_each = threads, max(1, threads - 1)
        self._running = Counter[str]()
        # The next tenant comes first.
        self._waiting: dict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}

    def submit(
        self, tenant: str, call: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs
    ) -> asyncio.Future[T]:
        """Run `call` on a thread. A call that has not begun is dropped when its future is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append((partial(call, *arguments, **keywords), future))
        self._begin()
        return future

    def close(self) -> None:
        """Wait for running calls; start no others."""
        for _call, future in (each for queue in self._waiting.values() for each in queue):
            future.cancel()
        self._waiting.clear()
        self._pool.shutdown()

    def _begin(self) -> None:
        while self._free:
            tenant = next((each for each in self._waiting if self._running[each] < self._most_each), None)
            if tenant is None:
                return
            queue = self._waiting.pop(tenant)
            call, future = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind all others
            if future.cancelled():
                continue
            self._free -= 1
            self._running[tenant] += 1
            done = asyncio.get_running_loop().run_in_executor(self._pool, call)
            done.add_done_callback(partial(self._ended, tenant, future))

    def _ended(self, tenant: str, future: asyncio.Future[T], done: asyncio.Future[T]) -> None:
        self._free += 1
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        error = done.exception()
        if not future.done():
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)
        self._begin()
