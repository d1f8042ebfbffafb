from typing import Any

from rest_framework import serializers

from control_plane.billing.slo.models import DEFAULT_TARGET
from control_plane.billing.usage.serializers import PercentilesSerializer

LONGEST_MS = 600_000


def _milliseconds(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=LONGEST_MS, allow_null=True, default=None, help_text=text)


class LatencyObjectivesSerializer(serializers.Serializer[Any]):
    first_token_ms = _milliseconds("Objective for the time to the first token, in milliseconds; null: none.")
    inter_token_ms = _milliseconds(
        "Objective for the mean time between the tokens of a request, in milliseconds; null: none."
    )
    target = serializers.FloatField(
        min_value=0.5,
        max_value=0.99999,
        default=DEFAULT_TARGET,
        help_text="Share of requests that should meet each objective.",
    )


class ErrorBudgetSerializer(serializers.Serializer[Any]):
    allowed = serializers.FloatField(help_text="Number of requests that may miss the objective.")
    missed = serializers.IntegerField()
    left = serializers.FloatField(
        allow_null=True,
        help_text="Share of the error budget that is left; below 0: overdrawn; null: nothing was measured.",
    )


class BurnRateSerializer(serializers.Serializer[Any]):
    window = serializers.CharField(help_text="Length of the window before now: 1h, 6h, 1d or 7d.")
    measured = serializers.IntegerField()
    missed = serializers.IntegerField(
        allow_null=True, help_text="Number of measured requests that missed the objective; null: there is no objective."
    )
    rate = serializers.FloatField(
        allow_null=True,
        help_text="Missed requests / those that the target allows: 1 uses up the budget exactly; null: unknown.",
    )


class AttainmentDaySerializer(serializers.Serializer[Any]):
    date = serializers.DateField(help_text="Day (UTC) that the figures cover.")
    measured = serializers.IntegerField()
    attainment = serializers.FloatField(
        allow_null=True,
        help_text="Share of measured requests that met the objective; null: no objective, or none measured.",
    )


class AttainmentSerializer(serializers.Serializer[Any]):
    """The attainment of the current objective by answered requests, as the engine measured them. Failed requests count
    as measured and as not met."""

    objective_ms = serializers.IntegerField(
        allow_null=True, help_text="Objective in milliseconds; null: there is none."
    )
    measured = serializers.IntegerField()
    met = serializers.IntegerField(
        allow_null=True, help_text="Number of measured requests that met the objective; null: there is no objective."
    )
    attainment = serializers.FloatField(
        allow_null=True,
        help_text="Share of measured requests that met the objective; null: no objective, or none measured.",
    )
    budget = ErrorBudgetSerializer(
        allow_null=True, help_text="Requests that may miss the objective; null: there is no objective."
    )
    percentiles = PercentilesSerializer()
    burn = BurnRateSerializer(many=True)
    by_day = AttainmentDaySerializer(many=True)


class SloReportSerializer(LatencyObjectivesSerializer):
    weight = serializers.FloatField(
        help_text="Weight of the tenant: its share of full hosts, relative to other tenants' weights."
    )
    days = serializers.IntegerField()
    as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="Time up to which all stored usage is in the sums; null: nothing has been summed yet.",
    )
    requests = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Number of requests that failed through no fault of the caller.")
    mean_queue_ms = serializers.FloatField(
        allow_null=True, help_text="Mean time in the engines' queues in milliseconds; null: there were no requests."
    )
    first_token = AttainmentSerializer()
    inter_token = AttainmentSerializer()


class TenantWeightSerializer(serializers.Serializer[Any]):
    weight = serializers.FloatField(min_value=0.01, max_value=1000)


class ServiceGapSerializer(serializers.Serializer[Any]):
    """The gap in service between two tenants that waited and could have run: the widest of all pairs."""

    gap = serializers.FloatField(
        help_text="Service that `ahead` received more than `behind`, in priced tokens per weight."
    )
    bound = serializers.FloatField(
        help_text="Upper bound of the gap under the fair order, over any time in which both tenants wait."
    )
    share = serializers.FloatField(help_text="Gap divided by its bound.")
    ahead = serializers.CharField(help_text="Slug of the tenant that received more service.")
    behind = serializers.CharField()


class ServiceGapPointSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField(help_text="Start of the step.")
    widest = ServiceGapSerializer(
        allow_null=True, help_text="Gap nearest to its bound among the step's heartbeats; null: no two tenants waited."
    )


class HostFairnessSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    now = ServiceGapSerializer(
        allow_null=True, help_text="Gap in the host's latest status; null: no two tenants wait, or the host is offline."
    )
    points = ServiceGapPointSerializer(many=True)


class FairnessSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField()
    hosts = HostFairnessSerializer(many=True, help_text="Hosts on which two tenants waited in the window, or wait now.")
