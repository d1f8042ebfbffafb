"""The JSON of engine hosts, for the API's schema."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from rest_framework import serializers

from control_plane.fleet.hosts.host_status import LOADS, SHOWN
from control_plane.fleet.hosts.models import HostService, HostState
from lora_engine.wire import engine_pb2 as pb

# Named so that the API schema can name its enumerations.
PAGE_KINDS = ["free", "kv", "cached_prefix", "adapter", "reserved", "state", "others"]
TIERS = ["device", "host", "disk"]
PLACES = [*TIERS, "store"]
RESTART_PHASES = ["asked", "ending", "starting"]
QUARANTINE_CODES = ["other_base_model", "other_tokenizer", "base_model_undecided", "unsupported_engine", "revoked"]


_FIELDS: dict[int, type[serializers.Field[Any, Any, Any, Any]]] = {
    FieldDescriptor.CPPTYPE_BOOL: serializers.BooleanField,
    FieldDescriptor.CPPTYPE_DOUBLE: serializers.FloatField,
    FieldDescriptor.CPPTYPE_FLOAT: serializers.FloatField,
    FieldDescriptor.CPPTYPE_STRING: serializers.CharField,
    FieldDescriptor.CPPTYPE_UINT32: serializers.IntegerField,
    FieldDescriptor.CPPTYPE_UINT64: serializers.IntegerField,
}


def fields_of(fields: Iterable[Any]) -> dict[str, Any]:
    """Return serializer fields for fields of a message. Messages in it may be null."""
    return {
        field.name: _message_serializer(field.message_type)(
            allow_null=True, help_text="Part of the host's status; null: the engine does not report it."
        )
        if field.message_type
        else _FIELDS[field.cpp_type]()
        for field in fields
    }


@cache
def _message_serializer(message: Any) -> type[serializers.Serializer[Any]]:
    return type(f"{message.name}Serializer", (serializers.Serializer,), fields_of(message.fields))


class PoolSerializer(serializers.Serializer[Any]):
    """Numbers of pages of a host's pool by use; ``free + kv + state + cached_prefix + adapter + reserved == total``."""

    def get_fields(self) -> dict[str, Any]:
        return fields_of(pb.PoolPages.DESCRIPTOR.fields)


class AdapterExpertsSerializer(serializers.Serializer[Any]):
    """Units of an adapter's experts on a host, each of one or a few adjacent experts of a layer."""

    resident = serializers.IntegerField(
        help_text="Number of units in the page pool now; the others are read from host memory."
    )
    total = serializers.IntegerField()


def _experts() -> AdapterExpertsSerializer:
    return AdapterExpertsSerializer(
        allow_null=True,
        help_text="Units of the adapter's experts; null: it has none, is not on the device, or the host keeps "
        "all in its page pool.",
    )


class _ResidentSerializer(serializers.Serializer[Any]):
    digest = serializers.CharField()
    tier = serializers.ChoiceField(choices=TIERS)
    running = serializers.IntegerField(help_text="Number of running requests that use the adapter.")
    bytes = serializers.IntegerField()
    rank = serializers.IntegerField()
    experts = _experts()
    cold_start_ms = serializers.FloatField(
        required=False,
        allow_null=True,
        help_text="Milliseconds that a request would wait for the adapter, without the queue, by the loads "
        "measured on the host; null: not known.",
    )


class ResidentAdapterSerializer(_ResidentSerializer):
    """An adapter of the tenant on a host."""

    name = serializers.CharField(help_text="Name of the newest version with this content, the first of `names`.")
    names = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Names of all the tenant's versions with this content, the newest first.",
    )


class AdapterReferenceSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    name = serializers.CharField()


class OperatorResidentAdapterSerializer(_ResidentSerializer):
    used_by = AdapterReferenceSerializer(
        many=True, help_text="Versions with this content; empty: the host has not dropped it yet."
    )


