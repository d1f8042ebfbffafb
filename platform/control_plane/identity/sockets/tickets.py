"""Tickets with which the console opens its websockets.

A browser sends cookies with a websocket from any site, and cannot send headers: so cookies count for nothing there.
A page of ours gets a ticket over HTTP, where the session and its CSRF token are checked, and sends it as the socket's
first message, so that no log of addresses holds it. It is good once, for half a minute.
"""

from __future__ import annotations

import hashlib
import secrets
from uuid import UUID

from django.core.cache import cache

from control_plane.identity.sockets.identity import SessionCaller

LIFETIME_S = 30


def issue(caller: SessionCaller) -> str:
    """A ticket that stands for `caller`."""
    ticket = secrets.token_urlsafe(32)
    cache.set(_name(ticket), (str(caller.user_id), caller.session_key, caller.tenant), LIFETIME_S)
    return ticket


def redeem(ticket: str) -> SessionCaller | None:
    """Who it was issued to; None if it is unknown, too old, or was redeemed before."""
    name = _name(ticket)
    kept = cache.get(name)
    # Of two that come at once only one deletes it.
    if kept is None or not cache.delete(name):
        return None
    user_id, session_key, tenant = kept
    return SessionCaller(UUID(user_id), session_key, tenant)


def _name(ticket: str) -> str:
    """Not the ticket itself: a reader of the cache must not be able to use it."""
    return f"lorikeet:ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"
