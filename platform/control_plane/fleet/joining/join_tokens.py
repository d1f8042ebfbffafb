"""Tokens that let a machine join as an engine host, once."""

from __future__ import annotations

import secrets
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.fleet.joining.models import JoinToken
from control_plane.identity.access.actor import Actor
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys import secret as key_secret

SCHEME = "lkj_"
# Time for which used, expired and withdrawn tokens stay in the list.
SHOWN_FOR = timedelta(days=7)
_BYTES = 32


def create_token(*, actor: Actor, host_name: str, lifetime: timedelta) -> tuple[JoinToken, str]:
    """Return the row and the token, which is not stored. With ``host_name`` "" the host chooses its name."""
    text = SCHEME + secrets.token_urlsafe(_BYTES)
    with transaction.atomic():
        row = JoinToken.objects.create(
            secret_hash=key_secret.hash_secret(_hashed_text(text)),
            host_name=host_name,
            created_by=actor.label,
            expires_at=clocks.database_time() + lifetime,
        )
        audit.record(
            actor, "join_token.create", row, tenant=None, host=host_name, expires_at=row.expires_at.isoformat()
        )
    return row, text


def withdraw_token(*, actor: Actor, token_id: UUID) -> None:
    """Withdraw a join token. A host that joined with it stays. Idempotent. Raises NotFoundError."""
    with transaction.atomic():
        row = JoinToken.objects.select_for_update().filter(pk=token_id).first()
        if row is None:
            raise NotFoundError(
                "There is no such join token.", "GET /api/operator/join-tokens lists them.", code="join_token_not_found"
            )
        if row.withdrawn_at is None:
            row.withdrawn_at = timezone.now()
            row.save(update_fields=["withdrawn_at"])
            audit.record(actor, "join_token.withdraw", row, tenant=None)


def shown_tokens() -> QuerySet[JoinToken]:
    """Return the tokens that are valid, and those that expired in the last days."""
    return JoinToken.objects.filter(expires_at__gt=clocks.database_time() - SHOWN_FOR).select_related("used_by")


def forget() -> int:
    """Delete tokens that expired long ago, used or not. Returns their number. Raises DeletionPausedError."""
    oldest = clocks.deletion_time() - timedelta(days=current().closed_rows_days)
    return JoinToken.objects.filter(expires_at__lt=oldest).delete()[0]


def usable_token(text: str, key: str) -> JoinToken:
    """Return a token's row, locked. Raises JoinTokenError (403).

    ``key`` is the fingerprint of the joining host's key; the same key may use the token again, as the response may have
    been lost.
    """
    row = JoinToken.objects.select_for_update().filter(secret_hash__in=key_secret.hashes(_hashed_text(text))).first()
    if row is None:
        raise JoinTokenError("unknown", "This is no join token of this installation.")
    if row.withdrawn_at is not None:
        raise JoinTokenError("withdrawn", "An operator withdrew this join token.")
    if row.used_at is not None and row.used_key != key:
        raise JoinTokenError("used", "This join token has been used already.")
    if row.expires_at <= clocks.database_time():
        raise JoinTokenError("expired", f"This join token expired on {row.expires_at:%Y-%m-%d at %H:%M} UTC.")
    return row


class JoinTokenError(LorikeetError):
    def __init__(self, kind: str, message: str) -> None:
        fix = "Ask an operator for a new one: on the page Hosts & staging, or with `lorikeet hosts add`."
        super().__init__(f"join_token_{kind}", message, fix, param="token", status=403)


def _hashed_text(text: str) -> str:
    return f"join token: {text}"
