"""Engine hosts as a tenant and as operators see them."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.operator import OperatorView
from control_plane.access.views import TenantView
from control_plane.placements.host_serializers import HostSerializer, OperatorHostSerializer
from control_plane.placements.hosts import hosts_for, hosts_for_operator


class HostsView(TenantView):
    @extend_schema(operation_id="list_hosts", responses=HostSerializer(many=True), tags=["hosts"])
    def get(self, request: Request, tenant: str) -> Response:
        """Engine hosts with load, memory pages, and which of the tenant's adapters they hold."""
        return Response(hosts_for(self.principal.tenant))


class OperatorHostsView(OperatorView):
    @extend_schema(operation_id="list_all_hosts", responses=OperatorHostSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """Engine hosts with the adapters of all tenants."""
        return Response(hosts_for_operator())
