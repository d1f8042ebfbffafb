"""Limits on what a tenant keeps: adapters, their bytes, their rank. Checked where an upload begins and ends."""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.adapters.registry.models import OUT_OF_USE, Adapter, AdapterVersion
from control_plane.adapters.registry.queries import count_active, stored_bytes
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.errors import LorikeetError
from control_plane.identity.tenants.models import Tenant


class StoredLimitError(LorikeetError):
    """Waiting does not help, so it is 403 and not 429: clients must not try again by themselves."""

    def __init__(self, code: str, message: str, fix: str, param: str) -> None:
        super().__init__(code, message, fix, param=param, status=403)


def require_room(tenant: Tenant, name: str, size: int) -> None:
    """Raises StoredLimitError if an upload of `size` bytes for adapter `name` would pass a limit."""
    limits = tenant_limits(tenant)
    if limits.adapters is not None:
        _require_adapter(tenant, name, limits.adapters)
    if limits.storage_bytes is not None and (used := stored_bytes(tenant)) + size > limits.storage_bytes:
        raise StoredLimitError(
            "storage_limit_reached",
            f"The {size} new bytes and the {used} stored would pass the tenant's limit of "
            f"{limits.storage_bytes} bytes.",
            "Archive versions that are not needed, or ask the operator for more storage.",
            "files",
        )


def require_room_for_contents(tenant: Tenant, name: str, sizes: Mapping[str, int]) -> None:
    """The same where content (bytes by digest) comes into use, inside its transaction: of two that end at once, one
    sees the other's. Content that is in use already takes no further room."""
    # Without touching keys: rows that refer to the tenant, as the ledger's do, need not wait.
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
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
