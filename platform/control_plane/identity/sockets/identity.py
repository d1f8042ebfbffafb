"""Callers of websockets, in a form that can be authorised again at any time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from control_plane.core.events.recheck import key_group, user_group
from control_plane.identity.access.principal import Principal
from control_plane.identity.access.tenant_access import NotAuthenticatedError, enter
from control_plane.identity.accounts.sessions import user_of_session
from control_plane.identity.keys.auth import InvalidKeyError
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.keys.secret import matching, parse


class Caller(Protocol):
    @property
    def group(self) -> str:
        """Return the channel layer's group that is notified of changes."""

    def principal(self) -> Principal:
        """Return the caller's present permissions from the database. Raises LorikeetError if it lost its access."""


@dataclass(frozen=True)
class SessionCaller:
    """A member, by the session that requested the ticket."""

    user_id: UUID
    session_key: str
    tenant: str

    @property
    def group(self) -> str:
        return user_group(self.user_id)

    def principal(self) -> Principal:
        user = user_of_session(self.session_key)
        if user is None or user.pk != self.user_id:
            raise NotAuthenticatedError
        return enter(self.tenant, user=user, key_principal=None)


@dataclass(frozen=True)
class KeyCaller:
    """A program, by one secret of its API key."""

    key_id: UUID
    secret: str = field(repr=False)

    @classmethod
    def of(cls, key: ApiKey, text: str) -> KeyCaller:
        """Return the caller of a key that was looked up by its `text`."""
        parts = parse(text)
        assert parts is not None
        return cls(key.pk, parts.secret)

    @property
    def group(self) -> str:
        return key_group(self.key_id)

    def principal(self) -> Principal:
        key = ApiKey.objects.select_related("tenant").filter(pk=self.key_id).first()
        if key is None or not key.usable_at() or matching(self.secret, *key.accepted_hashes()) is None:
            raise InvalidKeyError
        return Principal.of_key(key)
