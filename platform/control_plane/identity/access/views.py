"""The base of every view under /api/tenants/{tenant}/."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request

from control_plane.core.http.access import Access
from control_plane.core.http.api_view import ApiView
from control_plane.identity.access.principal import Principal, session_user
from control_plane.identity.access.tenant_access import enter
from control_plane.identity.tenants.roles import Capability


class TenantView(ApiView):
    """A view of a tenant: 401 without a caller, 404 outside the tenant, 403 without the capability.

    `needs` maps each method to the capability it requires; a method that is not in it does not exist.
    """

    access = Access.TENANT
    permission_classes = ()
    needs: ClassVar[dict[str, Capability]] = {"GET": Capability.VIEW}
    principal: Principal

    def admit_caller(self, request: Request, **kwargs: Any) -> None:
        key_principal = request.auth if isinstance(request.auth, Principal) else None
        user = None if key_principal else session_user(request._request)
        self.principal = enter(kwargs["tenant"], user=user, key_principal=key_principal)
        method = request.method or ""
        if method in self.needs:
            self.principal.require(self.needs[method])
