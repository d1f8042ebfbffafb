"""The user of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.http import HttpRequest

if TYPE_CHECKING:
    from control_plane.identity.accounts.models import User


def session_user(request: HttpRequest) -> User | None:
    """Return the active user of the session cookie, or None."""
    user = getattr(request, "user", None)
    return user if isinstance(user, get_user_model()) and user.is_active else None
