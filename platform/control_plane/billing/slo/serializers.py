from typing import Any

from rest_framework import serializers

from control_plane.billing.slo.models import DEFAULT_TARGET
from control_plane.billing.usage.serializers import PercentilesSerializer

LONGEST_MS = 600_000


def _milliseconds(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=LONGEST_MS, allow_null=True, default=None, help_text=text)


class LatencyObjectivesSerializer(serializers.Serializer[Any]):
    first_token_ms = _milliseconds("Time to the first token. Null = no objective.")
    inter_token_ms = _milliseconds("Time between tokens, the mean of a request. Null = no objective.")
    target = serializers.FloatField(
        min_value=0.5,
        max_value=0.99999,
        default=DEFAULT_TARGET,
        help_text="Share of requests that should meet each objective.",
    )


class ErrorBudgetSerializer(serializers.Serializer[Any]):
    allowed = serializers.FloatField(help_text="Number of requests that may miss the objective.")
    missed = serializers.IntegerField()
    left = serializers.FloatField(allow_null=True, help_text="Share of the budget; below 0 it is overdrawn.")


class BurnRateSerializer(serializers.Serializer[Any]):
    window = serializers.CharField(help_text="Time before now: 1h, 6h, 1d or 7d.")
    measured = serializers.IntegerField()
    missed = serializers.IntegerField(allow_null=True)
    rate = serializers.FloatField(
        allow_null=True, help_text="Misses divided by those that the target allows: 1 uses the budget up exactly."
    )


class AttainmentDaySerializer(serializers.Serializer[Any]):
    date = serializers.DateField(help_text="Day, in UTC.")
    measured = serializers.IntegerField()
    attainment = serializers.FloatField(allow_null=True)


class AttainmentSerializer(serializers.Serializer[Any]):
    """The attainment of the current objective by answered requests, as the engine measured them. Failed requests count
    as measured and as not met."""

    objective_ms = serializers.IntegerField(allow_null=True)
    measured = serializers.IntegerField()
    met = serializers.IntegerField(allow_null=True)
    attainment = serializers.FloatField(
        allow_null=True, help_text="Requests that met the objective, divided by those measured."
    )
    budget = ErrorBudgetSerializer(allow_null=True)
    percentiles = PercentilesSerializer()
    burn = BurnRateSerializer(many=True)
    by_day = AttainmentDaySerializer(many=True)


class SloReportSerializer(LatencyObjectivesSerializer):
    weight = serializers.FloatField(
        help_text="Weight of the tenant beside others' weights in the division of hosts that are full."
    )
    days = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True)
    requests = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Number of requests that broke off or returned nothing.")
    mean_queue_ms = serializers.FloatField(allow_null=True)
    first_token = AttainmentSerializer()
    inter_token = AttainmentSerializer()


class TenantWeightSerializer(serializers.Serializer[Any]):
    weight = serializers.FloatField(min_value=0.01, max_value=1000)


class ServiceGapSerializer(serializers.Serializer[Any]):
    """The gap in service between two tenants that waited and could have run: the widest of all pairs."""

    gap = serializers.FloatField(help_text="Priced tokens per weight that one tenant received more than the other.")
    bound = serializers.FloatField(help_text="Bound of the gap by the fair order, over any time in which both wait.")
    share = serializers.FloatField(help_text="Gap divided by its bound.")
    ahead = serializers.CharField(help_text="Short name of the tenant that received more.")
    behind = serializers.CharField()


class ServiceGapPointSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField(help_text="Time at which the step begins.")
    widest = ServiceGapSerializer(
        allow_null=True, help_text="Gap that was nearest to its bound in any heartbeat; null = no two tenants waited."
    )


class HostFairnessSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    now = ServiceGapSerializer(allow_null=True)
    points = ServiceGapPointSerializer(many=True)


class FairnessSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField()
    hosts = HostFairnessSerializer(many=True, help_text="Hosts on which two tenants waited in this time.")
