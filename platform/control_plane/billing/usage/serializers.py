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
    "device_us": "Device time in microseconds; requests in a batch share it in proportion to their tokens.",
    "drafted_tokens": "Number of draft tokens that speculative decoding computed; they are never billed.",
    "accepted_tokens": "Number of completion tokens that were accepted draft tokens; each saved a decoding step.",
    "auth_ms": "Milliseconds to authenticate the request and to find the adapter and its hosts.",
    "quota_ms": "Milliseconds to check limits and budgets.",
    "preemptions": "Number of times that the request was pre-empted.",
    "preempted_ms": "Milliseconds outside the batch after pre-emptions, summed over all choices.",
}


def _counters(names: Iterable[str]) -> dict[str, serializers.IntegerField]:
    return {name: serializers.IntegerField(help_text=HELP.get(name)) for name in names}


class PreemptionSpanSerializer(serializers.Serializer[Any]):
    at_ms = serializers.IntegerField(
        help_text="Start of the pre-emption, in milliseconds since the request was submitted to an engine."
    )
    ms = serializers.IntegerField(help_text="Duration of the pre-emption in milliseconds, until the request ran again.")


class RequestRecordSerializer(serializers.Serializer[Any]):
    """A request of the ledger. Neither prompt nor output is kept."""

    id = serializers.CharField(source="request_id")
    created_at = serializers.DateTimeField()
    model = serializers.CharField(help_text="Model name as the client wrote it.")
    adapter = serializers.CharField(
        source="adapter.name",
        default=None,
        allow_null=True,
        help_text="Name of the adapter; null: the base model without an adapter.",
    )
    version = serializers.IntegerField(
        source="version.number",
        default=None,
        allow_null=True,
        help_text="Version number of the adapter; null: the base model without an adapter.",
    )
    base_model = serializers.SerializerMethodField(
        help_text="Current name of the base model that ran the request; null: not recorded."
    )
    endpoint = serializers.ChoiceField(choices=ApiEndpoint.choices)
    streamed = serializers.BooleanField()
    batch = serializers.BooleanField(help_text="True: the request is a line of a batch.")
    outcome = serializers.ChoiceField(choices=Outcome.choices)
    error_code = serializers.CharField(allow_blank=True)
    host = serializers.CharField(allow_blank=True)
    key = serializers.CharField(
        source="api_key.name",
        default=None,
        allow_null=True,
        help_text="Name of the API key; null: a member in the console.",
    )

    finish_reason = serializers.CharField(
        allow_blank=True,
        help_text='Finish reasons of the choices, by commas: "stop", "length", "tool_calls"; empty: unknown.',
    )
    adapter_loaded_from = serializers.CharField(
        allow_blank=True,
        help_text='Tier from which the adapter was loaded while the request waited: "disk" or "host"; empty: no wait.',
    )
    preemption_spans = serializers.SerializerMethodField(help_text="First 16 pre-emptions of the request.")
    ignored = serializers.SerializerMethodField(
        help_text="First 16 fields of the request that were ignored, as in the response header X-Lorikeet-Ignored."
    )
    schema_violations = serializers.SerializerMethodField(
        help_text="Paths of the first 8 keywords of the request's schema that the output violates."
    )
    cost_micros = serializers.IntegerField(
        allow_null=True, help_text="Cost in millionths of the currency; null: the request had no price."
    )
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: the request had no price."
    )

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
    base_model = _text(200, "Current name of a base model, which may be withdrawn; left out: all base models.")


