"""Reads which repositories of the Hub a tenant's requests may name, and which it has imported so."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from control_plane.adapters.imports.sources import HubSource
from control_plane.adapters.registry.models import HubModel, HubModelPolicy, VersionState
from control_plane.identity.tenants.models import Tenant

HUB_PREFIX = "hub:"
MOST_LISTED = 50
_MOST_OF_NAME = 50  # of an adapter's 64


def policy_of(tenant: Tenant) -> HubModelPolicy:
    kept = HubModelPolicy.objects.for_tenant(tenant).first()
    return kept or HubModelPolicy(tenant=tenant, enabled=False, organizations=[])


def allows(policy: HubModelPolicy, name: str) -> bool:
    """`name`: like hub:org/name@revision."""
    organization = name.removeprefix(HUB_PREFIX).partition("/")[0].lower()
    return policy.enabled and (not policy.organizations or organization in policy.organizations)


def full_name(source: HubSource) -> str:
    """The one name of all that mean the same: with its revision."""
    return f"{source.shown}@{source.revision}"


def adapter_name_of(source: HubSource) -> str:
    """The adapter that its revisions are versions of. The digest tells apart what is the same in lower case."""
    readable = re.sub(r"[^a-z0-9]+", "-", source.shown.lower())[:_MOST_OF_NAME].strip("-")
    return f"{readable}-{hashlib.sha256(source.shown.encode()).hexdigest()[:8]}"


def hub_names(tenant: Tenant, adapters: Any) -> Mapping[UUID, list[str]]:
    """Of each of these adapters, the names that requests may use because a repository was imported for one."""
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
    own = HubModel.objects.for_tenant(tenant).select_related("upload__version")
    return own.defer("upload__report", "upload__version__report")[:MOST_LISTED]
