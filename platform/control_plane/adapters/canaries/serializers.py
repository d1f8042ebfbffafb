"""The JSON of canaries."""

from typing import Any

from rest_framework import serializers

from control_plane.adapters.registry.serializers import AliasTargetSerializer


class CanaryTargetSerializer(AliasTargetSerializer):
    percent = serializers.IntegerField(min_value=1, max_value=99, help_text="Of the alias's requests.")


class VersionStatsSerializer(serializers.Serializer[Any]):
    """Requests since the canary began; times are medians without the adapter's load."""

    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    first_token_ms = serializers.FloatField(allow_null=True)
    inter_token_ms = serializers.FloatField(allow_null=True)


class CanaryComparisonSerializer(serializers.Serializer[Any]):
    """How a canary does beside the alias's own version. Null without a canary."""

    canary = VersionStatsSerializer(allow_null=True)
    own = VersionStatsSerializer(allow_null=True)
    least_requests = serializers.IntegerField(help_text="Below so many nothing is judged.")
