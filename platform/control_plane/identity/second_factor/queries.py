"""Queries for second factors, and for tenants that require them."""

from __future__ import annotations

from dataclasses import dataclass

from control_plane.identity.accounts.models import User
from control_plane.identity.second_factor import recovery_codes
from control_plane.identity.second_factor.models import AuthenticatorApp, Passkey
from control_plane.identity.tenants.models import Membership, Tenant


@dataclass(frozen=True)
class SecondFactors:
    app: AuthenticatorApp | None
    passkeys: list[Passkey]
    recovery_codes_left: int
    required_by: list[str]


def second_factors_of(user: User) -> SecondFactors:
    app = AuthenticatorApp.objects.filter(user=user, confirmed_at__isnull=False).first()
    passkeys = list(Passkey.objects.filter(user=user).order_by("created_at", "pk"))
    return SecondFactors(app, passkeys, recovery_codes.left(user), requiring_tenants(user))


def requiring_tenants(user: User) -> list[str]:
    """Return the names of the person's tenants that require a second factor."""
    rows = Membership.objects.filter(user=user, tenant__second_factor_required=True)
    return list(rows.order_by("tenant__name").values_list("tenant__name", flat=True))


def has_app(user: User) -> bool:
    return AuthenticatorApp.objects.filter(user=user, confirmed_at__isnull=False).exists()


def has_passkey(user: User, rp_id: str) -> bool:
    return Passkey.objects.filter(user=user, rp_id=rp_id).exists()


def members_without(tenant: Tenant) -> int:
    """Return the number of members that have no second factor."""
    return Membership.objects.for_tenant(tenant).filter(user__second_factor_since=None).count()
