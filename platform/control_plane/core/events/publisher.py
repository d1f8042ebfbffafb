"""Publishes events to a tenant's console sockets.

Events come from request threads, from database threads of the event loop and from the worker. Each first gets its
number in the tenant's ring. The channel layer then only carries it, and may lose it: a socket that sees a gap reads
the ring. An in-memory channel layer belongs to the event loop that reads it, so in one process all events are passed
to that loop; with Redis any loop will do. A worker runs one loop on a thread for it: a new loop for each event would
need a new connection to Redis for each, 10 ms of a processor, for which all events of the process would wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import InMemoryChannelLayer, get_channel_layer
from redis.exceptions import RedisError

from control_plane.core.deferred import deferred
from control_plane.core.events import waiting
from control_plane.core.events.ring import ring

logger = logging.getLogger(__name__)
_home: asyncio.AbstractEventLoop | None = None
# Keeps the events of this process in the order of their numbers.
_order = threading.Lock()


def bind_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """Set the loop that serves this process's sockets (None when it stops)."""
    global _home
    _home = loop


def group_name(tenant_id: UUID | str) -> str:
    return f"tenant.{tenant_id}"


def publish(tenant_id: UUID | str, event: str, data: dict[str, Any]) -> None:
    """Send `event` to the tenant's sockets. Call it from synchronous code, after commit; it never undoes a write."""
    waiting.tell(tenant_id)
    try:
        with _order:
            entry = ring().append(str(tenant_id), event, data)
            message = {"type": "console.event", "seq": entry.seq, "event": event, "data": data}
            send_to_group(group_name(tenant_id), message)
    except (OSError, RedisError) as error:
        # The write is committed. The consoles that missed the event start over as soon as Redis answers.
        logger.warning("Live event %s was not sent; consoles reload when Redis answers: %s", event, error)
        deferred.add(("forget-events", str(tenant_id)), lambda: ring().forget(str(tenant_id)))


def send_to_group(group: str, message: dict[str, Any]) -> None:
    """Send a message through the channel layer, from synchronous code.

    Raises OSError or RedisError if Redis is away.
    """
    layer = get_channel_layer()
    if _home is not None and _home.is_running():
        asyncio.run_coroutine_threadsafe(layer.group_send(group, message), _home)
    elif isinstance(layer, InMemoryChannelLayer):
        async_to_sync(layer.group_send)(group, message)
    else:
        asyncio.run_coroutine_threadsafe(layer.group_send(group, message), _background_loop.get()).result()


class _BackgroundLoop:
    """An event loop on a thread, started on first use, for a process that serves no sockets. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="lorikeet-events", daemon=True).start()
            return self._loop

    def forget(self) -> None:
        """Drop the loop in a forked child: its thread runs in the parent only."""
        self._lock, self._loop = threading.Lock(), None


_background_loop = _BackgroundLoop()
os.register_at_fork(after_in_child=_background_loop.forget)
