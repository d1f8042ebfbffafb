from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.billing.usage.counters import SHOWN
from control_plane.billing.usage.models import ApiEndpoint, Outcome, UsageEvent
from control_plane.billing.usage.payloads import base_model_of, spans_json
from control_plane.billing.usage.series import RANGES, PartSort
from control_plane.billing.usage.sums import COUNTED
from control_plane.core.http.lists import MAX_ROWS
from control_plane.core.http.serializers import FormField, MomentField

HELP = {
    "device_us": "Share of the devices' time, in microseconds.",
    "drafted_tokens": "Drafts of speculation that were computed; no tokens of the answer, never billed.",
    "accepted_tokens": "Completion tokens that were drafted, each of which saved a step.",
    "auth_ms": "Finding the key, the adapter and its hosts.",
    "quota_ms": "Checking limits and budgets.",
    "preemptions": "How often it was taken out of the batch for others.",
    "preempted_ms": "How long it was out of the batch, over all its choices.",
}


def _counters(names: Iterable[str]) -> dict[str, serializers.IntegerField]:
    return {name: serializers.IntegerField(help_text=HELP.get(name)) for name in names}


class PreemptionSpanSerializer(serializers.Serializer[Any]):
    at_ms = serializers.IntegerField(
        help_text="Milliseconds from the engine's receipt of the request to the pre-emption."
    )
    ms = serializers.IntegerField(help_text="Milliseconds until the request ran again.")


class RequestRecordSerializer(serializers.Serializer[Any]):
    """A request of the ledger. Neither prompt nor output is kept."""

    id = serializers.CharField(source="request_id")
    created_at = serializers.DateTimeField()
    model = serializers.CharField(help_text="Model name as the client wrote it.")
    adapter = serializers.CharField(source="adapter.name", default=None, allow_null=True)
    version = serializers.IntegerField(source="version.number", default=None, allow_null=True)
    base_model = serializers.SerializerMethodField(
        help_text="Base model on which the request ran, by its present name; null for several adapters as "
        "one, and in rows older than this field."
    )
    endpoint = serializers.ChoiceField(choices=ApiEndpoint.choices)
    streamed = serializers.BooleanField()
    batch = serializers.BooleanField(help_text="Whether it is a line of a batch.")
    outcome = serializers.ChoiceField(choices=Outcome.choices)
    error_code = serializers.CharField(allow_blank=True)
    host = serializers.CharField(allow_blank=True)
    key = serializers.CharField(
        source="api_key.name", default=None, allow_null=True, help_text="API key; null = the console."
    )

    finish_reason = serializers.CharField(
        allow_blank=True,
        help_text='Finish reasons of the choices, separated by commas: "stop", "length", "tool_calls"; '
        "empty if unknown.",
    )
    adapter_loaded_from = serializers.CharField(
        allow_blank=True, help_text='Tier from which the adapter was loaded while the request waited: "disk" or "host".'
    )
    preemption_spans = serializers.SerializerMethodField(help_text="First 16 pre-emptions.")
    ignored = serializers.SerializerMethodField(
        help_text="The first 16 fields of the request that were left out, as in its header X-Lorikeet-Ignored."
    )
    schema_violations = serializers.SerializerMethodField(
        help_text="The first 8 keywords of the request's schema that the answer violates, by their paths."
    )
    cost_micros = serializers.IntegerField(
        allow_null=True, help_text="Cost in millionths of the currency; null = there are no prices."
    )
    currency = serializers.CharField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **_counters(SHOWN)}

    def get_base_model(self, row: UsageEvent) -> str | None:
        return base_model_of(row, {row.base_model.pk: row.base_model.name} if row.base_model else {})

    def get_ignored(self, row: UsageEvent) -> list[str]:
        return row.ignored or []

    def get_schema_violations(self, row: UsageEvent) -> list[str]:
        return row.schema_violations or []

    @extend_schema_field(PreemptionSpanSerializer(many=True))
    def get_preemption_spans(self, row: UsageEvent) -> list[dict[str, int]]:
        return spans_json(row)


_KEY = r"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|console)?$"


def _text(most: int, help_text: str) -> serializers.CharField:
    return serializers.CharField(max_length=most, required=False, default="", allow_blank=True, help_text=help_text)


def _least(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=0, max_value=2_000_000_000, required=False, default=None, help_text=help_text
    )


class OfBaseModelSerializer(serializers.Serializer[Any]):
    base_model = _text(200, "Only what ran on this one, by its name now; one that was withdrawn too.")


class RequestFiltersSerializer(serializers.Serializer[Any]):
    """The filters of requests; all must match."""

    id = _text(64, "Of the request, whole.")
    model = _text(200, "Part of the model as the client wrote it.")
    adapter = _text(64, "Its name, whole.")
    adapter_contains = _text(64, "Part of its name.")
    version = serializers.IntegerField(
        min_value=1,
        max_value=2_000_000_000,
        required=False,
        default=None,
        help_text="Number of a version of the adapter.",
    )
    base_model = _text(200, "On which it ran, by its name now.")
    key = FormField(
        _KEY,
        form="the id of an API key, or console",
        required=False,
        default="",
        allow_blank=True,
        help_text='An API key\'s id, or "console".',
    )
    outcome = serializers.ChoiceField(choices=Outcome.choices, required=False, default="", allow_blank=True)
    error = _text(64, "An error's code.")
    host = _text(64, "Its name, whole.")
    min_ms = _least("All phases together took at least so many milliseconds.")
    min_first_token_ms = _least("So did the first token.")
    min_tokens = _least("Prompt and output together.")
    since = MomentField(required=False, default=None, help_text="Earliest time of the requests, included.")
    until = MomentField(required=False, default=None, help_text="Time before which the requests lie.")


class RequestPageSerializer(serializers.Serializer[Any]):
    results = RequestRecordSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null at the end.")
    archived_before = serializers.DateField(
        required=False,
        allow_null=True,
        help_text="Day before whose month requests are archived, on the last page; reports and exports "
        "still count them. Null if none are.",
    )


class UsageTotalsSerializer(serializers.Serializer[Any]):
    cost_micros = serializers.IntegerField(help_text="Millionths of the currency, without storage.")

    def get_fields(self) -> dict[str, Any]:
        return {**_counters(COUNTED), **super().get_fields()}


class PercentilesSerializer(serializers.Serializer[Any]):
    """The percentiles of a latency in milliseconds; null if nothing was measured."""

    p50_ms = serializers.FloatField(allow_null=True)
    p95_ms = serializers.FloatField(allow_null=True)
    p99_ms = serializers.FloatField(allow_null=True)


class LatencySerializer(serializers.Serializer[Any]):
    first_token = PercentilesSerializer()
    inter_token = PercentilesSerializer()


class DayUsageSerializer(UsageTotalsSerializer):
    date = serializers.DateField(help_text="Day, in UTC.")


class AdapterUsageSerializer(UsageTotalsSerializer):
    adapter = serializers.CharField(allow_null=True, help_text="Name of the adapter; null = the base model.")


class BaseModelUsageSerializer(UsageTotalsSerializer):
    base_model = serializers.CharField(
        allow_null=True, help_text="Present name of the base model; null for requests older than this field."
    )


class KeyUsageSerializer(UsageTotalsSerializer):
    key = serializers.CharField(allow_null=True, help_text="API key; null = members in the console.")
    prefix = serializers.CharField(allow_null=True)


class UsageReportSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True, help_text="Time until which everything stored is in these sums.")
    currency = serializers.CharField(
        allow_null=True, help_text="Currency of the prices; null = there are none, and every cost is 0."
    )
    totals = UsageTotalsSerializer()
    by_day = DayUsageSerializer(many=True)
    by_adapter = AdapterUsageSerializer(many=True)
    by_base_model = BaseModelUsageSerializer(many=True)
    by_key = KeyUsageSerializer(many=True)
    latency = LatencySerializer()


class OutcomesSerializer(serializers.Serializer[Any]):
    """The number of requests by their outcome in an engine."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {outcome: serializers.IntegerField() for outcome in Outcome.values}


class SeriesTotalsSerializer(UsageTotalsSerializer):
    outcomes = OutcomesSerializer()
    mean_queue_ms = serializers.FloatField(allow_null=True)
    mean_adapter_load_ms = serializers.FloatField(allow_null=True)
    drafted_tokens = serializers.IntegerField(help_text=HELP["drafted_tokens"])
    accepted_tokens = serializers.IntegerField(help_text=HELP["accepted_tokens"])
    latency = LatencySerializer(help_text="Latencies of answered requests, without batches.")


class SeriesPointSerializer(SeriesTotalsSerializer):
    at = serializers.DateTimeField(
        help_text="Time at which the step begins; the first and the last step count only what lies in the window."
    )


_STEPS = "Of the ten parts with most device time; empty for others, and for adapters."


class SeriesPartSerializer(SeriesTotalsSerializer):
    name = serializers.CharField(
        required=False, allow_null=True, help_text="Name; null = the base model, or members in the console."
    )
    prefix = serializers.CharField(required=False, allow_null=True, help_text="Prefix of an API key.")
    version = serializers.IntegerField(required=False, allow_null=True)
    tenant = serializers.CharField(required=False, allow_null=True)
    weight = serializers.FloatField(required=False, help_text="Present weight of a tenant.")
    device_us_by_step = serializers.ListField(child=serializers.IntegerField(), help_text=_STEPS)
    requests_by_step = serializers.ListField(child=serializers.IntegerField(), help_text=_STEPS)


class UsagePartSerializer(UsageTotalsSerializer):
    name = serializers.CharField(allow_null=True, help_text="Name; null = the base model, or members in the console.")
    prefix = serializers.CharField(required=False, allow_null=True, help_text="Prefix of an API key.")


class SeriesReportSerializer(serializers.Serializer[Any]):
    """A report over time. Minutes are kept for two days, hours for ninety. Each part lists at most a hundred rows."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="Everything before it is counted; the last step may not be over.")
    step_s = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField(allow_null=True)
    totals = SeriesTotalsSerializer()
    points = SeriesPointSerializer(many=True)
    by_adapter = SeriesPartSerializer(
        many=True, help_text="Parts by adapter, for a tenant; without latencies, which the filter `adapter` returns."
    )
    by_key = SeriesPartSerializer(many=True, help_text="Parts by API key, for a tenant; without latencies.")
    by_version = SeriesPartSerializer(many=True, help_text="Parts by version, for an adapter.")
    by_tenant = SeriesPartSerializer(many=True, help_text="Parts by tenant, for operators.")
    by_host = SeriesPartSerializer(many=True, help_text="Parts by host, for a tenant or for all.")
    by_base_model = SeriesPartSerializer(
        many=True, help_text="Parts by base model; null = requests older than this field; empty for an adapter."
    )


class TimeRangeSerializer(serializers.Serializer[Any]):
    """A window of time: `since` and `until`, or `range` before `until`, or before now."""

    range = serializers.ChoiceField(
        choices=list(RANGES),
        required=False,
        default="1h",
        help_text="Length of the window before `until`, instead of `since`.",
    )
    since = MomentField(
        required=False, default=None, help_text="Start of the window, included, by the minute: see `until`."
    )
    until = MomentField(
        required=False,
        default=None,
        help_text=(
            "End of the window, excluded, so that windows that follow each other add up. Both ends "
            "move back to their minute, or to their hour if they are more than two days ago; the "
            "answer has both. Neither needs to be the start of a step. Without it: now, to the end "
            "of the present step."
        ),
    )
    step = serializers.IntegerField(
        min_value=60,
        max_value=86_400,
        required=False,
        default=None,
        help_text="Seconds of a step; without it, one that fits the window.",
    )


class TenantSeriesQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    adapter = _text(64, "Its name, whole: its versions side by side.")
    version = serializers.IntegerField(
        min_value=1,
        max_value=2_000_000_000,
        required=False,
        default=None,
        help_text="Number of a version of the adapter.",
    )
    host = _text(64, "Its name, whole.")


class UsagePartsQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    by = serializers.ChoiceField(choices=["adapter", "key"])
    search = _text(120, "A part of the name, or of a key's prefix.")
    sort = serializers.ChoiceField(
        choices=PartSort.choices,
        required=False,
        default=PartSort.REQUESTS.value,
        help_text="Column of the order, largest first.",
    )
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, default=0)
    limit = serializers.IntegerField(min_value=1, max_value=MAX_ROWS, required=False, default=50)


class OperatorSeriesQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    tenant = _text(64, "Its slug.")
    host = _text(64, "Its name, whole.")
