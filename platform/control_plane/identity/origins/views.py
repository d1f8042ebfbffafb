"""Allowed origins over HTTP."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.serializers import validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.origins.actions import set_origins
from control_plane.identity.origins.queries import origins_of
from control_plane.identity.origins.serializers import AllowedOriginsSerializer
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["keys"])


class OriginsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TENANT}

    @operation("read_allowed_origins", responses=AllowedOriginsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read the origins of web pages that may call inference with this tenant's keys."""
        return Response({"origins": origins_of(self.principal.tenant)})

    @operation("set_allowed_origins", request=AllowedOriginsSerializer, responses=AllowedOriginsSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Allow exactly these origins, within a second.

        Visitors of a page can read its key: set limits for that key.
        """
        body = validated(AllowedOriginsSerializer, request.data)
        return Response({"origins": set_origins(acting=self.principal, **body)})
