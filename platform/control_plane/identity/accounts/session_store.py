"""Django's sessions in the database, for keys of Django's own form only.

A cookie may contain anything, escaped NUL characters too, which PostgreSQL rejects in a query.
"""

from __future__ import annotations

import re

from django.contrib.sessions.backends import db

_FORM = re.compile(r"[a-z0-9]{32}")


class SessionStore(db.SessionStore):
    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key if session_key is not None and _FORM.fullmatch(session_key) else None)
