"""Views of tenants, for operators with a session. API keys have no access."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.slo.actions import set_objective
from control_plane.billing.slo.serializers import LatencyObjectivesSerializer
from control_plane.console.administration import actions
from control_plane.console.administration.queries import (
    adapters_page,
    members_page,
    tenant_detail,
    tenant_json,
    tenants_page,
)
from control_plane.console.administration.serializers import (
    ConfirmationSerializer,
    CreatedTenantSerializer,
    NewTenantSerializer,
    OwnerInvitationSerializer,
    PageQuerySerializer,
    SuspensionSerializer,
    TenantAdapterPageSerializer,
    TenantDetailSerializer,
    TenantMemberPageSerializer,
    TenantNameSerializer,
    TenantPageSerializer,
    TenantSerializer,
    TenantsQuerySerializer,
)
from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, read_query, validated
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.confirmation import require_recent
from control_plane.identity.accounts.mail import is_configured
from control_plane.identity.members.invitations import invitation_link, invite
from control_plane.identity.members.serializers import CreatedInvitationSerializer, created_json
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Role

_SECRET = {"Cache-Control": "no-store"}


def _shown(tenant: Tenant) -> Response:
    return Response(TenantSerializer(tenant_json(tenant)).data)


class TenantsView(OperatorView):
    http_method_names = ["get", "post", "options"]

    @extend_schema("list_tenants", parameters=[TenantsQuerySerializer], responses=TenantPageSerializer)
    def get(self, request: Request) -> Response:
        """All tenants, a page at a time, with what each used in the last 30 days."""
        page = tenants_page(**read_query(TenantsQuerySerializer, request))
        return Response(TenantPageSerializer(asdict(page)).data)

    @extend_schema("create_tenant", request=NewTenantSerializer, responses={201: CreatedTenantSerializer} | CONFLICT)
    def post(self, request: Request) -> Response:
        """Make a tenant and invite its first owner."""
        tenant, invitation = actions.create_tenant(
            operator=self.operator, **validated(NewTenantSerializer, request.data)
        )
        link, mailed = invitation_link(invitation), is_configured()
        answer = {**TenantSerializer(tenant_json(tenant)).data, "link": link, "mailed": mailed}
        return Response(answer, status=201, headers=_SECRET)


class OneTenantView(OperatorView):
    http_method_names = ["get", "patch", "delete", "options"]

    @extend_schema("read_tenant", responses=TenantDetailSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read a tenant, its open invitations and objectives. Its audit log records that an operator did."""
        row = get_tenant(tenant)
        actions.record_visit(operator=self.operator, tenant=row)
        return Response(TenantDetailSerializer(tenant_detail(row)).data)

    @extend_schema("rename_tenant", request=TenantNameSerializer, responses={200: TenantSerializer} | CONFLICT)
    def patch(self, request: Request, tenant: str) -> Response:
        """Change the tenant's name for people. Its short name, in addresses, stays."""
        body = validated(TenantNameSerializer, request.data)
        return _shown(actions.rename_tenant(actor=self.actor, tenant=get_tenant(tenant), **body))

    @extend_schema("delete_tenant", parameters=[ConfirmationSerializer], responses={200: TenantSerializer} | CONFLICT)
    def delete(self, request: Request, tenant: str) -> Response:
        """Delete a tenant for good: its members leave, its keys are revoked, its texts deleted, its adapters archived.
        Its usage, statements and audit log stay, and its short name is never given again. What runs goes on to its
        end and is billed."""
        query = read_query(ConfirmationSerializer, request)
        return _shown(actions.delete_tenant(actor=self.actor, tenant=get_tenant(tenant), **query))


