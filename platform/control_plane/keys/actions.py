"""Making and revoking API keys."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError
from control_plane.keys import secret as key_secret
from control_plane.keys.models import ApiKey
from control_plane.principal import Principal
from control_plane.tenants.roles import KEY_SCOPES, Capability


def create_key(
    *, acting: Principal, name: str, scopes: Collection[str] = (), expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Make a key of the acting member's tenant. Returns the row and the full key text, which is not kept anywhere."""
    granted = _scopes_within(scopes or [scope.value for scope in KEY_SCOPES], acting.capabilities)
    if expires_at is not None and expires_at <= timezone.now():
        raise LorikeetError(
            "expiry_in_past", "expires_at lies in the past.", "Choose a later time or leave it out.", param="expires_at"
        )
    text = key_secret.make()
    with transaction.atomic():
        key = ApiKey.objects.create(
            tenant=acting.tenant,
            name=name,
            prefix=text.prefix,
            secret_hash=key_secret.hash_secret(text.secret),
            scopes=granted,
            expires_at=expires_at,
            created_by=acting.user,
        )
        audit.record(
            acting.actor, "key.create", key, tenant=acting.tenant, label=name, prefix=text.prefix, scopes=granted
        )
    return key, str(text)


def _scopes_within(scopes: Collection[str], capabilities: frozenset[Capability]) -> list[str]:
    known = {scope.value for scope in KEY_SCOPES}
    for scope in scopes:
        if scope not in known:
            raise LorikeetError(
                "unknown_scope",
                f'There is no key scope "{scope}".',
                f"Choose from: {', '.join(sorted(known))}.",
                param="scopes",
            )
    # A key is never more than the person who made it.
    return sorted(scope for scope in scopes if Capability(scope) in capabilities)


def revoke_key(*, acting: Principal, key: ApiKey) -> ApiKey:
    """Revoke at once. Revoking a revoked key changes nothing."""
    with transaction.atomic():
        key = ApiKey.objects.for_tenant(acting.tenant).select_for_update().get(pk=key.pk)
        if key.revoked_at is None:
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
            audit.record(acting.actor, "key.revoke", key, tenant=acting.tenant, label=key.name, prefix=key.prefix)
    return key
