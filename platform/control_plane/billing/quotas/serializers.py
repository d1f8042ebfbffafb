from typing import Any

from rest_framework import serializers

MOST = 10**15


def _limit(text: str, least: int = 0) -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=least, max_value=MOST, allow_null=True, default=None, help_text=f"{text} Null = no limit."
    )


class KeyLimitsSerializer(serializers.Serializer[Any]):
    """The limits of one key. The tenant's limits apply as well."""

    requests_per_minute = _limit("Maximum number of requests within any 60 seconds.")
    tokens_per_minute = _limit("Maximum number of prompt and output tokens within any 60 seconds.")
    tokens_per_day = _limit("Maximum number of prompt and output tokens in a UTC day.")
    tokens_per_month = _limit("Maximum number of prompt and output tokens in a UTC month.")
    concurrency = _limit("Maximum number of choices that run at once: n for each prompt of a request.")
    max_output_tokens = _limit("Maximum number of output tokens for each choice of a request.", 1)


class TenantLimitsSerializer(KeyLimitsSerializer):
    adapters = _limit("Maximum number of adapters that are not archived.")
    storage_bytes = _limit("Maximum bytes of adapter versions that are not archived; shared content counts once.")
    max_rank = _limit("Maximum rank of any module of an adapter.", 1)
    pinned_bytes = serializers.IntegerField(
        min_value=0,
        max_value=MOST,
        allow_null=True,
        default=None,
        help_text="Maximum bytes of adapters and prefixes pinned in each host's device memory. Null or 0 = none.",
    )


class KeyLimitUsageSerializer(serializers.Serializer[Any]):
    """The current usage. Null means not counted: nothing limits it, or the counters cannot be reached."""

    requests_per_minute = serializers.IntegerField(
        allow_null=True, help_text="Requests in the last 60 seconds; null: not counted."
    )
    tokens_per_minute = serializers.IntegerField(
        allow_null=True,
        help_text="Tokens in the last 60 seconds; running requests count with all they may use; null: not counted.",
    )
    tokens_per_day = serializers.IntegerField()
    tokens_per_month = serializers.IntegerField()
    concurrency = serializers.IntegerField(allow_null=True, help_text="Choices that run now; null: not counted.")


class TenantLimitUsageSerializer(KeyLimitUsageSerializer):
    adapters = serializers.IntegerField()
    storage_bytes = serializers.IntegerField()


class KeyUsageAgainstLimitsSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    limits = KeyLimitsSerializer()
    used = KeyLimitUsageSerializer()


class TenantUsageAgainstLimitsSerializer(serializers.Serializer[Any]):
    limits = TenantLimitsSerializer()
    used = TenantLimitUsageSerializer()


class UsageAgainstLimitsSerializer(serializers.Serializer[Any]):
    counters_reachable = serializers.BooleanField()
    tenant = TenantUsageAgainstLimitsSerializer()
    keys = KeyUsageAgainstLimitsSerializer(many=True, help_text="API keys that are neither revoked nor expired.")
