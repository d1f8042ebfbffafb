"""API keys over HTTP. Only people manage keys: no key can create or revoke another."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.lists import TOTAL, list_response
from control_plane.core.http.serializers import CONFLICT, read_query, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.keys import actions
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.keys.queries import find_keys, get_key
from control_plane.identity.keys.serializers import (
    ApiKeySerializer,
    ChangeApiKeySerializer,
    CreatedApiKeySerializer,
    KeyListQuerySerializer,
    NewApiKeySerializer,
    RotateApiKeySerializer,
)
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["keys"])


class KeysView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_KEYS}

    @operation("list_keys", parameters=[KeyListQuerySerializer, TOTAL], responses=ApiKeySerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the tenant's keys, by default newest first and with revoked ones, all or a part. Secrets are never shown
        again."""
        query = read_query(KeyListQuerySerializer, request)
        only = {name: query[name] for name in ("state", "scope", "sort")}
        keys = find_keys(self.principal.tenant, query["search"], **only)
        return list_response(ApiKeySerializer, keys, query)

    @operation("create_key", request=NewApiKeySerializer, responses={201: CreatedApiKeySerializer})
    def post(self, request: Request, tenant: str) -> Response:
        """Create a key. The answer contains its secret, this once."""
        body = validated(NewApiKeySerializer, request.data)
        return _with_secret(*actions.create_key(acting=self.principal, **body), status=201)


class KeyView(TenantView):
    needs: ClassVar = {"PATCH": Capability.WRITE_KEYS, "DELETE": Capability.WRITE_KEYS}

    @operation("change_key", request=ChangeApiKeySerializer, responses={200: ApiKeySerializer} | CONFLICT)
    def patch(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Change a key's name, scopes or expiry. Its secret stays valid."""
        key = get_key(self.principal.tenant, key_id)
        body = validated(ChangeApiKeySerializer, request.data)
        now = {"name": key.name, "scopes": key.scopes, "expires_at": key.expires_at}
        changed = actions.change_key(acting=self.principal, key=key, **{**now, **body})
        return Response(ApiKeySerializer(changed).data)

    @operation("revoke_key", responses={204: None})
    def delete(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Revoke a key. It stops working at once, and its sockets close."""
        actions.revoke_key(acting=self.principal, key=get_key(self.principal.tenant, key_id))
        return Response(status=204)


class RotationView(TenantView):
    needs: ClassVar = {"POST": Capability.WRITE_KEYS}

    @operation("rotate_key", request=RotateApiKeySerializer, responses={200: CreatedApiKeySerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Give a key a new secret, shown this once. The old one is accepted for `grace_s` more seconds."""
        key = get_key(self.principal.tenant, key_id)
        body = validated(RotateApiKeySerializer, request.data)
        grace = timedelta(seconds=body["grace_s"])
        return _with_secret(*actions.rotate_key(acting=self.principal, key=key, grace=grace), status=200)


def _with_secret(key: ApiKey, text: str, *, status: int) -> Response:
    answer = {**ApiKeySerializer(key).data, "secret": text}
    return Response(answer, status=status, headers={"Cache-Control": "no-store"})
