"""Views of a version's tiers, and of staging it again."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry import queries
from control_plane.adapters.registry.serializers import VersionSerializer
from control_plane.adapters.registry.views import VersionView
from control_plane.core.http.serializers import ErrorResponseSerializer
from control_plane.fleet.placements import actions
from control_plane.identity.tenants.roles import Capability


class RestageView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @extend_schema(
        operation_id="restage_version",
        request=None,
        responses={202: VersionSerializer, 409: ErrorResponseSerializer},
        tags=["adapters"],
    )
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Bring this version to every host again."""
        version = queries.get_version(self.principal.tenant, name, number)
        actions.restage_version(acting=self.principal, version=version)
        return self.show(name, number, status=202)
