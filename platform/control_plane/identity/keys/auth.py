"""Authentication by API key."""

from __future__ import annotations

import logging

from django.contrib.auth.models import AnonymousUser
from django.db import DatabaseError, InterfaceError
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from control_plane.core.errors import LorikeetError
from control_plane.core.http.bearer import bearer_token
from control_plane.core.http.connections import prove, tenant_holder
from control_plane.core.http.errors import CHALLENGE
from control_plane.core.secrets.checks import require_match
from control_plane.identity.access.principal import Principal
from control_plane.identity.keys import secret as key_secret
from control_plane.identity.keys.last_used import last_used
from control_plane.identity.keys.models import ApiKey

logger = logging.getLogger(__name__)

# Compared when the prefix is unknown, so that both cases take the same time.
_NO_HASH = "0" * 73


class InvalidKeyError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "invalid_api_key",
            "The API key is unknown, revoked or expired.",
            "Copy the key again, or make a new one under API keys in the console.",
            status=401,
        )


def authenticate_key(secret: str) -> Principal | None:
    """Return the caller of a key as the client sent it, or None if it is unknown, revoked or expired.

    Raises SecretMismatchError (503) if this process has the pepper of another installation.
    """
    parts = key_secret.parse(secret)
    if parts is None:
        return None
    key = ApiKey.objects.select_related("tenant").filter(prefix=parts.prefix).first()
    proven = key_secret.matching(parts.secret, *(key.accepted_hashes() if key else [_NO_HASH]))
    if key is not None and proven is None:
        require_match("key-pepper")
    if key is None or proven is None or not key.usable_at():
        return None
    if proven != (now := key_secret.hash_secret(parts.secret)):
        _renew_hash(key, proven, now)
    last_used.note(key)
    return Principal.of_key(key)


def reauthenticate(key: ApiKey) -> Principal:
    """Return the present caller of a key as it was when it authenticated.

    Raises InvalidKeyError (401) if it was revoked, has expired, or was rotated and the old secret is no longer valid.
    """
    row = ApiKey.objects.select_related("tenant").filter(pk=key.pk).first()
    if row is None or not row.usable_at():
        raise InvalidKeyError
    if row.rotated_at != key.rotated_at and len(row.accepted_hashes()) == 1:
        raise InvalidKeyError
    return Principal.of_key(row)


def _renew_hash(key: ApiKey, old: str, new: str) -> None:
    """Hash a key that is in use under the present pepper. An error is logged only: the next use tries again."""
    try:
        for field in ("secret_hash", "previous_hash"):
            ApiKey.objects.filter(pk=key.pk, **{field: old}).update(**{field: new})
    except (DatabaseError, InterfaceError) as error:
        logger.warning("key %s is still hashed under an old pepper: %s", key, error)


class ApiKeyAuthentication(BaseAuthentication):
    """DRF authentication by API key: `request.auth` becomes the key's Principal."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Principal] | None:
        token = bearer_token(request)
        if token is None:
            return None
        principal = authenticate_key(token)
        if principal is None:
            raise InvalidKeyError
        prove(getattr(request._request, "scope", {}), tenant_holder(principal.tenant.pk))
        return AnonymousUser(), principal

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE
