"""Views of a version's dtype on hosts, and of staging it again."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry import queries
from control_plane.adapters.registry.serializers import AdapterDtypeSerializer, VersionSerializer
from control_plane.adapters.registry.views import VersionView
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.fleet.placements import actions
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["adapters"])


class AdapterDtypeView(VersionView):
    http_method_names = ["put", "options"]
    needs: ClassVar = {"PUT": Capability.WRITE_ADAPTERS}

    @operation("set_adapter_dtype", request=AdapterDtypeSerializer, responses={200: VersionSerializer} | CONFLICT)
    def put(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Set the dtype in which hosts with adapters in FP8 serve this version. Requests that run keep theirs."""
        version = queries.get_version(self.principal.tenant, name, number)
        dtype = validated(AdapterDtypeSerializer, request.data)["adapter_dtype"]
        actions.set_adapter_dtype(acting=self.principal, version=version, dtype=dtype)
        return self.show(name, number)


class RestageView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("restage_version", request=None, responses={202: VersionSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Bring this version to every host again."""
        version = queries.get_version(self.principal.tenant, name, number)
        actions.restage_version(acting=self.principal, version=version)
        return self.show(name, number, status=202)
