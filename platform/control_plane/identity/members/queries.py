"""Looking up who belongs to a tenant, and who is invited."""

from __future__ import annotations

from django.db import models
from django.db.models import Case, F, Q, QuerySet, Value, When

from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import Role


class MemberSort(models.TextChoices):
    """What a list of members can be sorted by; a minus before it turns the order round."""

    EMAIL = "email"
    ROLE = "role"
    JOINED_AT = "joined_at"


# By what a role may do, most first, as `Role` names them.
_RANK = Case(*(When(role=role, then=Value(rank)) for rank, role in enumerate(Role.values)))
_COLUMNS: dict[MemberSort, F | Case] = {
    MemberSort.EMAIL: F("user__email"),
    MemberSort.ROLE: _RANK,
    MemberSort.JOINED_AT: F("created_at"),
}


def find_members(tenant: Tenant, search: str = "", sort: str = MemberSort.EMAIL) -> QuerySet[Membership]:
    """By a part of the address or of the name."""
    own = Membership.objects.for_tenant(tenant).select_related("user")
    if search:
        own = own.filter(Q(user__email__icontains=search) | Q(user__name__icontains=search))
    column = _COLUMNS[MemberSort(sort.removeprefix("-"))]
    return own.order_by(column.desc() if sort.startswith("-") else column.asc(), "user__email")


def find_invitations(tenant: Tenant, search: str = "") -> QuerySet[Invitation]:
    """Those that are neither accepted nor revoked, by a part of the address, newest first; too old ones too."""
    own = Invitation.objects.for_tenant(tenant).select_related("invited_by").filter(accepted_at=None, revoked_at=None)
    return (own.filter(email__icontains=search) if search else own).order_by("-created_at", "pk")
