"""Queries of tenants for operators, including tenants that never sent a request."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.billing.refusals.models import DailyRefusals
from control_plane.billing.slo.models import DEFAULT_TARGET, Objective
from control_plane.billing.usage.models import DailyTotals, Outcome
from control_plane.billing.usage.sums import today
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.members.queries import find_invitations, find_members
from control_plane.identity.tenants.models import Membership, Tenant

# UTC days of usage that a tenant's row sums.
USAGE_DAYS = 30
# Maximum number of open invitations that a tenant's page lists.
MAX_INVITATIONS = 50
STATES = ["active", "suspended", "deleted"]
_IN_STATE = {
    "": Q(deleted_at=None),
    "active": Q(suspended_at=None),
    "suspended": Q(suspended_at__isnull=False, deleted_at=None),
    "deleted": Q(deleted_at__isnull=False),
}
SORTS = ["name", "-name", "created_at", "-created_at", "weight", "-weight", "requests", "-requests"]
Row = dict[str, Any]


@dataclass(frozen=True)
class TenantPage:
    results: list[Row]
    total: int


def state_of(tenant: Tenant) -> str:
    if tenant.deleted_at is not None:
        return "deleted"
    return "active" if tenant.suspended_at is None else "suspended"


def tenants_page(*, search: str, state: str, sort: str, offset: int, limit: int) -> TenantPage:
    """Return a page of tenants whose name or short name contains `search`."""
    tenants = Tenant.objects.filter(_IN_STATE[state])
    if search:
        tenants = tenants.filter(Q(slug__icontains=search) | Q(name__icontains=search))
    page = list(_sorted(tenants, sort)[offset : offset + limit])
    return TenantPage(_rows(page), tenants.count())


def _sorted(tenants: QuerySet[Tenant], sort: str) -> QuerySet[Tenant]:
    column = sort.lstrip("-")
    if column == "requests":
        recent = DailyTotals.objects.filter(tenant=OuterRef("pk"), start__gt=today() - timedelta(days=USAGE_DAYS))
        sums = recent.order_by().values("tenant").annotate(sum=Sum("requests")).values("sum")
        tenants = tenants.annotate(order=Coalesce(Subquery(sums), 0))
        column = "order"
    by = F(column)
    return tenants.order_by(by.desc() if sort.startswith("-") else by.asc(), "slug")


def _rows(tenants: list[Tenant]) -> list[Row]:
    ids = [tenant.pk for tenant in tenants]
    members = _counts(Membership.objects.filter(tenant__in=ids))
    adapters = _counts(Adapter.objects.filter(tenant__in=ids, archived_at=None))
    keys = _counts(ApiKey.objects.filter(tenant__in=ids, revoked_at=None))
    usage = _usage(ids)
    return [
        {
            **tenant_json(tenant),
            "members": members[tenant.pk],
            "adapters": adapters[tenant.pk],
            "keys": keys[tenant.pk],
            "usage": usage[tenant.pk],
        }
        for tenant in tenants
    ]


def tenant_json(tenant: Tenant) -> Row:
    columns = ("slug", "name", "weight", "created_at", "suspended_at", "suspended_for", "deleted_at")
    return {"state": state_of(tenant), **{name: getattr(tenant, name) for name in columns}}


def _counts(rows: QuerySet[Any]) -> defaultdict[UUID, int]:
    counted = rows.order_by().values_list("tenant_id").annotate(Count("pk"))
    return defaultdict(int, dict(counted))


def _usage(ids: list[UUID]) -> defaultdict[UUID, dict[str, int]]:
    """Return the usage of the last days, with requests that reached no engine."""
    usage: defaultdict[UUID, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("days", "requests", "failed", "refused", "tokens"), 0) | {"days": USAGE_DAYS}
    )
    since = today() - timedelta(days=USAGE_DAYS)
    totals = DailyTotals.objects.filter(tenant__in=ids, start__gt=since).order_by().values_list("tenant_id", "outcome")
    sums = totals.annotate(Sum("requests"), Sum("prompt_tokens"), Sum("completion_tokens"))
    for tenant, outcome, requests, prompt, completion in sums:
        row = usage[tenant]
        row["requests"] += requests
        row["tokens"] += prompt + completion
        if outcome in (Outcome.FAILED, Outcome.REFUSED):
            row[outcome] += requests
    refused = DailyRefusals.objects.filter(tenant__in=ids, start__gt=since).order_by().values_list("tenant_id")
    for tenant, count, failed in refused.annotate(Sum("count"), Sum("failed")):
        usage[tenant]["refused"] += count - failed
        usage[tenant]["failed"] += failed
        usage[tenant]["requests"] += count
    return usage


def tenant_detail(tenant: Tenant) -> Row:
    """Return a tenant's row with its objectives, open invitations and versions by state."""
    objective = Objective.objects.for_tenant(tenant).first()
    states = AdapterVersion.objects.for_tenant(tenant).filter(adapter__archived_at=None).order_by()
    invited = find_invitations(tenant)
    return {
        **_rows([tenant])[0],
        "objectives": {
            "first_token_ms": objective.first_token_ms if objective else None,
            "inter_token_ms": objective.inter_token_ms if objective else None,
            "target": objective.target if objective else DEFAULT_TARGET,
        },
        "invitations": list(invited[:MAX_INVITATIONS]),
        "invitation_count": invited.count(),
        "versions": dict(states.values_list("state").annotate(Count("pk"))),
    }


@dataclass(frozen=True)
class MemberPage:
    results: list[Membership]
    total: int


def members_page(tenant: Tenant, *, search: str, offset: int, limit: int) -> MemberPage:
    """Return a page of the tenant's members, by their address."""
    members = find_members(tenant, search).prefetch_related("user__identities")
    return MemberPage(list(members[offset : offset + limit]), members.count())


@dataclass(frozen=True)
class AdapterPage:
    results: list[Row]
    total: int


def adapters_page(tenant: Tenant, *, search: str, offset: int, limit: int) -> AdapterPage:
    """Return a page of the tenant's adapters by name, with their newest versions."""
    adapters = Adapter.objects.for_tenant(tenant).filter(archived_at=None, name__icontains=search)
    page = list(adapters.order_by("name")[offset : offset + limit])
    newest: dict[UUID, Row] = {}
    versions = AdapterVersion.objects.for_tenant(tenant).filter(adapter__in=page).order_by("number")
    for adapter_id, number, state, size, rank in versions.values_list("adapter_id", "number", "state", "bytes", "rank"):
        newest[adapter_id] = {"version": number, "state": state, "bytes": size, "rank": rank}
    nothing = {"version": None, "state": None, "bytes": 0, "rank": None}
    results = [{"name": row.name, "created_at": row.created_at, **newest.get(row.pk, nothing)} for row in page]
    return AdapterPage(results, adapters.count())
