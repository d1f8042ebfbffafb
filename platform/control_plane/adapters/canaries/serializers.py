"""JSON of canaries."""

from typing import Any

from rest_framework import serializers

from control_plane.adapters.registry.serializers import AliasTargetSerializer


class CanaryTargetSerializer(AliasTargetSerializer):
    percent = serializers.IntegerField(
        min_value=1, max_value=99, help_text="Share of the alias's requests, in per cent."
    )


class VersionStatsSerializer(serializers.Serializer[Any]):
    """A version's requests since the canary began; times are medians without the adapter's load."""

    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    first_token_ms = serializers.FloatField(
        allow_null=True, help_text="Median time to the first token, in milliseconds; null: nothing was measured."
    )
    inter_token_ms = serializers.FloatField(
        allow_null=True,
        help_text="Median of the requests' mean times between tokens, in milliseconds; null: nothing was measured.",
    )


class CanaryComparisonSerializer(serializers.Serializer[Any]):
    """The figures of a canary and of the alias's regular version; null without a canary."""

    canary = VersionStatsSerializer(allow_null=True, help_text="Figures of the canary; null: there is no canary.")
    own = VersionStatsSerializer(
        allow_null=True, help_text="Figures of the alias's regular version; null: there is no canary."
    )
    least_requests = serializers.IntegerField(help_text="Number of requests of each version that a comparison needs.")
