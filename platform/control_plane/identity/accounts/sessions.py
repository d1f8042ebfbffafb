"""Validity of a session after the request that opened a websocket: sockets check it again."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from control_plane.identity.accounts.models import User


def user_of_session(session_key: str) -> User | None:
    """Return the person of a session; None once it ended, expired, or the password changed."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user if isinstance(user, User) else None
