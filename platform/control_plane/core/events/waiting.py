"""Waits in this process for a change of a tenant, ended by the tenant's live events.

Events of other processes reach sockets only, so a waiter also has to poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID


class TenantChanges:
    """A subscription of one waiter on an event loop to the events of a tenant."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait until an event came since the last wait, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def tell(self) -> None:
        """Wake the waiter. Thread-safe."""
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._event.set)


_lock = threading.Lock()
_waiting: defaultdict[str, set[TenantChanges]] = defaultdict(set)


@contextlib.contextmanager
def changes_of(tenant_id: UUID) -> Iterator[TenantChanges]:
    """Subscribe to the tenant's events within the block."""
    changes, tenant = TenantChanges(), str(tenant_id)
    with _lock:
        _waiting[tenant].add(changes)
    try:
        yield changes
    finally:
        with _lock:
            _waiting[tenant].discard(changes)
            if not _waiting[tenant]:
                del _waiting[tenant]


def tell(tenant_id: UUID | str) -> None:
    """Wake everything that waits for the tenant."""
    if not _waiting:
        return
    with _lock:
        waiting = [*_waiting.get(str(tenant_id), ())]
    for changes in waiting:
        changes.tell()
