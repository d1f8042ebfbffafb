"""Django's sessions in the database, for keys of Django's own form only, which expire by the database's clock.

A cookie may contain anything, escaped NUL characters too, which PostgreSQL rejects in a query.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session

from control_plane.core.jobs import clocks

_FORM = re.compile(r"[a-z0-9]{32}")


class SessionStore(db.SessionStore):
    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key if session_key is not None and _FORM.fullmatch(session_key) else None)

    def get_expiry_date(self, **settings: Any) -> datetime:
        return super().get_expiry_date(**{"modification": clocks.now(), **settings})

    def _get_session_from_db(self) -> Session | None:
        session = Session.objects.filter(session_key=self.session_key, expire_date__gt=clocks.now()).first()
        if session is None:
            self._session_key = None
        return session