class RequestFiltersSerializer(serializers.Serializer[Any]):
    """The filters of requests; all must match."""

    id = _text(64, "Full id of the request.")
    model = _text(200, "Part of the model name as the client wrote it.")
    adapter = _text(64, "Full name of the adapter.")
    adapter_contains = _text(64, "Part of the adapter's name.")
    version = serializers.IntegerField(
        min_value=1, max_value=2_000_000_000, required=False, default=None, help_text="Version number of the adapter."
    )
    base_model = _text(200, "Current name of the base model that ran the request.")
    key = FormField(
        _KEY,
        form="the id of an API key, or console",
        required=False,
        default="",
        allow_blank=True,
        help_text='Id of an API key, or "console": requests of members in the console.',
    )
    outcome = serializers.ChoiceField(choices=Outcome.choices, required=False, default="", allow_blank=True)
    error = _text(64, "Full error code of the request.")
    host = _text(64, "Full name of a host.")
    min_ms = _least("Minimum time of all phases of a request together, in milliseconds.")
    min_first_token_ms = _least("Minimum time to the first token, in milliseconds.")
    min_tokens = _least("Minimum number of prompt and output tokens together.")
    since = MomentField(required=False, default=None, help_text="Only requests that came in at this time or later.")
    until = MomentField(required=False, default=None, help_text="Only requests that came in before this time.")


class RequestPageSerializer(serializers.Serializer[Any]):
    results = RequestRecordSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True, help_text="`cursor` of the next page; null at the end.")
    archived_before = serializers.DateField(
        required=False,
        allow_null=True,
        help_text="Day before whose month requests are archived, on the last page; reports and exports still count "
        "them. Null if none are.",
    )


class UsageTotalsSerializer(serializers.Serializer[Any]):
    cost_micros = serializers.IntegerField(
        allow_null=True,
        help_text="Cost in millionths of the currency of the requests that had a price, without storage; null: none of "
        "the requests had one.",
    )

    def get_fields(self) -> dict[str, Any]:
        return {**_counters(COUNTED), **super().get_fields()}


class PercentilesSerializer(serializers.Serializer[Any]):
    """The percentiles of a latency in milliseconds; null if nothing was measured."""

    p50_ms = serializers.FloatField(allow_null=True, help_text="Median; null: nothing was measured.")
    p95_ms = serializers.FloatField(allow_null=True, help_text="95th percentile; null: nothing was measured.")
    p99_ms = serializers.FloatField(allow_null=True, help_text="99th percentile; null: nothing was measured.")


class LatencySerializer(serializers.Serializer[Any]):
    first_token = PercentilesSerializer()
    inter_token = PercentilesSerializer()


class DayUsageSerializer(UsageTotalsSerializer):
    date = serializers.DateField(help_text="Day (UTC) that the figures cover.")


class AdapterUsageSerializer(UsageTotalsSerializer):
    adapter = serializers.CharField(
        allow_null=True, help_text="Name of the adapter; null: the base model without an adapter."
    )


class BaseModelUsageSerializer(UsageTotalsSerializer):
    base_model = serializers.CharField(
        allow_null=True, help_text="Current name of the base model; null: requests without a recorded base model."
    )


class KeyUsageSerializer(UsageTotalsSerializer):
    key = serializers.CharField(allow_null=True, help_text="Name of the API key; null: members in the console.")
    prefix = serializers.CharField(allow_null=True, help_text="Prefix of the API key; null: members in the console.")


class UsageReportSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField()
    as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="Time up to which all stored usage is in the sums; null: nothing has been summed yet.",
    )
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: there are no prices."
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
    mean_queue_ms = serializers.FloatField(
        allow_null=True, help_text="Mean time in the engines' queues in milliseconds; null: there were no requests."
    )
    mean_adapter_load_ms = serializers.FloatField(
        allow_null=True,
        help_text="Mean time for which a request waited for its adapter, in milliseconds; null: there were no "
        "requests.",
    )
    drafted_tokens = serializers.IntegerField(help_text=HELP["drafted_tokens"])
    accepted_tokens = serializers.IntegerField(help_text=HELP["accepted_tokens"])
    latency = LatencySerializer(help_text="Latencies of answered requests, without batches.")


class SeriesPointSerializer(SeriesTotalsSerializer):
    at = serializers.DateTimeField(
        help_text="Start of the step; the first and the last step count only their part inside the window."
    )


_STEPS = "by step, of the ten rows with most device time; empty for other rows and for adapters."


