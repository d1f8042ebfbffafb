"""Members of a tenant and open invitations."""

from __future__ import annotations

from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.errors import NotFoundError
from control_plane.core.http.lists import TOTAL, ListQuerySerializer, list_response
from control_plane.core.http.serializers import CONFLICT, read_query, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.accounts.attempts import MAILS, count_account
from control_plane.identity.members import invitations, memberships
from control_plane.identity.members.queries import find_invitations, find_members
from control_plane.identity.members.serializers import (
    CreatedInvitationSerializer,
    InvitationSerializer,
    MemberListQuerySerializer,
    MemberSerializer,
    NewInvitationSerializer,
    NewRoleSerializer,
    created_json,
)
from control_plane.identity.tenants.models import Invitation
from control_plane.identity.tenants.roles import Capability, Role

operation = partial(extend_schema, tags=["members"])


class MembersView(TenantView):
    @operation("list_members", parameters=[MemberListQuerySerializer, TOTAL], responses=MemberSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the tenant's members and their roles, all or a part."""
        query = read_query(MemberListQuerySerializer, request)
        members = find_members(self.principal.tenant, query["search"], query["sort"])
        return list_response(MemberSerializer, members, query)


class MemberView(TenantView):
    needs: ClassVar = {"PATCH": Capability.WRITE_MEMBERS, "DELETE": Capability.WRITE_MEMBERS}

    @operation("change_role", request=NewRoleSerializer, responses={200: MemberSerializer} | CONFLICT)
    def patch(self, request: Request, tenant: str, user_id: UUID) -> Response:
        """Give a member another role, which applies from their next request on."""
        body = validated(NewRoleSerializer, request.data)
        role = Role(body["role"])
        changed = memberships.change_role(acting=self.principal, user_id=user_id, role=role)
        return Response(MemberSerializer(changed).data)

    @operation("remove_member", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, user_id: UUID) -> Response:
        """Remove a member. Their open sockets close, their open invitations end; keys that they created stay."""
        memberships.remove_member(acting=self.principal, user_id=user_id)
        return Response(status=204)


class MembershipView(TenantView):
    needs: ClassVar = {"DELETE": Capability.BE_MEMBER}

    @operation("leave_tenant", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str) -> Response:
        """Remove the caller from the tenant's members."""
        memberships.leave_tenant(acting=self.principal)
        return Response(status=204)


class InvitationsView(TenantView):
    needs: ClassVar = {"GET": Capability.WRITE_MEMBERS, "POST": Capability.WRITE_MEMBERS}

    @operation("list_invitations", parameters=[ListQuerySerializer, TOTAL], responses=InvitationSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the invitations that are not accepted or revoked, expired ones included, newest first, all or a part."""
        query = read_query(ListQuerySerializer, request)
        invited = find_invitations(self.principal.tenant, query["search"])
        return list_response(InvitationSerializer, invited, query)

    @operation("invite", request=NewInvitationSerializer, responses={201: CreatedInvitationSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Invite a person by e-mail. The answer contains the link, this once."""
        body = validated(NewInvitationSerializer, request.data)
        count_account("mail", body["email"], MAILS)
        invitation = invitations.invite(acting=self.principal, email=body["email"], role=Role(body["role"]))
        return Response(created_json(invitation), status=201, headers={"Cache-Control": "no-store"})


class InvitationView(TenantView):
    needs: ClassVar = {"DELETE": Capability.WRITE_MEMBERS}

    @operation("revoke_invitation", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, invitation_id: UUID) -> Response:
        """Revoke an invitation. Its link stops working."""
        invitation = Invitation.objects.for_tenant(self.principal.tenant).filter(pk=invitation_id).first()
        if invitation is None:
            raise NotFoundError(
                "There is no such invitation.", "GET invitations lists them.", code="invitation_not_found", param="id"
            )
        invitations.revoke_invitation(acting=self.principal, invitation=invitation)
        return Response(status=204)
