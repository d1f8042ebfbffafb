"""The largest upload of an adapter: as large as the files that the engines of its base model accept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from control_plane.adapters.registry.base_of_adapter import base_of_named
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.base_model import ServedBase, served_bases
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import AdapterLimits

_SMALLER = "Save the adapter in 16 bits, or train it with a lower rank or fewer target modules"


@dataclass(frozen=True)
class UploadBound:
    """The largest number of bytes of an adapter, with the reason and what to do, for error texts."""

    bytes: int
    reason: str
    fix: str

    @property
    def message(self) -> str:
        return f"The adapter is larger than {self.bytes} bytes, {self.reason}."


class UploadTooLargeError(LorikeetError):
    def __init__(self, bound: UploadBound) -> None:
        super().__init__("upload_too_large", bound.message, bound.fix, status=413)


def limits_for(base: ServedBase, tenant: Tenant | None = None) -> AdapterLimits:
    """Return the strictest of the platform's limits, the engine's and the tenant's."""
    ranks = [current().max_lora_rank, base.max_lora_rank, tenant_limits(tenant).max_rank if tenant else None]
    limits = AdapterLimits.of_base(base.geometry, min(rank for rank in ranks if rank))
    return replace(limits, max_bytes=min(limits.max_bytes, current().upload_max_bytes or limits.max_bytes))


def largest_upload() -> UploadBound:
    """Return the bound of uploads to any adapter, for checks before the adapter is known."""
    return _bound(served_bases(), None)


def largest_upload_bytes() -> int:
    """Return the bytes of `largest_upload`, for `BodyGuard`."""
    return largest_upload().bytes


def upload_bound(tenant: Tenant, name: str, base_digest: str) -> UploadBound:
    """Return the bound of uploads to the adapter `name`.

    Without `base_digest` it is that of the only base model, of the adapter's other versions, or else the largest one.
    """
    bases = served_bases()
    base = bases.for_adapters_of(base_digest) if base_digest else bases.only or base_of_named(tenant, name, bases)
    return _bound([base] if base else bases, tenant)


def require_upload_size(tenant: Tenant, name: str, base_digest: str, size: int) -> None:
    """Raise UploadTooLargeError (413) for an upload of `size` bytes that is too large for its base model."""
    bound = upload_bound(tenant, name, base_digest)
    if size > bound.bytes:
        raise UploadTooLargeError(bound)


def _bound(bases: Iterable[ServedBase], tenant: Tenant | None) -> UploadBound:
    of_bases = [(limits_for(base, tenant), base.name) for base in bases]
    limits, name = max(of_bases, key=lambda each: each[0].max_bytes, default=(AdapterLimits(), "any base model"))
    setting = current().upload_max_bytes
    if setting and setting <= limits.max_bytes:
        fix = f"{_SMALLER}, or ask the operator to raise LORIKEET_UPLOAD_MAX_BYTES."
        return UploadBound(setting, "the limit of this installation", fix)
    of_rank = f"the largest file of adapters of {name} up to rank {limits.max_rank}"
    return UploadBound(limits.max_bytes, of_rank, f"{_SMALLER}.")
