"""Tickets with which the console opens its websockets.

A browser sends cookies with a websocket from any site, and cannot send headers: so cookies do not count there. A page
of the console gets a ticket over HTTP, where the session and its CSRF token are checked, and sends it as the socket's
first message, so that no log of addresses contains it. It is valid once, for half a minute.
"""

from __future__ import annotations

import hashlib
import secrets
from uuid import UUID

from django.core.cache import cache

from control_plane.identity.sockets.identity import SessionCaller

LIFETIME_S = 30


def issue(caller: SessionCaller) -> str:
    """Return a ticket for `caller`."""
    ticket = secrets.token_urlsafe(32)
    cache.set(_name(ticket), (str(caller.user_id), caller.session_key, caller.tenant), LIFETIME_S)
    return ticket


def redeem(ticket: str) -> SessionCaller | None:
    """Return the caller that a ticket was issued to; None if it is unknown, too old, or used."""
    name = _name(ticket)
    kept = cache.get(name)
    # Of two simultaneous requests only one deletes it.
    if kept is None or not cache.delete(name):
        return None
    user_id, session_key, tenant = kept
    return SessionCaller(UUID(user_id), session_key, tenant)


def _name(ticket: str) -> str:
    """Return the ticket's name in the cache: a hash, so that a reader of the cache cannot use it."""
    return f"lorikeet:ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"
