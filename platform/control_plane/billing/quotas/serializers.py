from typing import Any

from rest_framework import serializers

MOST = 10**15


def _limit(text: str, least: int = 0) -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=least, max_value=MOST, allow_null=True, default=None, help_text=f"{text} Null = no limit."
    )


class KeyLimitsSerializer(serializers.Serializer[Any]):
    """The limits of one key. The tenant's limits apply as well."""

    requests_per_minute = _limit("Within any 60 seconds.")
    tokens_per_minute = _limit("Prompt and output, within any 60 seconds.")
    tokens_per_day = _limit("By UTC day.")
    tokens_per_month = _limit("By UTC month.")
    concurrency = _limit("Choices that run at once, n for each prompt of a request.")
    max_output_tokens = _limit("Of one request, for each choice.", 1)


class TenantLimitsSerializer(KeyLimitsSerializer):
    adapters = _limit("Adapters that are not archived.")
    storage_bytes = _limit("Content of versions that are not archived.")
    max_rank = _limit("Of an adapter's largest module.", 1)
    pinned_bytes = serializers.IntegerField(
        min_value=0,
        max_value=MOST,
        allow_null=True,
        default=None,
        help_text="Device memory of each host for pinned adapters. Null = none may be pinned.",
    )


class KeyLimitUsageSerializer(serializers.Serializer[Any]):
    """The current usage. Null means not counted: nothing limits it, or the counters cannot be reached."""

    requests_per_minute = serializers.IntegerField(allow_null=True)
    tokens_per_minute = serializers.IntegerField(
        allow_null=True, help_text="Tokens of the last minute; running requests count with all that they may use."
    )
    tokens_per_day = serializers.IntegerField()
    tokens_per_month = serializers.IntegerField()
    concurrency = serializers.IntegerField(allow_null=True)


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
    keys = KeyUsageAgainstLimitsSerializer(many=True, help_text="Usage of keys that are neither revoked nor expired.")
