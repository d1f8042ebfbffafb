"""State of a browser that is not signed in: kept in signed cookies, so that strangers write no rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase


@dataclass(frozen=True)
class Note:
    """A value of plain JSON types in a signed cookie. The browser's user can read it but not change it."""

    name: str
    # The path to which the browser sends the cookie.
    path: str
    seconds: int

    def write(self, response: HttpResponseBase, value: Any) -> None:
        response.set_cookie(
            self.name,
            signing.dumps(value, salt=self.name, compress=True),
            max_age=self.seconds,
            path=self.path,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )

    def read(self, request: HttpRequest) -> Any:
        """Return the value, or None if it is absent, too old, or not signed by this installation."""
        try:
            return signing.loads(request.COOKIES.get(self.name, ""), salt=self.name, max_age=self.seconds)
        except signing.BadSignature:
            return None

    def forget(self, response: HttpResponseBase) -> None:
        response.delete_cookie(self.name, path=self.path, samesite="Lax")
