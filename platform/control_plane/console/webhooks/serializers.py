from typing import Any

from rest_framework import serializers

from control_plane.console.webhooks.models import DeliveryState, EventType
from control_plane.core.http.serializers import AccountField


class WebhookSettingsSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=500, help_text="Address of the endpoint: https only, at a public address.")
    description = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=EventType.choices),
        required=False,
        default=list,
        max_length=len(EventType.values),
        help_text="Types of events to send; empty = all.",
    )
    active = serializers.BooleanField(required=False, default=True)


class WebhookSerializer(WebhookSettingsSerializer):
    id = serializers.UUIDField()
    failures = serializers.IntegerField(help_text="Number of failed attempts in a row.")
    rests_until = serializers.DateTimeField(
        allow_null=True,
        help_text="Time before which nothing is sent, after a failure or a slow answer; null: no pause.",
    )
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "added the webhook")


class WebhookWithSecretSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Secret that signs the messages, shown only once.")


class DeliveryAttemptSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    duration_ms = serializers.IntegerField()
    status = serializers.IntegerField(
        allow_null=True, help_text="HTTP status of the answer; null: there was no answer, see `error`."
    )
    error = serializers.CharField(allow_blank=True)


class DeliverySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    event = serializers.UUIDField(source="event_id")
    type = serializers.ChoiceField(source="event.type", choices=EventType.choices)
    payload = serializers.JSONField(source="event.data", help_text="The message's `data`.")
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    next_attempt_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the endpoint accepted the message; null: it did not."
    )
    created_at = serializers.DateTimeField()
    log = DeliveryAttemptSerializer(many=True)
