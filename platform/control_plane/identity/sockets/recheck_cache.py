"""Permissions of sockets' callers, queried once a second for all sockets of one caller."""

from __future__ import annotations

import asyncio
from uuid import UUID
from weakref import WeakKeyDictionary

from control_plane.identity.access.principal import Principal
from control_plane.identity.single_flight import SingleFlightCache
from control_plane.identity.sockets.identity import Caller

_caches: WeakKeyDictionary[asyncio.AbstractEventLoop, SingleFlightCache[Principal]] = WeakKeyDictionary()


def _tenant_of(_: object, principal: Principal) -> UUID:
    return principal.tenant.pk


async def recent_principal(caller: Caller) -> Principal:
    """Return ``caller.principal()``, at most ``FRESH_S`` old."""
    cache = _caches.setdefault(asyncio.get_running_loop(), SingleFlightCache(tenant_of=_tenant_of))
    return await cache.get(caller, caller.principal)
