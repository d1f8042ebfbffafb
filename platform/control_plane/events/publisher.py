"""Publishing to a tenant's console sockets.

Events come from request threads, from database threads of the event loop and from the worker. Each gets its number
in the tenant's ring first; the channel layer then only carries it, and may lose it: a socket that sees a gap reads
the ring. An in-memory channel layer belongs to the event loop that reads it, so in one process everything is handed
to that loop; with Redis any loop will do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from control_plane.deferred import deferred
from control_plane.events.ring import ring

logger = logging.getLogger(__name__)
_home: asyncio.AbstractEventLoop | None = None
# Numbers and sends in one order, as long as they come from this process.
_order = threading.Lock()


def bind_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """Say which loop serves this process's sockets (None when it stops)."""
    global _home
    _home = loop


def group_name(tenant_id: UUID | str) -> str:
    return f"tenant.{tenant_id}"


def publish(tenant_id: UUID | str, event: str, data: dict[str, Any]) -> None:
    """Send `event` to the tenant's sockets. Call it from synchronous code, after commit; it never undoes a write."""
    try:
        with _order:
            entry = ring().append(str(tenant_id), event, data)
            message = {"type": "console.event", "seq": entry.seq, "event": event, "data": data}
            send_to_group(group_name(tenant_id), message)
    except (OSError, RedisError) as error:
        # The write is committed. Consoles that missed it are told so as soon as Redis answers.
        logger.warning("Live event %s not sent: %s", event, error)
        deferred.add(("forget-events", str(tenant_id)), lambda: ring().forget(str(tenant_id)))


def send_to_group(group: str, message: dict[str, Any]) -> None:
    """Through the channel layer, from synchronous code. Raises OSError or RedisError if it is away."""
    send = get_channel_layer().group_send
    if _home is not None and _home.is_running():
        asyncio.run_coroutine_threadsafe(send(group, message), _home)
    else:
        async_to_sync(send)(group, message)
