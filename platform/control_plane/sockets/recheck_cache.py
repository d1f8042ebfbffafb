"""What holders of sockets may do, asked once a second for all sockets of one caller."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from control_plane.access.principal import Principal
from control_plane.single_flight import Fresh
from control_plane.sockets.identity import Caller

_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, Fresh[Principal]] = WeakKeyDictionary()


async def recent_look(caller: Caller) -> Principal:
    """As ``caller.principal()``, at most ``FRESH_S`` old."""
    looks = _looks.setdefault(asyncio.get_running_loop(), Fresh())
    return await looks.get(caller, caller.principal)
