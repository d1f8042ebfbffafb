"""Queries for a tenant's members and invitations."""

from __future__ import annotations

from django.db import models
from django.db.models import Case, F, Q, QuerySet, Value, When

from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import Role


class MemberSort(models.TextChoices):
    """The columns by which a list of members can be sorted; a minus before one reverses the order."""

    EMAIL = "email"
    ROLE = "role"
    JOINED_AT = "joined_at"


# The rank of a role: the one with the most rights first, in the order of `Role`.
_RANK = Case(*(When(role=role, then=Value(rank)) for rank, role in enumerate(Role.values)))
_COLUMNS: dict[MemberSort, F | Case] = {
    MemberSort.EMAIL: F("user__email"),
    MemberSort.ROLE: _RANK,
    MemberSort.JOINED_AT: F("created_at"),
}


def find_members(tenant: Tenant, search: str = "", sort: str = MemberSort.EMAIL) -> QuerySet[Membership]:
    """Return the members with `search` in the address or name."""
    members = Membership.objects.for_tenant(tenant).select_related("user")
    if search:
        members = members.filter(Q(user__email__icontains=search) | Q(user__name__icontains=search))
    column = _COLUMNS[MemberSort(sort.removeprefix("-"))]
    return members.order_by(column.desc() if sort.startswith("-") else column.asc(), "user__email")


def invitations_of_members(tenant: Tenant) -> QuerySet[Invitation]:
    """Return the invitations that members sent: the first owner is invited by an operator."""
    members = Membership.objects.for_tenant(tenant).values("user")
    return Invitation.objects.for_tenant(tenant).filter(invited_by__in=members)


def find_invitations(tenant: Tenant, search: str = "") -> QuerySet[Invitation]:
    """Return the invitations not accepted or revoked, expired ones included, by a part of the address, newest first."""
    open_ones = Invitation.objects.for_tenant(tenant).filter(accepted_at=None, revoked_at=None)
    rows = open_ones.filter(email__icontains=search) if search else open_ones
    return rows.select_related("invited_by").order_by("-created_at", "pk")
