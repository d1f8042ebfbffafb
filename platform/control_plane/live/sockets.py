"""What every websocket of the platform checks before it trusts a cookie."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings

from control_plane.accounts.models import User

Scope = dict[str, Any]


def header(scope: Scope, name: str) -> str:
    """A request header by lower-case name, "" if absent."""
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), "")


def query(scope: Scope, name: str) -> str:
    """A value of the connection's query string, "" if absent."""
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(name)
    return values[0] if values else ""


def origin_is_ours(scope: Scope) -> bool:
    """Whether the page that opened the socket is ours.

    Browsers send cookies with websockets from any site and no CSRF token guards them: the origin is all there is.
    """
    origin = header(scope, "origin")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return bool(origin) and urlsplit(origin).netloc.lower() == header(scope, "host").lower()


def session_user(scope: Scope) -> User | None:
    """The active user of the session cookie. Trust it only if ``origin_is_ours``."""
    user = scope.get("user")
    return user if isinstance(user, User) and user.is_active else None
