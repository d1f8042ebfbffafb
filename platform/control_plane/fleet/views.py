"""Engine hosts as a tenant sees them."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.fleet.presentation import hosts_for
from control_plane.fleet.serializers import HostSerializer
from control_plane.tenants.views import TenantView


class HostsView(TenantView):
    @extend_schema(operation_id="list_hosts", responses=HostSerializer(many=True), tags=["hosts"])
    def get(self, request: Request, tenant: str) -> Response:
        """Engine hosts with load, memory pages and resident adapters."""
        return Response(hosts_for(self.principal.tenant))
