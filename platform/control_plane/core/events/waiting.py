"""Waiting in this process for something of a tenant to change: woken by the tenant's live events.

Events of other processes go to sockets only, so whoever waits also looks again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID


class TenantChanges:
    """What somebody on an event loop waits for."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until there has been an event since the last wait, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def tell(self) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._event.set)


_lock = threading.Lock()
_waiting: defaultdict[str, set[TenantChanges]] = defaultdict(set)


@contextlib.contextmanager
def changes_of(tenant_id: UUID) -> Iterator[TenantChanges]:
    """Counts events from here on."""
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
    """The tenant has had an event."""
    if not _waiting:
        return
    with _lock:
        waiting = [*_waiting.get(str(tenant_id), ())]
    for changes in waiting:
        changes.tell()
