"""Views of engine hosts, for tenants and operators."""

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry.queries import get_version
from control_plane.core.http.serializers import CONFLICT, read_query, validated
from control_plane.fleet.hosts.actions import restart_host, set_service
from control_plane.fleet.hosts.api.cold_starts import tiers_of
from control_plane.fleet.hosts.api.page_maps import pages_for, pages_for_operator
from control_plane.fleet.hosts.api.queries import hosts_for, hosts_for_operator
from control_plane.fleet.hosts.api.serializers import (
    HostPagesSerializer,
    HostSerializer,
    OperatorHostSerializer,
    PageMapQuerySerializer,
    RestartSerializer,
    VersionTierSerializer,
    WantedServiceSerializer,
)
from control_plane.fleet.hosts.models import HostService
from control_plane.identity.access.operator import OperatorView
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["hosts"])


class HostsView(TenantView):
    @operation("list_hosts", responses=HostSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """Engine hosts with load, memory pages, and which of the tenant's adapters they hold."""
        return Response(hosts_for(self.principal.tenant))


class HostPagesView(TenantView):
    @operation("read_host_pages", parameters=[PageMapQuerySerializer], responses=HostPagesSerializer)
    def get(self, request: Request, tenant: str, host_name: str) -> Response:
        """The owner of each page of a host's pool: the tenant's own by adapter, others' only as taken."""
        query = read_query(PageMapQuerySerializer, request)
        return Response(pages_for(self.principal.tenant, host_name, query["ago_s"]))


class OperatorHostPagesView(OperatorView):
    @extend_schema("read_all_host_pages", parameters=[PageMapQuerySerializer], responses=HostPagesSerializer)
    def get(self, request: Request, host_name: str) -> Response:
        """The owner of each page of a host's pool, of all tenants."""
        query = read_query(PageMapQuerySerializer, request)
        return Response(pages_for_operator(host_name, query["ago_s"]))


class OperatorHostsView(OperatorView):
    @extend_schema("list_all_hosts", responses=OperatorHostSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Engine hosts with the adapters of all tenants."""
        return Response(hosts_for_operator())


class OperatorHostServiceView(OperatorView):
    @extend_schema("set_host_service", request=WantedServiceSerializer, responses=WantedServiceSerializer)
    def put(self, request: Request, host_name: str) -> Response:
        """Cordon a host (nothing new goes there), drain it (its engine takes nothing from anybody), or end either.
        Requests that run there go on to their end."""
        body = validated(WantedServiceSerializer, request.data)
        host = set_service(actor=self.actor, name=host_name, service=HostService(body["service"]))
        return Response(WantedServiceSerializer({"service": host.service}).data)


class OperatorHostRestartView(OperatorView):
    @extend_schema("restart_host", request=RestartSerializer, responses={202: RestartSerializer} | CONFLICT)
    def post(self, request: Request, host_name: str) -> Response:
        """Have a host's engine drain and end, to be started anew by what supervises it. `GET hosts` says how far it
        is. Answers that were cut off go on at other hosts, or when it is back."""
        body = validated(RestartSerializer, request.data)
        host = restart_host(actor=self.actor, name=host_name, wait_s=body["wait_s"])
        return Response(RestartSerializer({"wait_s": host.restart_wait_s}).data, status=202)


class TiersView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW}

    @operation("read_version_tiers", responses=VersionTierSerializer(many=True), tags=["adapters"])
    def get(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Read on which tier of each host the version is, and how long a request would wait for it from each."""
        return Response(tiers_of(get_version(self.principal.tenant, name, number)))
