"""A websocket's handshake: its headers and origin."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from control_plane.core.lifespan import Receive, Scope, Send


def header(scope: Scope, name: str) -> str:
    """Return a request header by lower-case name, "" if absent."""
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), "")


def origin_is_ours(scope: Scope) -> bool:
    """Return True if a page of the console opened the socket.

    Browsers let any site open sockets to any other, and name the site truthfully.
    """
    origin = header(scope, "origin")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return bool(origin) and urlsplit(origin).netloc.lower() == header(scope, "host").lower()


async def no_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a socket at an address that has none, before it is accepted."""
    await receive()
    await send({"type": "websocket.close"})
