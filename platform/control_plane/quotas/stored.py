"""Limits on what a tenant keeps: adapters, their bytes, their rank. Checked where an upload begins and ends."""

from __future__ import annotations

from control_plane.adapters.models import Adapter, AdapterVersion, VersionState
from control_plane.errors import LorikeetError
from control_plane.quotas.queries import count_adapters, stored_bytes, tenant_limits
from control_plane.tenants.models import Tenant


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
            f"The upload's {size} bytes and the {used} stored would pass the tenant's limit of "
            f"{limits.storage_bytes} bytes.",
            "Archive versions that are not needed, or ask the operator for more storage.",
            "files",
        )


def require_room_for_content(tenant: Tenant, name: str, digest: str, size: int) -> None:
    """The same at the end of an upload, inside its transaction: of two that end at once, one sees the other's."""
    # Without touching keys: rows that refer to the tenant, as the ledger's do, need not wait.
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    known = AdapterVersion.objects.for_tenant(tenant).exclude(state=VersionState.ARCHIVED).filter(digest=digest)
    require_room(tenant, name, 0 if known.exists() else size)


def _require_adapter(tenant: Tenant, name: str, allowed: int) -> None:
    exists = Adapter.objects.for_tenant(tenant).filter(name=name, archived_at__isnull=True).exists()
    if not exists and count_adapters(tenant) >= allowed:
        raise StoredLimitError(
            "adapter_limit_reached",
            f"The tenant has {allowed} adapters, which is its limit.",
            "Archive one, upload a new version of an existing one, or ask the operator for more.",
            "name",
        )
