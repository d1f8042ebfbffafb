"""Authorisation of a caller for a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.identity.access.principal import Principal
from control_plane.identity.tenants.models import Membership

if TYPE_CHECKING:
    from control_plane.identity.accounts.models import User


class NotAuthenticatedError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "not_authenticated",
            "The request carries neither a session nor an API key.",
            "Log in, or send an API key as `Authorization: Bearer lk_...`.",
            status=401,
        )


class TenantNotFoundError(NotFoundError):
    """A tenant that does not exist or that the caller is not in: the error does not tell which."""

    def __init__(self, slug: str) -> None:
        super().__init__(
            f'You are not a member of a tenant called "{slug}".',
            "Check the tenant's short name. GET /api/session lists yours.",
            code="tenant_not_found",
        )


class KeyOfAnotherTenantError(NotFoundError):
    """A tenant that an API key does not belong to. A key has no session, and may know the name of its tenant."""

    def __init__(self, slug: str, key_slug: str) -> None:
        super().__init__(
            f'This API key does not belong to a tenant called "{slug}".',
            f'It is a key of "{key_slug}": use that name in the address, or a key of the other tenant.',
            code="tenant_not_found",
        )


def enter(slug: str, *, user: User | None, key_principal: Principal | None) -> Principal:
    """Return the caller within tenant `slug`. Raises NotAuthenticatedError (401) or TenantNotFoundError (404)."""
    if key_principal is not None:
        if key_principal.tenant.slug != slug:
            raise KeyOfAnotherTenantError(slug, key_principal.tenant.slug)
        return key_principal
    if user is None:
        raise NotAuthenticatedError
    membership = Membership.objects.select_related("tenant", "user").filter(tenant__slug=slug, user=user).first()
    if membership is None:
        raise TenantNotFoundError(slug)
    return Principal.of_member(membership)
