"""API keys over HTTP. Only people manage keys: no key can make or revoke another."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.errors import NotFoundError
from control_plane.http.serializers import ErrorResponseSerializer
from control_plane.keys import actions
from control_plane.keys.models import ApiKey
from control_plane.keys.serializers import ApiKeySerializer, CreatedApiKeySerializer, NewApiKeySerializer
from control_plane.tenants.roles import Capability
from control_plane.tenants.views import TenantView


class KeysView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_KEYS}

    @extend_schema(operation_id="list_keys", responses=ApiKeySerializer(many=True), tags=["keys"])
    def get(self, request: Request, tenant: str) -> Response:
        """All keys of the tenant, newest first, revoked ones too. Secrets are never shown again."""
        keys = ApiKey.objects.for_tenant(self.principal.tenant).select_related("created_by")
        return Response(ApiKeySerializer(keys, many=True).data)

    @extend_schema(
        operation_id="create_key",
        request=NewApiKeySerializer,
        responses={201: CreatedApiKeySerializer, 400: ErrorResponseSerializer},
        tags=["keys"],
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Make a key. The answer holds its secret, this once."""
        body = NewApiKeySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        key, text = actions.create_key(acting=self.principal, **body.validated_data)
        response = Response({**ApiKeySerializer(key).data, "secret": text}, status=201)
        response["Cache-Control"] = "no-store"
        return response


class KeyView(TenantView):
    http_method_names = ["delete", "options"]
    needs: ClassVar = {"DELETE": Capability.WRITE_KEYS}

    @extend_schema(operation_id="revoke_key", responses={204: None, 404: ErrorResponseSerializer}, tags=["keys"])
    def delete(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Revoke a key. It stops working at once."""
        key = ApiKey.objects.for_tenant(self.principal.tenant).filter(pk=key_id).first()
        if key is None:
            raise NotFoundError(
                f"There is no key {key_id} in this tenant.", "GET keys lists them.", code="key_not_found", param="id"
            )
        actions.revoke_key(acting=self.principal, key=key)
        return Response(status=204)
