"""The JSON of engine hosts, for the API's schema."""

from typing import Any

from rest_framework import serializers

from control_plane.fleet.models import HostState


class PoolSerializer(serializers.Serializer[Any]):
    """Pages; ``free + kv + cached_prefix + adapter + reserved == total``."""

    total = serializers.IntegerField()
    free = serializers.IntegerField()
    kv = serializers.IntegerField()
    cached_prefix = serializers.IntegerField()
    adapter = serializers.IntegerField()
    reserved = serializers.IntegerField()


class _ResidentSerializer(serializers.Serializer[Any]):
    digest = serializers.CharField()
    tier = serializers.ChoiceField(choices=["device", "host", "disk"])
    running = serializers.IntegerField(help_text="Requests using it now.")
    bytes = serializers.IntegerField()
    rank = serializers.IntegerField()


class ResidentAdapterSerializer(_ResidentSerializer):
    """One of the tenant's own."""

    name = serializers.CharField()


class OwnerSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    name = serializers.CharField()


class OperatorResidentSerializer(_ResidentSerializer):
    used_by = OwnerSerializer(many=True, help_text="Versions with this content; none if the host has yet to forget it.")


class _HostSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=HostState.choices)
    boot_id = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    device = serializers.CharField(allow_blank=True)
    running = serializers.IntegerField()
    waiting = serializers.IntegerField()
    tokens_per_second = serializers.FloatField()
    pool = PoolSerializer()
    page_bytes = serializers.IntegerField(help_text="One page over all layers.")
    adapters_total = serializers.IntegerField(help_text="`adapters` shows at most 256, the busiest first.")
    last_seen = serializers.DateTimeField(allow_null=True)


class HostSerializer(_HostSerializer):
    """An engine host by its last heartbeat: its load as a whole, and the tenant's own adapters on it."""

    adapters = ResidentAdapterSerializer(many=True)


class OperatorHostSerializer(_HostSerializer):
    """An engine host by its last heartbeat, with every tenant's adapters."""

    address = serializers.CharField()
    adapters = OperatorResidentSerializer(many=True)