class SeriesPartSerializer(SeriesTotalsSerializer):
    name = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Name of the row; null: the base model itself, members in the console, or not recorded.",
    )
    prefix = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Prefix of the API key; null or absent: the row is not of an API key.",
    )
    version = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="Number of the version; null: the base model itself; absent: the row is not of a version.",
    )
    tenant = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Short name of the tenant; null or absent: the row is not of a tenant.",
    )
    weight = serializers.FloatField(
        required=False,
        help_text="Current weight of the tenant, its relative share of full hosts; absent: not of a tenant.",
    )
    device_us_by_step = serializers.ListField(
        child=serializers.IntegerField(), help_text=f"Device time in microseconds {_STEPS}"
    )
    requests_by_step = serializers.ListField(child=serializers.IntegerField(), help_text=f"Number of requests {_STEPS}")


class UsagePartSerializer(UsageTotalsSerializer):
    name = serializers.CharField(
        allow_null=True,
        help_text="Name of the adapter or API key; null: the base model itself, or members in the console.",
    )
    prefix = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Prefix of the API key; null or absent: the row is not of an API key.",
    )


class SeriesReportSerializer(serializers.Serializer[Any]):
    """A report over time. Minutes are kept for two days, hours for ninety. Each part lists at most a hundred rows."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="End of the window, exclusive; the last step may not be over yet.")
    step_s = serializers.IntegerField()
    as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="Time up to which all stored usage is in the sums; null: nothing has been summed yet.",
    )
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: there are no prices."
    )
    totals = SeriesTotalsSerializer()
    points = SeriesPointSerializer(many=True)
    by_adapter = SeriesPartSerializer(
        many=True, help_text="Usage by adapter in a tenant's report; for latencies, filter by `adapter`."
    )
    by_key = SeriesPartSerializer(many=True, help_text="Usage by API key in a tenant's report; without latencies.")
    by_version = SeriesPartSerializer(many=True, help_text="Usage by version in an adapter's report.")
    by_tenant = SeriesPartSerializer(many=True, help_text="Usage by tenant in an operator's report of all tenants.")
    by_host = SeriesPartSerializer(many=True, help_text="Usage by host in a report of one tenant or of all tenants.")
    by_base_model = SeriesPartSerializer(
        many=True, help_text="Usage by base model; null name: none was recorded. Empty in an adapter's report."
    )


class TimeRangeSerializer(serializers.Serializer[Any]):
    """A window of time: `since` and `until`, or `range` before `until`, or before now."""

    range = serializers.ChoiceField(
        choices=list(RANGES),
        required=False,
        default="1h",
        help_text="Length of the window before `until`; ignored if `since` is sent.",
    )
    since = MomentField(
        required=False,
        default=None,
        help_text="Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.",
    )
    until = MomentField(
        required=False,
        default=None,
        help_text=(
            "End of the window, exclusive: adjacent windows add up. Both ends are rounded down to "
            "the minute, or to the hour if they are more than two days ago; the response contains both. They "
            "need not be at the start of a step. Left out: the end of the current step."
        ),
    )
    step = serializers.IntegerField(
        min_value=60,
        max_value=86_400,
        required=False,
        default=None,
        help_text="Length of a step in seconds; left out: chosen by the length of the window.",
    )


class TenantSeriesQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    adapter = _text(64, "Full name of an adapter, whose versions are reported side by side.")
    version = serializers.IntegerField(
        min_value=1,
        max_value=2_000_000_000,
        required=False,
        default=None,
        help_text="Version number of `adapter`; left out: all.",
    )
    host = _text(64, "Full name of a host.")


class UsagePartsQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    by = serializers.ChoiceField(choices=["adapter", "key"])
    search = _text(120, "Part of the name, or of an API key's prefix.")
    sort = serializers.ChoiceField(
        choices=PartSort.choices,
        required=False,
        default=PartSort.REQUESTS.value,
        help_text="Figure to sort by, the largest first.",
    )
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, default=0)
    limit = serializers.IntegerField(min_value=1, max_value=MAX_ROWS, required=False, default=50)


class OperatorSeriesQuerySerializer(TimeRangeSerializer, OfBaseModelSerializer):
    tenant = _text(64, "Slug of a tenant; left out: all tenants.")
    host = _text(64, "Full name of a host.")
