"""API settings over HTTP."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.serializers import validated
from control_plane.gateway.api_settings.actions import set_api_settings
from control_plane.gateway.api_settings.queries import api_settings_of
from control_plane.gateway.api_settings.serializers import ApiSettingsSerializer
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["keys"])


class ApiSettingsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TENANT}

    @operation("read_api_settings", responses=ApiSettingsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Return how the inference API treats unknown fields and stored responses of this tenant."""
        return Response(ApiSettingsSerializer(api_settings_of(self.principal.tenant)).data)

    @operation("set_api_settings", request=ApiSettingsSerializer, responses=ApiSettingsSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set both. The change applies within a second; stored responses remain until they expire."""
        body = validated(ApiSettingsSerializer, request.data)
        return Response(ApiSettingsSerializer(set_api_settings(acting=self.principal, **body)).data)
