from typing import Any

from rest_framework import serializers

from control_plane.adapters.registry.models import VersionState
from control_plane.billing.slo.serializers import LatencyObjectivesSerializer
from control_plane.console.administration.queries import SORTS, STATES
from control_plane.core.http.serializers import NameField
from control_plane.identity.members.serializers import InvitationSerializer, MemberSerializer
from control_plane.identity.tenants.models import SLUG
from control_plane.identity.tenants.roles import Role

MAX_ROWS = 200


class PageQuerySerializer(serializers.Serializer[Any]):
    search = serializers.CharField(max_length=120, required=False, default="", allow_blank=True)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, default=0)
    limit = serializers.IntegerField(min_value=1, max_value=MAX_ROWS, required=False, default=50)


class TenantsQuerySerializer(PageQuerySerializer):
    state = serializers.ChoiceField(
        choices=STATES,
        required=False,
        default="",
        allow_blank=True,
        help_text="State of the tenants; without it, all that are not deleted.",
    )
    sort = serializers.ChoiceField(choices=SORTS, required=False, default="name")


class RecentUsageSerializer(serializers.Serializer[Any]):
    """The usage of the last `days` (UTC)."""

    days = serializers.IntegerField()
    requests = serializers.IntegerField(
        help_text="Number of requests, however they ended, with those that reached no engine."
    )
    failed = serializers.IntegerField()
    refused = serializers.IntegerField()
    tokens = serializers.IntegerField()


class TenantSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    weight = serializers.FloatField()
    created_at = serializers.DateTimeField()
    suspended_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time since which the tenant's keys are refused and its members can only read; null: not suspended.",
    )
    suspended_for = serializers.CharField(allow_blank=True)
    deleted_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the deletion; null: the tenant is not deleted."
    )


class TenantRowSerializer(TenantSerializer):
    members = serializers.IntegerField()
    adapters = serializers.IntegerField(help_text="Number of adapters that are not archived.")
    keys = serializers.IntegerField(help_text="Number of API keys that are not revoked.")
    usage = RecentUsageSerializer()


class TenantPageSerializer(serializers.Serializer[Any]):
    results = TenantRowSerializer(many=True)
    total = serializers.IntegerField()


class TenantDetailSerializer(TenantRowSerializer):
    objectives = LatencyObjectivesSerializer()
    invitations = InvitationSerializer(many=True, help_text="Open invitations, newest first.")
    invitation_count = serializers.IntegerField(help_text="Number of open invitations.")
    versions = serializers.DictField(child=serializers.IntegerField(), help_text="Number of versions in each state.")


class LinkedIdentitySerializer(serializers.Serializer[Any]):
    """A person as the sign-in provider knows them."""

    id = serializers.IntegerField()
    issuer = serializers.CharField(help_text="Address of the provider.")
    subject = serializers.CharField(help_text="Identifier of the person at the provider.")
    created_at = serializers.DateTimeField(help_text="Time of the first sign-in by it.")


class TenantMemberSerializer(MemberSerializer):
    identities = LinkedIdentitySerializer(source="user.identities", many=True)


class TenantMemberPageSerializer(serializers.Serializer[Any]):
    results = TenantMemberSerializer(many=True)
    total = serializers.IntegerField()


class NewTenantSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField(
        max_length=48, validators=[SLUG], help_text="Short name in addresses, which never changes."
    )
    name = NameField(max_length=120)
    owner = serializers.EmailField(max_length=254, help_text="Address of the person who is invited as the first owner.")


class CreatedTenantSerializer(TenantSerializer):
    link = serializers.CharField(help_text="Invitation link of the owner, shown only once.")
    mailed = serializers.BooleanField(help_text="Whether the link is mailed to the owner, which needs a mail server.")


class TenantNameSerializer(serializers.Serializer[Any]):
    name = NameField(max_length=120)


class SuspensionSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=500, help_text="Reason that members and callers of the tenant see.")


class ConfirmationSerializer(serializers.Serializer[Any]):
    confirm = serializers.CharField(
        max_length=48,
        required=False,
        default="",
        allow_blank=True,
        help_text="Short name of the tenant, as a confirmation.",
    )


class OwnerInvitationSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class TenantAdapterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField(
        allow_null=True, help_text="Number of the newest version; null: the adapter has none."
    )
    state = serializers.ChoiceField(
        choices=VersionState.choices,
        allow_null=True,
        help_text="State of the newest version; null: the adapter has none.",
    )
    bytes = serializers.IntegerField()
    rank = serializers.IntegerField(
        allow_null=True, help_text="LoRA rank of the newest version; null: the adapter has none."
    )


class TenantAdapterPageSerializer(serializers.Serializer[Any]):
    results = TenantAdapterSerializer(many=True)
    total = serializers.IntegerField()
