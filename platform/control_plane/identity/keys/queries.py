"""Queries for API keys."""

from __future__ import annotations

import re
from uuid import UUID

from django.db import models
from django.db.models import F, Q, QuerySet

from control_plane.core.errors import NotFoundError
from control_plane.core.jobs import clocks
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class KeySort(models.TextChoices):
    """The columns by which a list of keys can be sorted; a minus before one reverses the order."""

    NAME = "name"
    CREATED_AT = "created_at"
    LAST_USED_AT = "last_used_at"
    EXPIRES_AT = "expires_at"


class KeyState(models.TextChoices):
    """The keys that a list is limited to: usable ones are neither revoked nor expired."""

    USABLE = "usable"
    NOT_REVOKED = "not_revoked"
    REVOKED = "revoked"


def find_keys(
    tenant: Tenant, search: str, *, state: str = "", scope: str = "", sort: str = f"-{KeySort.CREATED_AT}"
) -> QuerySet[ApiKey]:
    """Return a tenant's keys with `search` in the name or prefix or as the id, of all states and scopes or of one."""
    keys = ApiKey.objects.for_tenant(tenant).select_related("created_by").order_by(*_order(sort))
    if state:
        keys = keys.filter(revoked_at__isnull=state != KeyState.REVOKED)
    if state == KeyState.USABLE:
        keys = keys.filter(Q(expires_at=None) | Q(expires_at__gt=clocks.now()))
    if scope:
        # The column is a JSON list of names. SQLite has no `contains` for it.
        keys = keys.filter(scopes__icontains=f'"{scope}"')
    public = search.removeprefix("lk_").split("_")[0]
    by_id = Q(pk=search) if _ID.fullmatch(search) else Q()
    return keys.filter(Q(name__icontains=search) | Q(prefix__icontains=public) | by_id) if search else keys


def _order(sort: str) -> list[models.expressions.OrderBy]:
    """Return the order of a list. A key that was never used is before all others, one that never expires after them."""
    column, descending = KeySort(sort.removeprefix("-")), sort.startswith("-")
    if column not in (KeySort.LAST_USED_AT, KeySort.EXPIRES_AT):
        nulls: dict[str, bool] = {}
    else:
        nulls = {"nulls_first" if (column == KeySort.LAST_USED_AT) != descending else "nulls_last": True}
    return [F(column).desc(**nulls) if descending else F(column).asc(**nulls), F("created_at").desc(), F("pk").asc()]


def get_key(tenant: Tenant, key_id: UUID) -> ApiKey:
    """Return a key of the tenant. Raises NotFoundError (404)."""
    key = ApiKey.objects.for_tenant(tenant).filter(pk=key_id).first()
    if key is None:
        raise NotFoundError(
            f"There is no key {key_id} in this tenant.", "GET keys lists them.", code="key_not_found", param="id"
        )
    return key
