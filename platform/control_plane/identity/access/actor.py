"""The actor of an audit row: a user, an API key or the system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from control_plane.identity.accounts.models import User


class ActorKind(models.TextChoices):
    USER = "user"
    KEY = "key"
    SYSTEM = "system"


@dataclass(frozen=True)
class Actor:
    kind: ActorKind
    id: str
    label: str

    @classmethod
    def of(cls, user: User) -> Actor:
        """Return the actor for a person."""
        return cls(ActorKind.USER, str(user.pk), user.email)


SYSTEM = Actor(ActorKind.SYSTEM, "", "lorikeet")