class ShareSerializer(serializers.Serializer[Any]):
    """A tenant's share of an engine, as the engine last reported it."""

    weight = serializers.FloatField()
    owed = serializers.FloatField(
        help_text="Share of service, from 0 to 1, that the tenant's weight gives it among the tenants in the "
        "engine now."
    )
    received = serializers.FloatField(
        help_text="Share of service, from 0 to 1, that the tenant received in the last 10 to 20 seconds."
    )
    running = serializers.IntegerField()
    waiting = serializers.IntegerField()
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Why the tenant's next request waits: `adapter_loading`, `no_room`, `background`, "
        "`tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`; empty: none waits.",
    )


class TenantShareSerializer(ShareSerializer):
    tenant = serializers.CharField()
    name = serializers.CharField()
    ahead = serializers.FloatField(
        help_text="Priced tokens per weight that the tenant has received beyond the tenant with the least on this host."
    )


class QuarantineSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=QUARANTINE_CODES)
    message = serializers.CharField()
    fix = serializers.CharField()


class PageMapQuerySerializer(serializers.Serializer[Any]):
    ago_s = serializers.IntegerField(
        min_value=0,
        max_value=600,
        required=False,
        default=0,
        help_text="Minimum age in seconds of the map to return; 0: the current map.",
    )


class PageOwnerSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(
        choices=PAGE_KINDS, help_text="Use of the pages; `others`: they belong to another tenant."
    )
    tenant = serializers.CharField(
        allow_null=True,
        help_text="Slug of the tenant that owns the pages, for operators only; null: no tenant, or not an operator.",
    )
    adapters = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of the versions whose content the pages hold or were computed with.",
    )
    age_s = serializers.FloatField(
        allow_null=True,
        help_text="Seconds since the arrival of the request or the last use of the adapter; null: neither applies.",
    )
    pinned = serializers.BooleanField(
        help_text="Whether the pages belong to a pinned adapter or a pinned prefix, which is not evicted."
    )


class HostPagesSerializer(serializers.Serializer[Any]):
    """A map of a host's pool: the owner of each page."""

    at = serializers.FloatField(help_text="Time of the map in seconds since 1970.")
    boot_id = serializers.CharField()
    total = serializers.IntegerField()
    page_bytes = serializers.IntegerField()
    owners = PageOwnerSerializer(many=True)
    runs = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="Pairs of integers in one list: an index into `owners`, then the number of adjacent pages of "
        "that owner.",
    )
    kept = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="Times of the maps cached in the last ten minutes, in seconds since 1970, the oldest first.",
    )


class WantedServiceSerializer(serializers.Serializer[Any]):
    service = serializers.ChoiceField(choices=HostService.choices)


class LoadTimeSerializer(serializers.Serializer[Any]):
    """The time to bring an adapter one tier nearer to the device on a host: a fixed part, and its bytes at a rate."""

    step = serializers.ChoiceField(
        choices=LOADS,
        help_text="Kind of load: `to_device` from host memory, `from_disk` to host memory, `download` from the "
        "artifact store.",
    )
    loads = serializers.IntegerField(
        help_text="Number of such loads since the engine started; 0: the times are not known."
    )
    fixed_ms = serializers.FloatField()
    bytes_per_second = serializers.IntegerField(
        allow_null=True,
        help_text="Bytes per second beyond the fixed part; null: not known, or more bytes took no longer.",
    )


class ColdStartsSerializer(serializers.Serializer[Any]):
    """Milliseconds that a request would wait for an adapter from each tier; null while the host has not measured it."""

    device = serializers.FloatField(
        allow_null=True, help_text="Milliseconds for an adapter in device memory; null: not measured."
    )
    host = serializers.FloatField(
        allow_null=True, help_text="Milliseconds for an adapter in host memory; null: not measured."
    )
    disk = serializers.FloatField(
        allow_null=True, help_text="Milliseconds for an adapter on the host's disk; null: not measured."
    )
    store = serializers.FloatField(
        allow_null=True, help_text="Milliseconds for an adapter in the artifact store; null: not measured."
    )


class VersionTierSerializer(serializers.Serializer[Any]):
    """The tier of a version on a host, and how long a request would wait for it there."""

    host = serializers.CharField()
    tier = serializers.ChoiceField(
        choices=PLACES, help_text="Tier on which the host has the version; `store`: the host has no copy."
    )
    experts = _experts()
    cold_start_ms = serializers.FloatField(
        allow_null=True,
        help_text="Milliseconds that a request would wait for the version from its current tier; null: not known.",
    )
    by_tier = ColdStartsSerializer()


