"""The base of every view under /api/operator/: for people who run the installation, across tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rest_framework.request import Request

from control_plane.core.errors import ForbiddenError, NotFoundError
from control_plane.core.http.access import Access
from control_plane.core.http.api_view import ApiView
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import session_user
from control_plane.identity.access.tenant_access import NotAuthenticatedError
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability

if TYPE_CHECKING:
    from control_plane.identity.accounts.models import User


class NotOperatorError(ForbiddenError):
    def __init__(self) -> None:
        super().__init__(
            "Only operators of the installation may do this.",
            "Ask an operator; `manage.py make_operator` makes one.",
            code="operator_only",
        )


class OperatorView(ApiView):
    """A view for operators: 401 without a session, 403 for every other caller, before the handler runs.

    API keys belong to one tenant and are always refused.
    """

    access = Access.OPERATOR
    permission_classes = ()
    tags: ClassVar = ["operator"]
    needs: ClassVar[dict[str, Capability]] = dict.fromkeys(
        ("GET", "POST", "PUT", "PATCH", "DELETE"), Capability.OPERATE
    )
    operator: User

    def admit_caller(self, request: Request, **kwargs: Any) -> None:
        user = session_user(request._request)
        if user is None:
            raise NotOperatorError if request.auth is not None else NotAuthenticatedError
        if not user.is_operator:
            raise NotOperatorError
        self.operator = user

    @property
    def actor(self) -> Actor:
        return Actor.of(self.operator)


def get_tenant(slug: str) -> Tenant:
    """Return the tenant of a short name. Raises NotFoundError (404)."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise NotFoundError(
            f'There is no tenant "{slug}".',
            "GET /api/operator/tenants lists them.",
            code="tenant_not_found",
            param="tenant",
        )
    return tenant
