"""Queries for the Hub repositories that a tenant's requests may name, and those imported for requests."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from control_plane.adapters.imports.models import HubModel, HubModelPolicy
from control_plane.adapters.imports.sources import HubSource
from control_plane.adapters.registry.models import VersionState
from control_plane.identity.tenants.models import Tenant

HUB_PREFIX = "hub:"
# Maximum number of models in the settings' list.
MAX_LISTED = 50
# Maximum number of characters of a repository's name in an adapter's name, which may have 64.
_MAX_NAME_CHARS = 50


def policy_of(tenant: Tenant) -> HubModelPolicy:
    kept = HubModelPolicy.objects.for_tenant(tenant).first()
    return kept or HubModelPolicy(tenant=tenant, enabled=False, organizations=[])


def allows(policy: HubModelPolicy, name: str) -> bool:
    """Return True if the policy allows a name like hub:org/name@revision."""
    organization = name.removeprefix(HUB_PREFIX).partition("/")[0].lower()
    return policy.enabled and (not policy.organizations or organization in policy.organizations)


def full_name(source: HubSource) -> str:
    """Return the canonical name of a source: with its revision."""
    return f"{source.shown}@{source.revision}"


def adapter_name_of(source: HubSource) -> str:
    """Return the adapter for all revisions of a source. The digest distinguishes sources that differ in case only."""
    readable = re.sub(r"[^a-z0-9]+", "-", source.shown.lower())[:_MAX_NAME_CHARS].strip("-")
    return f"{readable}-{hashlib.sha256(source.shown.encode()).hexdigest()[:8]}"


def hub_names(tenant: Tenant, adapters: Any) -> Mapping[UUID, list[str]]:
    """Return for each of these adapters the Hub names that requests may use, since an import made its version."""
    policy = policy_of(tenant)
    names: defaultdict[UUID, list[str]] = defaultdict(list)
    if not policy.enabled:
        return names
    ready = HubModel.objects.for_tenant(tenant).filter(
        upload__version__adapter__in=adapters, upload__version__state=VersionState.READY
    )
    for adapter_id, name in ready.order_by("name").values_list("upload__version__adapter_id", "name"):
        if allows(policy, name):
            names[adapter_id].append(name)
    return names


def latest_hub_models(tenant: Tenant) -> QuerySet[HubModel]:
    rows = HubModel.objects.for_tenant(tenant).select_related("upload__version")
    return rows.defer("upload__report", "upload__version__report")[:MAX_LISTED]
