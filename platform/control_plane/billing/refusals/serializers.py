from typing import Any

from rest_framework import serializers

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.billing.usage.serializers import TimeRangeSerializer


class RefusalSerializer(serializers.Serializer[Any]):
    """Refusals of one kind within one minute."""

    id = serializers.IntegerField()
    minute = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    count = serializers.IntegerField()
    status = serializers.IntegerField(help_text="HTTP status code of the response.")
    code = serializers.CharField()
    limit = serializers.CharField(
        allow_blank=True, help_text="Limit that caused the refusals; empty: the cause was not a limit."
    )
    endpoint = serializers.ChoiceField(choices=ApiEndpoint.choices)
    key = serializers.CharField(
        source="api_key.name",
        default=None,
        allow_null=True,
        help_text="Name of the API key; null: a member in the console.",
    )
    model = serializers.CharField(allow_blank=True, help_text="Model in the last refused request; empty: none.")
    param = serializers.CharField(
        allow_blank=True, help_text="Parameter at fault in the last refused request; empty: none."
    )


class RefusalPageSerializer(serializers.Serializer[Any]):
    results = RefusalSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null at the end.")


class RefusalSeriesQuerySerializer(TimeRangeSerializer):
    tenant = serializers.CharField(
        max_length=64,
        required=False,
        default="",
        allow_blank=True,
        help_text="Slug of a tenant; left out: all tenants.",
    )


class RefusalsByCodeSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="Error code; `others`: all beyond the 20 most frequent ones.")
    status = serializers.IntegerField(help_text="HTTP status code of the response; 0: the row `others`.")
    count = serializers.IntegerField()
    by_step = serializers.ListField(child=serializers.IntegerField())


class RefusalSeriesSerializer(serializers.Serializer[Any]):
    """Requests that reached no engine, over time. They are a few seconds late."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="End of the window, exclusive; the last step may not be over yet.")
    step_s = serializers.IntegerField()
    starts = serializers.ListField(child=serializers.DateTimeField(), help_text="Start of each step.")
    total = serializers.IntegerField()
    failed = serializers.IntegerField(
        help_text="Number of the refused requests with a 5xx status, which are the platform's fault."
    )
    by_code = RefusalsByCodeSerializer(many=True)
