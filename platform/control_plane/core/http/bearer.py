"""Bearer tokens of requests."""

from __future__ import annotations

from django.http import HttpRequest
from rest_framework.request import Request


def bearer_token(request: HttpRequest | Request) -> str | None:
    """Return the token of `Authorization: Bearer ...`, or None if the header is absent or of another scheme."""
    return token_of(request.headers.get("Authorization", ""))


def token_of(authorization: str) -> str | None:
    """Return the token in the value of an Authorization header; None for another scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
