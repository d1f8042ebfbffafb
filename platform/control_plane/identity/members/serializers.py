from typing import Any

from rest_framework import serializers

from control_plane.core.http.lists import ListQuerySerializer
from control_plane.core.http.serializers import AccountField, NameField
from control_plane.identity.accounts.mail import is_configured
from control_plane.identity.members.invitations import invitation_link
from control_plane.identity.members.queries import MemberSort
from control_plane.identity.tenants.models import Invitation
from control_plane.identity.tenants.roles import Role


class MemberSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="user.id")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.ChoiceField(choices=Role.choices)
    second_factor = serializers.BooleanField(
        source="user.has_second_factor", help_text="Whether the person signs in with a second factor."
    )
    joined_at = serializers.DateTimeField(source="created_at")
    address_proven = serializers.BooleanField(
        source="user.address_proven",
        help_text="False for an account made from an invitation, until its holder used a reset link or the provider.",
    )


class MemberListQuerySerializer(ListQuerySerializer):
    sort = serializers.ChoiceField(
        choices=[sign + column for column in MemberSort.values for sign in ("", "-")],
        required=False,
        default=MemberSort.EMAIL.value,
        help_text="Order of the rows; by role, the roles with the most rights come first.",
    )


class NewRoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=Role.choices)


class InvitationSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.choices)
    invited_by = AccountField("invited_by", "invited the person")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class CreatedInvitationSerializer(InvitationSerializer):
    link = serializers.CharField(help_text="Link for the invited person alone, shown only once.")
    mailed = serializers.BooleanField(
        help_text="Whether the link is mailed to the person; without a mail server, pass it on yourself."
    )


def created_json(invitation: Invitation) -> dict[str, Any]:
    """Return a new invitation with its link, and whether the link is mailed."""
    return {**InvitationSerializer(invitation).data, "link": invitation_link(invitation), "mailed": is_configured()}


class NewInvitationSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class InvitationTokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(max_length=200)


class InvitationDetailsSerializer(serializers.Serializer[Any]):
    """An invitation as its recipient sees it before accepting."""

    tenant = serializers.CharField(source="tenant.slug")
    tenant_name = serializers.CharField(source="tenant.name")
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.choices)
    invited_by = AccountField("invited_by", "invited the person")
    expires_at = serializers.DateTimeField()
    has_account = serializers.BooleanField(
        help_text="Whether the person has an account and signs in, instead of choosing a password."
    )


class AcceptInvitationSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(max_length=200)
    name = NameField(max_length=120, required=False, default="", allow_blank=True)
    password = serializers.CharField(
        max_length=1024, required=False, trim_whitespace=False, write_only=True, help_text="Password of a new account."
    )
