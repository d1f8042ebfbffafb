"""Canaries over HTTP."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.canaries import judging
from control_plane.adapters.canaries.serializers import CanaryComparisonSerializer, CanaryTargetSerializer
from control_plane.adapters.registry import aliases, queries
from control_plane.adapters.registry.serializers import AdapterSerializer
from control_plane.adapters.registry.views import AliasView
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["adapters"])


class CanaryView(AliasView):
    needs: ClassVar = {
        "GET": Capability.VIEW,
        "PUT": Capability.WRITE_ADAPTERS,
        "DELETE": Capability.WRITE_ADAPTERS,
    }

    @operation("read_canary", responses=CanaryComparisonSerializer)
    def get(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """Compare a canary with the alias's regular version."""
        return Response(CanaryComparisonSerializer(judging.compare(self.principal.tenant, name, alias)).data)

    @operation("set_canary", request=CanaryTargetSerializer, responses={200: AdapterSerializer} | CONFLICT)
    def put(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """Give a version a share of the alias's requests. The canary ends by itself if it performs worse."""
        form = validated(CanaryTargetSerializer, request.data)
        version = queries.get_version(self.principal.tenant, name, form["version"])
        percent = form["percent"]
        aliases.start_canary(acting=self.principal, version=version, name=alias, percent=percent)
        return self.show(name)

    @operation("stop_canary", responses={204: None})
    def delete(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """End the canary: all requests go to the alias's regular version again."""
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        aliases.stop_canary(acting=self.principal, adapter=adapter, name=alias)
        return Response(status=204)