class SuspensionView(OperatorView):
    @extend_schema("suspend_tenant", request=SuspensionSerializer, responses={200: TenantSerializer} | CONFLICT)
    def put(self, request: Request, tenant: str) -> Response:
        """Refuse a tenant's keys with 403 within a second and let its members only read. Websockets are closed;
        requests that run go on to their end and are billed. Its adapters stay where they are."""
        body = validated(SuspensionSerializer, request.data)
        return _shown(actions.suspend_tenant(actor=self.actor, tenant=get_tenant(tenant), **body))

    @extend_schema("resume_tenant", request=None, responses={200: TenantSerializer} | CONFLICT)
    def delete(self, request: Request, tenant: str) -> Response:
        """End a tenant's suspension: keys and roles are what they were."""
        return _shown(actions.resume_tenant(actor=self.actor, tenant=get_tenant(tenant)))


class TenantMembersView(OperatorView):
    http_method_names = ["get", "options"]

    @extend_schema(
        "list_tenant_members", parameters=[PageQuerySerializer], responses={200: TenantMemberPageSerializer} | CONFLICT
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List a tenant's members and their roles, by their address."""
        query = read_query(PageQuerySerializer, request)
        page = members_page(get_tenant(tenant), **query)
        # Not `asdict`, which would copy model instances.
        return Response(TenantMemberPageSerializer({"results": page.results, "total": page.total}).data)


class MemberSecondFactorView(OperatorView):
    http_method_names = ["delete", "options"]

    @extend_schema("reset_second_factor", request=None, responses={204: None} | NOT_FOUND)
    def delete(self, request: Request, tenant: str, user_id: UUID) -> Response:
        """Remove the second factors of a member who lost them, and end their sessions. The password then signs in
        alone, so make sure that it is really them. Needs a recent confirmation of your own identity."""
        require_recent(request._request)
        actions.reset_second_factor(operator=self.operator, tenant=get_tenant(tenant), user_id=user_id)
        return Response(status=204)


class MemberIdentityView(OperatorView):
    http_method_names = ["delete", "options"]

    @extend_schema("unlink_identity", request=None, responses={204: None} | NOT_FOUND)
    def delete(self, request: Request, tenant: str, user_id: UUID, identity_id: int) -> Response:
        """Remove a member's link to the sign-in provider, and end their sessions. The next person whom the provider
        knows by their address is linked to the account, so make sure that it is really them. Needs a recent
        confirmation of your own identity."""
        require_recent(request._request)
        actions.unlink_identity(
            operator=self.operator, tenant=get_tenant(tenant), user_id=user_id, identity_id=identity_id
        )
        return Response(status=204)


class TenantAdaptersView(OperatorView):
    http_method_names = ["get", "options"]

    @extend_schema(
        "list_tenant_adapters",
        parameters=[PageQuerySerializer],
        responses={200: TenantAdapterPageSerializer} | CONFLICT,
    )
    def get(self, request: Request, tenant: str) -> Response:
        """A tenant's adapters by name, each with its newest version."""
        query = read_query(PageQuerySerializer, request)
        page = adapters_page(get_tenant(tenant), **query)
        return Response(TenantAdapterPageSerializer(asdict(page)).data)


class TenantInvitationsView(OperatorView):
    @extend_schema(
        "invite_to_tenant", request=OwnerInvitationSerializer, responses={201: CreatedInvitationSerializer} | CONFLICT
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Invite a person into a tenant, also as its owner."""
        body = validated(OwnerInvitationSerializer, request.data)
        acting = Principal.of_operator(actions.require_open(get_tenant(tenant)), self.operator)
        invitation = invite(acting=acting, email=body["email"], role=Role(body["role"]))
        return Response(created_json(invitation), status=201, headers=_SECRET)


class TenantObjectivesView(OperatorView):
    @extend_schema(
        "set_tenant_objectives",
        request=LatencyObjectivesSerializer,
        responses={200: LatencyObjectivesSerializer} | CONFLICT,
    )
    def put(self, request: Request, tenant: str) -> Response:
        """Set a tenant's latency objectives; one that is left out is lifted. In force within two seconds."""
        body = validated(LatencyObjectivesSerializer, request.data)
        acting = Principal.of_operator(actions.require_open(get_tenant(tenant)), self.operator)
        return Response(LatencyObjectivesSerializer(set_objective(acting=acting, **body)).data)
