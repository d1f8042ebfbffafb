"""Limits on a tenant's storage: adapters, their bytes, their rank. Checked where an upload begins and ends."""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.adapters.registry.models import OUT_OF_USE, Adapter, AdapterVersion
from control_plane.adapters.registry.queries import count_active, stored_bytes
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.errors import LorikeetError
from control_plane.identity.tenants.models import Tenant


class StoredLimitError(LorikeetError):
    """A limit on storage is reached. It is 403 and not 429: waiting does not help, so clients must not retry."""

    def __init__(self, code: str, message: str, fix: str, param: str) -> None:
        super().__init__(code, message, fix, param=param, status=403)


def require_room(tenant: Tenant, name: str, size: int) -> None:
    """Raise StoredLimitError if an upload of `size` bytes for adapter `name` would exceed a limit."""
    limits = tenant_limits(tenant)
    if limits.adapters is not None:
        _require_adapter(tenant, name, limits.adapters)
    if limits.storage_bytes is not None and (used := stored_bytes(tenant)) + size > limits.storage_bytes:
        raise StoredLimitError(
            "storage_limit_reached",
            f"The {size} new bytes and the {used} stored would exceed the tenant's limit of "
            f"{limits.storage_bytes} bytes.",
            "Archive versions that are not needed, or ask the operator for more storage.",
            "files",
        )


def lock_tenant(tenant: Tenant) -> None:
    """Lock a tenant's contents until the transaction ends.

    Without locking keys: inserts of rows that refer to the tenant, such as the ledger's, need not wait.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def require_room_for_contents(tenant: Tenant, name: str, sizes: Mapping[str, int]) -> None:
    """Raise StoredLimitError if content (bytes by digest) that comes into use would exceed a limit.

    Call it inside the transaction: of two that end at once, one sees the other's content. Content already in use takes
    no further room.
    """
    lock_tenant(tenant)
    in_use = AdapterVersion.objects.for_tenant(tenant).exclude(state__in=OUT_OF_USE).filter(digest__in=sizes)
    known = set(in_use.values_list("digest", flat=True))
    require_room(tenant, name, sum(size for digest, size in sizes.items() if digest not in known))


def _require_adapter(tenant: Tenant, name: str, allowed: int) -> None:
    exists = Adapter.objects.for_tenant(tenant).filter(name=name, archived_at__isnull=True).exists()
    if not exists and count_active(tenant) >= allowed:
        raise StoredLimitError(
            "adapter_limit_reached",
            f"The tenant has {allowed} adapters, which is its limit.",
            "Archive one, upload a new version of an existing one, or ask the operator for more.",
            "name",
        )
