"""The authenticated caller: user or API key, tenant, capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.http import HttpRequest

from control_plane.core.errors import ForbiddenError
from control_plane.identity.access.actor import Actor, ActorKind
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.identity.tenants.roles import CAPABILITIES, KEY_SCOPES, OF_SUSPENDED, Capability, Role

if TYPE_CHECKING:
    from control_plane.identity.accounts.models import User
    from control_plane.identity.keys.models import ApiKey


class TenantSuspendedError(ForbiddenError):
    def __init__(self, tenant: Tenant) -> None:
        why = f": {tenant.suspended_for}" if tenant.suspended_for else ""
        super().__init__(
            f"The tenant {tenant.slug} is suspended{why}.".replace("..", "."),
            "Ask the operator of this installation; members can still sign in and read.",
            code="tenant_suspended",
        )


class SecondFactorRequiredError(ForbiddenError):
    def __init__(self, tenant: Tenant) -> None:
        super().__init__(
            f"The tenant {tenant.slug} requires its members to have a second factor, and you have none.",
            "Set one up in the console, under Account: an authenticator app or a passkey.",
            code="second_factor_required",
        )


@dataclass(frozen=True)
class Principal:
    """An authenticated caller within one tenant: a member by session, or an API key."""

    tenant: Tenant
    capabilities: frozenset[Capability]
    user: User | None = None
    api_key: ApiKey | None = None
    role: Role | None = None
    # True for a member without the second factor that the tenant requires: such a member has no capabilities.
    lacks_second_factor: bool = False

    @classmethod
    def of_member(cls, membership: Membership) -> Principal:
        """Return the principal of a membership loaded with its tenant and user.

        Members of a suspended tenant only read. Members who lack a required second factor can do nothing.
        """
        tenant, user, capabilities = membership.tenant, membership.user, membership.capabilities
        if tenant.suspended_at is not None:
            capabilities &= OF_SUSPENDED
        lacks = tenant.second_factor_required and not user.has_second_factor
        if lacks:
            capabilities = frozenset()
        return cls(tenant, capabilities, user=user, role=Role(membership.role), lacks_second_factor=lacks)

    @classmethod
    def of_key(cls, key: ApiKey) -> Principal:
        """Return the principal of a key loaded with its tenant.

        Scopes that keys may no longer have are dropped, and all scopes of a suspended tenant.
        """
        scopes = () if key.tenant.suspended_at is not None else key.scopes
        return cls(key.tenant, frozenset(Capability(s) for s in scopes if s in KEY_SCOPES), api_key=key)

    @classmethod
    def of_operator(cls, tenant: Tenant, user: User) -> Principal:
        """Return an operator who acts with the rights of the tenant's owners. Only operators' views make one."""
        return cls(tenant, CAPABILITIES[Role.OWNER], user=user)

    @property
    def actor(self) -> Actor:
        if self.user is not None:
            return Actor.of(self.user)
        assert self.api_key is not None
        return Actor(ActorKind.KEY, str(self.api_key.pk), f"{self.api_key.name} ({self.api_key})")

    def may(self, capability: Capability) -> bool:
        return capability in self.capabilities

    def require(self, capability: Capability) -> None:
        """Raise ForbiddenError (403) unless the caller has `capability`."""
        if self.may(capability):
            return
        if self.lacks_second_factor:
            raise SecondFactorRequiredError(self.tenant)
        if self.tenant.suspended_at is not None:
            raise TenantSuspendedError(self.tenant)
        if self.api_key is not None:
            raise ForbiddenError(
                f'This API key lacks the scope "{capability.value}".',
                "Use a key with that scope, or do it in the console as a member whose role allows it.",
                code="key_scope_missing",
            )
        raise ForbiddenError(
            f'The role "{self.role}" of {self.tenant.slug} does not include "{capability.value}".',
            "Ask an owner or admin of the tenant for a role that does.",
            code="role_not_allowed",
        )


def session_user(request: HttpRequest) -> User | None:
    """Return the active user of the session cookie, or None."""
    user = getattr(request, "user", None)
    return user if isinstance(user, get_user_model()) and user.is_active else None
