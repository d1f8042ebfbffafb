from typing import Any

from rest_framework import serializers

from control_plane.core.http.serializers import MomentField
from control_plane.identity.access.actor import ActorKind

MAX_ROWS = 200


class AuditActorSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=ActorKind.choices, source="actor_kind")
    id = serializers.CharField(source="actor_id")
    label = serializers.CharField(source="actor_label")  # type: ignore[assignment]  # DRF has an attribute of this name


class AuditTargetSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(source="target_kind")
    id = serializers.CharField(source="target_id")
    label = serializers.CharField(source="target_label")  # type: ignore[assignment]


class AuditEventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    tenant = serializers.CharField(
        source="tenant.slug",
        default=None,
        allow_null=True,
        help_text="Short name of the tenant; null: the event belongs to none.",
    )
    action = serializers.CharField(help_text='Action as "noun.verb", e.g. "version.promote".')
    actor = AuditActorSerializer(source="*")
    target = AuditTargetSerializer(source="*")
    detail = serializers.DictField()
    request_id = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()


class AuditPageSerializer(serializers.Serializer[Any]):
    events = AuditEventSerializer(many=True)
    next = serializers.IntegerField(
        allow_null=True, help_text="Value of `before` for the next, older page; null: there is none."
    )


class AuditMatchSerializer(serializers.Serializer[Any]):
    action = serializers.CharField(
        required=False,
        max_length=64,
        allow_blank=True,
        default="",
        help_text='Action such as "key.create", or "key" for all actions on keys.',
    )
    actor = serializers.CharField(
        required=False,
        max_length=254,
        allow_blank=True,
        default="",
        help_text="Part of the name or address of the person or key that acted.",
    )
    target = serializers.CharField(
        required=False, max_length=200, allow_blank=True, default="", help_text="Part of the subject's name, or its id."
    )
    since = MomentField(required=False, default=None, help_text="Earliest time of the events, included.")
    until = MomentField(required=False, default=None, help_text="Time before which the events lie.")


class _OfAnyTenant(serializers.Serializer[Any]):
    tenant = serializers.CharField(
        required=False,
        max_length=48,
        allow_blank=True,
        default="",
        help_text='Short name of a tenant; "-" for events that belong to none.',
    )


class _Paged(serializers.Serializer[Any]):
    before = serializers.IntegerField(required=False, default=None, min_value=1)
    size = serializers.IntegerField(required=False, default=50, min_value=1, max_value=MAX_ROWS)


class AuditFiltersSerializer(_Paged, AuditMatchSerializer):
    """The filters of one page of a tenant's log."""


class OperatorAuditMatchSerializer(_OfAnyTenant, AuditMatchSerializer):
    """The filters of the log of all tenants."""


class OperatorAuditFiltersSerializer(_Paged, OperatorAuditMatchSerializer):
    """The filters of one page of the log of all tenants."""
