from typing import Any

from rest_framework import serializers

from control_plane.usage.models import ApiEndpoint


class RefusalSerializer(serializers.Serializer[Any]):
    """Refusals of one kind within one minute."""

    id = serializers.IntegerField()
    minute = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    count = serializers.IntegerField()
    status = serializers.IntegerField(help_text="Of HTTP.")
    code = serializers.CharField()
    limit = serializers.CharField(allow_blank=True, help_text="Which limit, if it was one.")
    endpoint = serializers.ChoiceField(choices=ApiEndpoint.choices)
    key = serializers.CharField(source="api_key.name", default=None, allow_null=True, help_text="Null = the console.")
    model = serializers.CharField(allow_blank=True, help_text="Asked for by the last of them.")
    param = serializers.CharField(allow_blank=True, help_text="At fault in the last of them.")


class RefusalPageSerializer(serializers.Serializer[Any]):
    results = RefusalSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null at the end.")
