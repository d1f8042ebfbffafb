"""The base model of an adapter: all its callable versions have the same one."""

from __future__ import annotations

import json

from control_plane.adapters.registry.base_names import is_one_of, says_nothing
from control_plane.adapters.registry.models import OUT_OF_USE, Adapter, AdapterVersion
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.base_model import ServedBase, ServedBases, served_bases
from control_plane.identity.tenants.models import Tenant


class UnknownBaseError(LorikeetError):
    def __init__(self, name: str, bases: ServedBases) -> None:
        super().__init__(
            "base_model_not_found",
            f"No base model {json.dumps(name[:200], ensure_ascii=False)} is served here.",
            f"Name one of {choices(bases)}, or none where the adapter's configuration names it.",
            param="base_model",
        )


class OtherBaseOfAdapterError(LorikeetError):
    def __init__(self, name: str, adapter_base: ServedBase, other: str) -> None:
        super().__init__(
            "adapter_of_other_base",
            f'The adapter "{name}" has versions of {adapter_base.name}, and this one is of {other}.',
            f"Use another name for an adapter of {other}, or archive those versions first.",
            param="base_model",
            status=409,
        )


def choices(bases: ServedBases) -> str:
    """Return the names of the served base models, for error texts."""
    return ", ".join(base.name for base in bases) or "none yet"


def base_of(adapter: Adapter, bases: ServedBases) -> ServedBase | None:
    """Return the base model of its newest version that is in use and whose base is served; None without one."""
    versions = AdapterVersion.objects.for_tenant(adapter.tenant).filter(adapter=adapter).exclude(state__in=OUT_OF_USE)
    served = versions.filter(base_digest__in=bases.adapters_of).order_by("-number")
    digest = served.values_list("base_digest", flat=True).first()
    return bases.for_adapters_of(digest) if digest else None


def base_of_named(tenant: Tenant, name: str, bases: ServedBases) -> ServedBase | None:
    """Return the base model of the active adapter of that name, if there is one."""
    adapter = Adapter.objects.for_tenant(tenant).filter(name=name, archived_at__isnull=True).first()
    return base_of(adapter, bases) if adapter else None


def require_base_of(adapter: Adapter, base: ServedBase) -> None:
    """Raise OtherBaseOfAdapterError (409) if the adapter's other versions have another base model."""
    adapter_base = base_of(adapter, served_bases())
    if adapter_base is not None and adapter_base.digest != base.digest:
        raise OtherBaseOfAdapterError(adapter.name, adapter_base, base.name)


def require_base_of_adapter(version: AdapterVersion) -> None:
    """Raise OtherBaseOfAdapterError (409) if newer versions of its adapter have another base model.

    An alias and its canary must have the same base.
    """
    bases = served_bases()
    adapter_base, other = base_of(version.adapter, bases), bases.for_adapters_of(version.base_digest)
    if adapter_base is not None and other is not None and adapter_base.digest != other.digest:
        raise OtherBaseOfAdapterError(version.adapter.name, adapter_base, other.name)


def wanted_base(tenant: Tenant, name: str, base_model: str) -> str:
    """Return the digest of the base model that an upload names, by name or digest; "" if it names none.

    Raises UnknownBaseError (400), or OtherBaseOfAdapterError (409) if the adapter has versions of another one.
    """
    if not base_model:
        return ""
    bases = served_bases()
    base = bases.named(base_model) or bases.for_adapters_of(base_model)
    if base is None:
        raise UnknownBaseError(base_model, bases)
    adapter_base = base_of_named(tenant, name, bases)
    if adapter_base is not None and adapter_base.digest != base.digest:
        raise OtherBaseOfAdapterError(name, adapter_base, base.name)
    return base.digest


def names_of(base: ServedBase, *, first: bool) -> list[str]:
    """Return the names of a base: to callers, to its engines, and, for the base approved first, in the settings."""
    return [base.name, base.model, *(current().base_model_names.split(",") if first else [])]


def other_base(named: str, base: ServedBase) -> str:
    """Return the name if it is another model's; "" if it is the served one's, or if the adapter names none."""
    first = next(iter(served_bases()), base)
    known = is_one_of(named, names_of(base, first=first.digest == base.digest))
    return "" if known or says_nothing(named) else named
