"""Imports over HTTP, and a tenant's credentials for them: a token for the Hub, access keys of buckets."""

from __future__ import annotations

from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.imports import actions as imports
from control_plane.adapters.imports import follows
from control_plane.adapters.imports.hub_policy import latest_hub_models, policy_of
from control_plane.adapters.registry import queries
from control_plane.adapters.registry.serializers import (
    BucketCredentialsSerializer,
    HubFollowSerializer,
    HubModelsSerializer,
    HubTokenSerializer,
    NewImportSerializer,
    UploadSerializer,
)
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["uploads"])


class ImportsView(TenantView):
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("create_import", request=NewImportSerializer, responses={202: UploadSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Import an adapter from the Hugging Face Hub, a bucket or an https address, as an upload like any other."""
        form = validated(NewImportSerializer, request.data)
        upload = imports.begin_import(acting=self.principal, **form)
        return Response(UploadSerializer(queries.get_upload(self.principal.tenant, upload.pk)).data, status=202)


class HubTokenView(TenantView):
    needs: ClassVar = {
        "GET": Capability.VIEW,
        "PUT": Capability.WRITE_ADAPTERS,
        "DELETE": Capability.WRITE_ADAPTERS,
    }

    @operation("read_hub_token", responses=HubTokenSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read if this tenant has a token for the Hub. The token itself is never shown."""
        return Response({"set": imports.has_hub_token(self.principal.tenant)})

    @operation("set_hub_token", request=HubTokenSerializer, responses=HubTokenSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set the token with which private repositories are imported. It is stored encrypted."""
        imports.set_hub_token(acting=self.principal, token=validated(HubTokenSerializer, request.data)["token"])
        return Response({"set": True})

    @operation("remove_hub_token", responses={204: None})
    def delete(self, request: Request, tenant: str) -> Response:
        """Remove the tenant's token for private repositories."""
        imports.remove_hub_token(acting=self.principal)
        return Response(status=204)


class BucketsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_ADAPTERS}

    @operation("list_bucket_credentials", responses=BucketCredentialsSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the buckets that this tenant has credentials for. The keys are never shown."""
        return Response(BucketCredentialsSerializer(imports.buckets_of(self.principal.tenant), many=True).data)

    @operation(
        "set_bucket_credentials",
        request=BucketCredentialsSerializer,
        responses={201: BucketCredentialsSerializer} | CONFLICT,
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Set the credentials with which a bucket is imported from. They are stored encrypted."""
        form = validated(BucketCredentialsSerializer, request.data)
        kept = imports.set_bucket_credentials(acting=self.principal, **form)
        return Response(BucketCredentialsSerializer(kept).data, status=201)


class BucketView(TenantView):
    needs: ClassVar = {"DELETE": Capability.WRITE_ADAPTERS}

    @operation("remove_bucket_credentials", responses={204: None})
    def delete(self, request: Request, tenant: str, bucket: str) -> Response:
        """Remove the credentials of a bucket."""
        imports.remove_bucket_credentials(acting=self.principal, bucket=bucket)
        return Response(status=204)


class HubModelsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TENANT}

    @operation("read_hub_models", responses=HubModelsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read if requests may name repositories of the Hub as their model, and those imported for requests."""
        return self.show()

    @operation("set_hub_models", request=HubModelsSerializer, responses=HubModelsSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Let requests name repositories of the Hub, of all organisations or of some, or end that."""
        imports.set_hub_models(acting=self.principal, **validated(HubModelsSerializer, request.data))
        return self.show()

    def show(self) -> Response:
        scope = self.principal.tenant
        policy = policy_of(scope)
        shown = {
            "enabled": policy.enabled,
            "organizations": policy.organizations,
            "models": latest_hub_models(scope),
        }
        return Response(HubModelsSerializer(shown).data)


class FollowsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_ADAPTERS}

    @operation("list_follows", responses=HubFollowSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the branches that adapters follow, with the problem of the last check or import."""
        return Response(HubFollowSerializer(follows.follows_with_problems(self.principal.tenant), many=True).data)

    @operation("add_follow", request=HubFollowSerializer, responses={201: HubFollowSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Have an adapter follow a branch: imported soon, and as a new version whenever the branch has moved."""
        form = validated(HubFollowSerializer, request.data)
        made = follows.add_follow(acting=self.principal, name=form["adapter_name"], source=form["source"])
        return Response(HubFollowSerializer(made).data, status=201)


class FollowView(TenantView):
    needs: ClassVar = {"DELETE": Capability.WRITE_ADAPTERS}

    @operation("remove_follow", responses={204: None})
    def delete(self, request: Request, tenant: str, follow_id: UUID) -> Response:
        """Stop following a branch. The versions stay."""
        follows.remove_follow(acting=self.principal, follow_id=follow_id)
        return Response(status=204)