class RestartSerializer(serializers.Serializer[Any]):
    wait_s = serializers.IntegerField(
        min_value=0,
        max_value=86_400,
        default=300,
        help_text="Seconds that running requests have to end before the restart; a later request replaces the value.",
    )


class RestartStateSerializer(serializers.Serializer[Any]):
    """A restart that an operator requested and that is not done."""

    phase = serializers.ChoiceField(
        choices=RESTART_PHASES,
        help_text="`asked`: the engine has not received the request. `ending`: it waits for running requests. "
        "`starting`: it has ended.",
    )
    asked_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()


class _HostSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=HostState.choices)
    service = serializers.ChoiceField(
        choices=HostService.choices,
        help_text="Service that operators want of the host; cordoned and drained hosts get no new adapters or "
        "requests.",
    )
    restart = RestartStateSerializer(
        allow_null=True,
        required=False,
        help_text="Progress of a requested restart; null: none is requested, or it is done.",
    )
    quarantine = QuarantineSerializer(
        allow_null=True, help_text="Why the host gets neither adapters nor requests; null: it is not in quarantine."
    )
    boot_id = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    device = serializers.CharField(allow_blank=True)
    pool = PoolSerializer()
    page_bytes = serializers.IntegerField(help_text="Bytes of one page over all layers.")
    load_times = LoadTimeSerializer(many=True, required=False)
    adapters_total = serializers.IntegerField(
        help_text="Number of the adapters on the host; `adapters` has at most 256 of them, the busiest first."
    )
    last_seen = serializers.DateTimeField(
        allow_null=True, help_text="Time of the last heartbeat; null: there was none yet."
    )

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **fields_of(SHOWN)}


class HostSerializer(_HostSerializer):
    """An engine host by its last heartbeat: its load as a whole, and the tenant's own adapters on it."""

    share = ShareSerializer(
        allow_null=True,
        required=False,
        help_text="The tenant's share of the engine's service; null: the engine reports none for the tenant.",
    )
    adapters = ResidentAdapterSerializer(many=True)


class JoinedHostSerializer(serializers.Serializer[Any]):
    """The membership of a host that joined, with a credential of its own."""

    at = serializers.DateTimeField()
    certificate_expires_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time until which the host's certificate is valid; null: the host's credential was revoked.",
    )
    revoked_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the host's credential was revoked; null: it was not."
    )


class LastEndSerializer(serializers.Serializer[Any]):
    """The end of an engine that did not stop normally."""

    reason = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="Time at which the engine ended; null: not known.")


class OperatorHostSerializer(_HostSerializer):
    """An engine host by its last heartbeat, with every tenant's adapters."""

    address = serializers.CharField()
    zone = serializers.CharField(
        allow_blank=True, help_text="Location that the engine reports (`--zone`); empty: not known."
    )
    adapter_readers = serializers.IntegerField(
        help_text="Number of other hosts that read an adapter from this host now."
    )
    engine_version = serializers.CharField(
        allow_blank=True,
        required=False,
        help_text="Release of the host's engine and commit of the build; empty: not known.",
    )
    clock_ahead_s = serializers.FloatField(
        allow_null=True,
        required=False,
        help_text="Seconds that the host's clock is ahead of the database's; negative: behind; null: the host "
        "does not answer, or was not measured yet.",
    )
    joined = JoinedHostSerializer(
        allow_null=True, help_text="Membership of a host that joined with a token; null: a host of the settings."
    )
    only_here = serializers.IntegerField(
        help_text="Number of versions that can be called on this host and on no other serving host."
    )
    last_end = LastEndSerializer(
        allow_null=True,
        required=False,
        help_text="Why the engine before the running one ended; null: it ended normally, or the host is offline.",
    )
    base_digest = serializers.CharField(allow_blank=True)
    shares = TenantShareSerializer(
        many=True,
        required=False,
        help_text="Shares of the engine's service of the 100 tenants with the longest queues.",
    )
    adapters = OperatorResidentAdapterSerializer(many=True)
