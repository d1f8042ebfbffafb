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


class ResidentAdapterSerializer(serializers.Serializer[Any]):
    """Name and digest are null for other tenants' adapters."""

    name = serializers.CharField(allow_null=True)
    digest = serializers.CharField(allow_null=True)
    tier = serializers.ChoiceField(choices=["device", "host", "disk"])
    running = serializers.IntegerField(help_text="Requests using it now.")
    bytes = serializers.IntegerField()
    rank = serializers.IntegerField()


class HostSerializer(serializers.Serializer[Any]):
    """An engine host by its last heartbeat."""

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
    adapters = ResidentAdapterSerializer(many=True)
    adapters_total = serializers.IntegerField(help_text="`adapters` shows at most 256, the caller's own first.")
    last_seen = serializers.DateTimeField(allow_null=True)
