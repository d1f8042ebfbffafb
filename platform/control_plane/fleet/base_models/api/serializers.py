"""The JSON of base models, for the API's schema."""

from typing import Any

from rest_framework import serializers

from control_plane.core.http.serializers import NameField
from control_plane.fleet.base_models.api.queries import STATES

# Seconds.
SHORTEST_SLEEP_S, LONGEST_SLEEP_S = 60, 30 * 86_400


class BaseModelSerializer(serializers.Serializer[Any]):
    """A base model that the installation serves."""

    name = serializers.CharField()
    digest = serializers.CharField()
    adapters_of = serializers.ListField(
        child=serializers.CharField(),
        help_text="Digests of other base models whose adapters this base model serves too.",
    )
    sleeps_after_s = serializers.IntegerField(
        help_text="Seconds without a request after which the base model needs no host; 0: it never sleeps."
    )
    decided_by = serializers.CharField()
    decided_at = serializers.DateTimeField()


class NewBaseModelSerializer(serializers.Serializer[Any]):
    host = NameField(max_length=64, help_text="Name of the host whose current base model is to be served.")
    keep_adapters = serializers.BooleanField(
        default=False,
        help_text="Whether adapters of the replaced base models are kept, because the new one is the same "
        "model, saved anew.",
    )


class ListedBaseModelSerializer(serializers.Serializer[Any]):
    """A base model that is served, was, or could be."""

    name = serializers.CharField(allow_blank=True, help_text="Name that callers put into `model`.")
    digest = serializers.CharField()
    state = serializers.ChoiceField(
        choices=STATES,
        help_text="Whether the base model is served; `waiting`: hosts have it, and no operator has approved it.",
    )
    hosts = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the active hosts that have the base model."
    )
    adapters = serializers.IntegerField(
        help_text="Number of adapters of all tenants that have versions in use for the base model."
    )
    max_context = serializers.IntegerField(
        allow_null=True,
        help_text="Tokens of prompt and output together, the lowest limit of its hosts; null: the base model "
        "is not served.",
    )
    sleeps_after_s = serializers.IntegerField(
        help_text="Seconds without a request after which the base model needs no host; 0: it never sleeps."
    )
    wanted = serializers.BooleanField(help_text="Whether the base model needs a host now.")
    hosts_online = serializers.IntegerField(help_text="Number of hosts that take requests for the base model now.")
    decided_by = serializers.CharField(
        allow_null=True, help_text="Name of the operator who decided last; null: nobody did yet."
    )
    decided_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the last decision; null: there was none yet."
    )
    withdrawn_at = serializers.DateTimeField(
        allow_null=True, help_text="Time from which the base model is not served; null: it was not withdrawn."
    )


class BaseModelChangeSerializer(serializers.Serializer[Any]):
    """A change of a base model: fields that are left out stay."""

    name = NameField(max_length=200, required=False)
    sleeps_after_s = serializers.IntegerField(
        min_value=0,
        max_value=LONGEST_SLEEP_S,
        required=False,
        help_text=f"Seconds without a request after which the base model needs no host, {SHORTEST_SLEEP_S} or more; "
        "0: it never sleeps.",
    )

    def validate_sleeps_after_s(self, value: int) -> int:
        if 0 < value < SHORTEST_SLEEP_S:
            raise serializers.ValidationError(f"Give 0, or {SHORTEST_SLEEP_S} seconds or more.")
        return value


class ApprovedBaseModelSerializer(serializers.Serializer[Any]):
    host = NameField(max_length=64, help_text="Name of the host whose current base model is to be served.")
    name = NameField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Name that callers put into `model`; empty: its name when it was served before, or else the "
        "engine's name for it.",
    )
