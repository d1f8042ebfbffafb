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
    status = serializers.IntegerField(help_text="Status of HTTP.")
    code = serializers.CharField()
    limit = serializers.CharField(allow_blank=True, help_text="Name of the limit, if the request exceeded one.")
    endpoint = serializers.ChoiceField(choices=ApiEndpoint.choices)
    key = serializers.CharField(
        source="api_key.name", default=None, allow_null=True, help_text="API key; null = the console."
    )
    model = serializers.CharField(allow_blank=True, help_text="Model that the last of these requests named.")
    param = serializers.CharField(allow_blank=True, help_text="Parameter at fault in the last of these requests.")


class RefusalPageSerializer(serializers.Serializer[Any]):
    results = RefusalSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null at the end.")


class RefusalSeriesQuerySerializer(TimeRangeSerializer):
    tenant = serializers.CharField(
        max_length=64,
        required=False,
        default="",
        allow_blank=True,
        help_text="Short name of a tenant; without it, all tenants.",
    )


class RefusalsByCodeSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="`others`: what is beyond the 20 most frequent.")
    status = serializers.IntegerField(help_text="Status of HTTP; 0 for `others`.")
    count = serializers.IntegerField()
    by_step = serializers.ListField(child=serializers.IntegerField())


class RefusalSeriesSerializer(serializers.Serializer[Any]):
    """Requests that reached no engine, over time. They are a few seconds late."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="Everything before it is counted; the last step may not be over.")
    step_s = serializers.IntegerField()
    starts = serializers.ListField(child=serializers.DateTimeField(), help_text="Time at which each step begins.")
    total = serializers.IntegerField()
    failed = serializers.IntegerField(
        help_text="Number of these requests that failed by the platform's fault, with a status of 5xx."
    )
    by_code = RefusalsByCodeSerializer(many=True)
