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
        field.name: _message_serializer(field.message_type)(allow_null=True)
        if field.message_type
        else _FIELDS[field.cpp_type]()
        for field in fields
    }


@cache
def _message_serializer(message: Any) -> type[serializers.Serializer[Any]]:
    return type(f"{message.name}Serializer", (serializers.Serializer,), fields_of(message.fields))


class PoolSerializer(serializers.Serializer[Any]):
    """Pages; ``free + kv + state + cached_prefix + adapter + reserved == total``."""

    def get_fields(self) -> dict[str, Any]:
        return fields_of(pb.PoolPages.DESCRIPTOR.fields)


class AdapterExpertsSerializer(serializers.Serializer[Any]):
    """Units of an adapter's experts on a host, each of one or a few adjacent experts of a layer."""

    resident = serializers.IntegerField(help_text="In the page pool now; the others are read from host memory.")
    total = serializers.IntegerField()


def _experts() -> AdapterExpertsSerializer:
    return AdapterExpertsSerializer(
        allow_null=True,
        help_text="null: it has no experts, is not on the device, or the host keeps all experts in its page pool.",
    )


class _ResidentSerializer(serializers.Serializer[Any]):
    digest = serializers.CharField()
    tier = serializers.ChoiceField(choices=TIERS)
    running = serializers.IntegerField(help_text="Requests using it now.")
    bytes = serializers.IntegerField()
    rank = serializers.IntegerField()
    experts = _experts()
    cold_start_ms = serializers.FloatField(
        required=False,
        allow_null=True,
        help_text="How long a request would wait for it beside the queue, by what loads took here; null = not known.",
    )


class ResidentAdapterSerializer(_ResidentSerializer):
    """An adapter of the tenant on a host."""

    name = serializers.CharField(help_text="The newest of `names`.")
    names = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Every version with this content."
    )


class AdapterReferenceSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    name = serializers.CharField()


class OperatorResidentAdapterSerializer(_ResidentSerializer):
    used_by = AdapterReferenceSerializer(
        many=True, help_text="Versions with this content; none if the host has yet to forget it."
    )


class ShareSerializer(serializers.Serializer[Any]):
    """A tenant's share of an engine, as the engine last reported it."""

    weight = serializers.FloatField()
    owed = serializers.FloatField(help_text="Its weight's share among the tenants in the engine now.")
    received = serializers.FloatField(help_text="Its share of the service of the last 10 to 20 seconds.")
    running = serializers.IntegerField()
    waiting = serializers.IntegerField()
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Why its next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, "
        "`own_quota`, `batch_full`, `queue`.",
    )


class TenantShareSerializer(ShareSerializer):
    tenant = serializers.CharField()
    name = serializers.CharField()
    ahead = serializers.FloatField(
        help_text="Priced tokens per weight that it has had more than the tenant here that has had least."
    )


class QuarantineSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=QUARANTINE_CODES)
    message = serializers.CharField()
    fix = serializers.CharField()


class PageMapQuerySerializer(serializers.Serializer[Any]):
    ago_s = serializers.IntegerField(
        min_value=0, max_value=600, required=False, default=0, help_text="Show what was kept so many seconds ago."
    )


class PageOwnerSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=PAGE_KINDS, help_text="`others`: of another tenant.")
    tenant = serializers.CharField(allow_null=True, help_text="For operators.")
    adapters = serializers.ListField(child=serializers.CharField(), help_text="Every name of the adapter.")
    age_s = serializers.FloatField(
        allow_null=True, help_text="Since the request came in, or the adapter was last used."
    )
    pinned = serializers.BooleanField(help_text="A pinned adapter's, or a pinned prefix's: it is not evicted.")


class HostPagesSerializer(serializers.Serializer[Any]):
    """A map of a host's pool: the owner of each page."""

    at = serializers.FloatField(help_text="Seconds since 1970.")
    boot_id = serializers.CharField()
    total = serializers.IntegerField()
    page_bytes = serializers.IntegerField()
    owners = PageOwnerSerializer(many=True)
    runs = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="In turn: an index into `owners`, and how many pages in a row are its.",
    )
    kept = serializers.ListField(
        child=serializers.IntegerField(), help_text="From when there are others, for ten minutes: seconds since 1970."
    )


class WantedServiceSerializer(serializers.Serializer[Any]):
    service = serializers.ChoiceField(choices=HostService.choices)


