"""Django's sessions in the database, for keys of Django's own form only.

A cookie may hold anything, escaped NUL characters too, which PostgreSQL refuses to be asked for.
"""

from __future__ import annotations

import re

from django.contrib.sessions.backends import db

_FORM = re.compile(r"[a-z0-9]{32}")


class SessionStore(db.SessionStore):
    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and _FORM.fullmatch(key) is not None
