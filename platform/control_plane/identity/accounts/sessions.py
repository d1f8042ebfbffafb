"""Sessions in the database (Django's engine), and the person of one that opened a websocket: sockets check it again.

A cookie may contain anything, escaped NUL characters too, which PostgreSQL rejects in a query, so only keys of Django's
own form are looked up.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.http import HttpRequest

from control_plane.core.jobs import clocks
from control_plane.identity.accounts.models import User

_FORM = re.compile(r"[a-z0-9]{32}")


class SessionStore(db.SessionStore):
    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key if session_key is not None and _FORM.fullmatch(session_key) else None)

    def get_expiry_date(self, **settings: Any) -> datetime:
        return super().get_expiry_date(**{"modification": clocks.now(), **settings})

    def load(self) -> dict[str, Any]:
        """Return the session's contents, empty unless it is valid by the database's clock."""
        session = Session.objects.filter(session_key=self.session_key, expire_date__gt=clocks.now()).first()
        if session is None:
            self._session_key = None
            return {}
        return self.decode(session.session_data)


def user_of_session(session_key: str) -> User | None:
    """Return the person of a session; None once it ended, expired, or the password changed."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    user = get_user(request)
    return user if isinstance(user, User) else None