class LoadTimeSerializer(serializers.Serializer[Any]):
    """The time to bring an adapter one tier nearer to the device on a host: a fixed part, and its bytes at a rate."""

    step = serializers.ChoiceField(
        choices=LOADS,
        help_text="`to_device` from host memory, `from_disk` to host memory, `download` from the artifact store.",
    )
    loads = serializers.IntegerField(help_text="Since the engine started; 0 = not known.")
    fixed_ms = serializers.FloatField()
    bytes_per_second = serializers.IntegerField(allow_null=True)


class ColdStartsSerializer(serializers.Serializer[Any]):
    """Milliseconds; null while the host has not done such a load since it started."""

    device = serializers.FloatField(allow_null=True)
    host = serializers.FloatField(allow_null=True)
    disk = serializers.FloatField(allow_null=True)
    store = serializers.FloatField(allow_null=True)


class VersionTierSerializer(serializers.Serializer[Any]):
    """The tier of a version on a host, and how long a request would wait for it there."""

    host = serializers.CharField()
    tier = serializers.ChoiceField(choices=PLACES, help_text="`store`: the host has no copy.")
    experts = _experts()
    cold_start_ms = serializers.FloatField(allow_null=True, help_text="From where it is now.")
    by_tier = ColdStartsSerializer()


class RestartSerializer(serializers.Serializer[Any]):
    wait_s = serializers.IntegerField(
        min_value=0,
        max_value=86_400,
        default=300,
        help_text="So long requests that run there may go on. Asked again, the last word holds.",
    )


class RestartStateSerializer(serializers.Serializer[Any]):
    """A restart that operators asked for and that is not done."""

    phase = serializers.ChoiceField(
        choices=RESTART_PHASES,
        help_text="`asked`: its engine was not told yet. `ending`: it waits for its requests. `starting`: it ended.",
    )
    asked_at = serializers.DateTimeField()
    wait_s = serializers.IntegerField()


class _HostSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=HostState.choices)
    service = serializers.ChoiceField(
        choices=HostService.choices, help_text="What operators want of it. Cordoned and drained hosts get nothing new."
    )
    restart = RestartStateSerializer(allow_null=True, required=False)
    quarantine = QuarantineSerializer(
        allow_null=True, help_text="Why it gets neither adapters nor requests; null if it does."
    )
    boot_id = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    device = serializers.CharField(allow_blank=True)
    pool = PoolSerializer()
    page_bytes = serializers.IntegerField(help_text="One page over all layers.")
    load_times = LoadTimeSerializer(many=True, required=False)
    adapters_total = serializers.IntegerField(help_text="`adapters` shows at most 256, the busiest first.")
    last_seen = serializers.DateTimeField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **fields_of(SHOWN)}


class HostSerializer(_HostSerializer):
    """An engine host by its last heartbeat: its load as a whole, and the tenant's own adapters on it."""

    share = ShareSerializer(
        allow_null=True, required=False, help_text="The tenant's own; null while it has nothing there."
    )
    adapters = ResidentAdapterSerializer(many=True)


class JoinedHostSerializer(serializers.Serializer[Any]):
    """The membership of a host that joined, with a credential of its own."""

    at = serializers.DateTimeField()
    certificate_expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class LastEndSerializer(serializers.Serializer[Any]):
    """The end of an engine that did not stop normally."""

    reason = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="Null where nobody knows.")


class OperatorHostSerializer(_HostSerializer):
    """An engine host by its last heartbeat, with every tenant's adapters."""

    address = serializers.CharField()
    zone = serializers.CharField(allow_blank=True, help_text="Where it says that it is (`--zone`).")
    adapter_readers = serializers.IntegerField(help_text="Other hosts that read an adapter from this one now.")
    engine_version = serializers.CharField(
        allow_blank=True, required=False, help_text="The release of its engine, and the commit of the build."
    )
    clock_ahead_s = serializers.FloatField(
        allow_null=True,
        required=False,
        help_text="How far its clock is ahead of the database's; negative: behind; null while it does not answer.",
    )
    joined = JoinedHostSerializer(allow_null=True, help_text="Null of a host of the settings.")
    only_here = serializers.IntegerField(help_text="Versions that can be called on no other serving host.")
    last_end = LastEndSerializer(
        allow_null=True,
        required=False,
        help_text="Why the engine before the one that runs ended; null if that was as it should be.",
    )
    base_digest = serializers.CharField(allow_blank=True)
    shares = TenantShareSerializer(many=True, required=False, help_text="The 100 tenants with the longest queues.")
    adapters = OperatorResidentAdapterSerializer(many=True)
