"""Creating, changing, rotating and revoking API keys."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from control_plane.core.errors import LorikeetError
from control_plane.core.events.recheck import recheck_key
from control_plane.core.jobs import clocks
from control_plane.core.names import require_name
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys import secret as key_secret
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.roles import KEY_SCOPES, Capability

# Maximum time for which the old secret is accepted after a rotation.
LONGEST_GRACE = timedelta(days=30)


def create_key(
    *, acting: Principal, name: str, scopes: Collection[str] = (), expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Create a key of the acting member's tenant. Returns the row and the full key text, which is not stored."""
    granted = _scopes_within(scopes or [scope.value for scope in KEY_SCOPES], acting.capabilities)
    _require_future(expires_at)
    text = key_secret.make()
    with transaction.atomic():
        key = ApiKey.objects.create(
            tenant=acting.tenant,
            name=require_name(name),
            prefix=text.prefix,
            secret_hash=key_secret.hash_secret(text.secret),
            scopes=granted,
            expires_at=expires_at,
            created_by=acting.user,
        )
        _audit(acting, "key.create", key, scopes=granted)
    return key, str(text)


def change_key(
    *, acting: Principal, key: ApiKey, name: str, scopes: Collection[str], expires_at: datetime | None
) -> ApiKey:
    """Change a key. Its sockets end if it may no longer infer. Raises LorikeetError (400, 403, 409)."""
    granted = _scopes_within(scopes, acting.capabilities)
    with transaction.atomic():
        key = _lock_key(acting, key)
        if expires_at != key.expires_at:
            _require_future(expires_at)
        before = _settings_of(key)
        key.name, key.scopes, key.expires_at = name, granted, expires_at
        if _settings_of(key) == before:
            return key
        key.save(update_fields=["name", "scopes", "expires_at"])
        _audit(acting, "key.change", key, **_settings_of(key), before=before)
        recheck_key(key.pk)
    return key


def rotate_key(*, acting: Principal, key: ApiKey, grace: timedelta) -> tuple[ApiKey, str]:
    """Give the key a new secret; the old one remains valid for `grace`, an even older one ends.

    Returns the row and the new key text. Raises LorikeetError (403, 409).
    """
    with transaction.atomic():
        key = _lock_key(acting, key)
        text = key_secret.KeyText(key.prefix, key_secret.make().secret)
        # Without a grace the old secret is dropped, so that it ends also for a process whose clock is behind.
        key.previous_hash, key.previous_until = key.secret_hash if grace else "", clocks.database_time() + grace
        key.secret_hash, key.rotated_at = key_secret.hash_secret(text.secret), timezone.now()
        key.save(update_fields=["secret_hash", "previous_hash", "previous_until", "rotated_at"])
        _audit(acting, "key.rotate", key, grace_s=int(grace.total_seconds()))
        recheck_key(key.pk)
    return key, str(text)


def _settings_of(key: ApiKey) -> dict[str, object]:
    expiry = key.expires_at.isoformat() if key.expires_at else None
    return {"name": key.name, "scopes": key.scopes, "expires_at": expiry}


def _lock_key(acting: Principal, key: ApiKey) -> ApiKey:
    """Return the row, locked.

    Raises LorikeetError: 409 if it is revoked, 403 if its scopes exceed the acting person's.
    """
    key = ApiKey.objects.for_tenant(acting.tenant).select_for_update().get(pk=key.pk)
    if key.revoked_at is not None:
        raise LorikeetError("key_revoked", "The key is revoked.", "Make a new one.", status=409)
    for scope in key.scopes:
        acting.require(Capability(scope))
    return key


def _require_future(expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= clocks.database_time():
        raise LorikeetError(
            "expiry_in_past", "expires_at lies in the past.", "Choose a later time or leave it out.", param="expires_at"
        )


def _audit(acting: Principal, action: str, key: ApiKey, **detail: object) -> None:
    audit.record(acting.actor, action, key, tenant=acting.tenant, label=key.name, prefix=key.prefix, **detail)


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
    # A key never has more rights than the person who creates it.
    return sorted(scope for scope in scopes if Capability(scope) in capabilities)


def revoke_key(*, acting: Principal, key: ApiKey) -> ApiKey:
    """Revoke the key at once. Revoking a revoked key changes nothing."""
    with transaction.atomic():
        key = ApiKey.objects.for_tenant(acting.tenant).select_for_update().get(pk=key.pk)
        if key.revoked_at is None:
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
            _audit(acting, "key.revoke", key)
            recheck_key(key.pk)
    return key
