"""The base of every view under /api/tenants/{tenant}/, and the tenant's members."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from control_plane.accounts.auth import session_user
from control_plane.principal import Principal
from control_plane.tenants.access import enter
from control_plane.tenants.models import Membership
from control_plane.tenants.roles import Capability
from control_plane.tenants.serializers import MemberSerializer


class TenantView(APIView):
    """Resolves the caller before the handler runs: 401 without one, 404 outside the tenant, 403 without the right.

    `needs` maps each method to the capability it asks for; a method that is missing there does not exist.
    """

    permission_classes = ()
    needs: ClassVar[dict[str, Capability]] = {"GET": Capability.VIEW}
    principal: Principal

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key_principal = request.auth if isinstance(request.auth, Principal) else None
        user = None if key_principal else session_user(request._request)
        self.principal = enter(kwargs["tenant"], user=user, key_principal=key_principal)
        method = request.method or ""
        if method in self.needs:
            self.principal.require(self.needs[method])


class MembersView(TenantView):
    @extend_schema(operation_id="list_members", responses=MemberSerializer(many=True), tags=["members"])
    def get(self, request: Request, tenant: str) -> Response:
        """People of this tenant and their roles."""
        members = Membership.objects.for_tenant(self.principal.tenant).select_related("user").order_by("user__email")
        return Response(MemberSerializer(list(members), many=True).data)
