from datetime import date
from functools import cached_property
from typing import Any

from rest_framework import serializers

from control_plane.billing.archives.reading import archived_until
from control_plane.billing.reports.models import Cadence, Export, ExportState, Grain
from control_plane.billing.usage.ledger_archive import LEDGER_NAME
from control_plane.billing.usage.models import Outcome
from control_plane.billing.usage.serializers import (
    BaseModelUsageSerializer,
    DayUsageSerializer,
    LatencySerializer,
    UsageTotalsSerializer,
)
from control_plane.core.http.serializers import AccountField

LINE_KINDS = [
    "input", "cached_input", "output", "batch_input", "batch_cached_input", "batch_output", "storage",
]  # fmt: skip


class StatementLineSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=LINE_KINDS)
    base_model = serializers.CharField(
        allow_null=True,
        help_text="Current name of the base model whose own prices apply; null: the installation's prices.",
    )
    first = serializers.DateField()
    last = serializers.DateField()
    price_version = serializers.IntegerField()
    unit_price_micros = serializers.IntegerField(
        help_text="Millionths of the currency for a million tokens; for storage, for 10^9 bytes a month."
    )
    quantity = serializers.IntegerField(help_text="Number of tokens; for storage, bytes x hours.")
    amount_micros = serializers.IntegerField()


class StatementSerializer(serializers.Serializer[Any]):
    """A statement of a month. Amounts are millionths of the currency."""

    month = serializers.CharField()
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: there were no prices."
    )
    as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="Time up to which all stored usage is in the sums; null: nothing has been summed yet.",
    )
    complete = serializers.BooleanField(help_text="True: the month is over, and all its usage is in the sums.")
    lines = StatementLineSerializer(many=True)
    total_micros = serializers.IntegerField()


class TenantUsageSerializer(UsageTotalsSerializer):
    tenant = serializers.CharField()
    name = serializers.CharField()
    refused = serializers.IntegerField(
        help_text="Number of requests that were refused by an engine or before they reached one."
    )
    failed = serializers.IntegerField()
    device_share = serializers.FloatField(
        help_text="Tenant's share of the device time of all tenants in the report, 0 to 1."
    )
    latency = LatencySerializer()


class TopAdapterSerializer(UsageTotalsSerializer):
    tenant = serializers.CharField()
    adapter = serializers.CharField(
        allow_null=True, help_text="Name of the adapter; null: the base model without an adapter."
    )
    device_share = serializers.FloatField()


class OutcomeCountsSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {outcome: serializers.IntegerField() for outcome in Outcome.values}


class OperatorReportSerializer(serializers.Serializer[Any]):
    first = serializers.DateField()
    last = serializers.DateField()
    as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="Time up to which all stored usage is in the sums; null: nothing has been summed yet.",
    )
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: there are no prices, and every cost is 0."
    )
    totals = UsageTotalsSerializer()
    outcomes = OutcomeCountsSerializer(
        help_text="Number of requests by outcome; filtered by base model, only those that reached an engine."
    )
    latency = LatencySerializer()
    by_day = DayUsageSerializer(many=True)
    by_base_model = BaseModelUsageSerializer(many=True)
    tenants = serializers.IntegerField(help_text="Number of tenants with requests, refused ones included.")
    by_tenant = TenantUsageSerializer(many=True, help_text="Tenants with most device time, at most a hundred.")
    top_adapters = TopAdapterSerializer(many=True)


class ExportSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    first = serializers.DateField()
    last = serializers.DateField()
    grain = serializers.ChoiceField(choices=Grain.choices)
    state = serializers.ChoiceField(choices=ExportState.choices)
    lines = serializers.IntegerField()
    bytes = serializers.IntegerField()
    scheduled = serializers.BooleanField(help_text="True: the export was made by a schedule.")
    created_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the file was complete; null: it is not yet."
    )
    file_name = serializers.CharField()
    note = serializers.SerializerMethodField(
        help_text="Place of single requests of archived months; empty: none of the export are archived."
    )

    def get_note(self, export: Export) -> str:
        until = self._archived_until
        if until is None or export.first >= until:
            return ""
        return (
            f"The file is made from sums, which are exact. Single requests before {until} are archived: the operator "
            "of this installation can read them with manage.py read_archive."
        )

    @cached_property
    def _archived_until(self) -> date | None:
        # Once for a list: its rows share this serializer.
        return archived_until(LEDGER_NAME)


class ExportScheduleSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    cadence = serializers.ChoiceField(choices=Cadence.choices)
    grain = serializers.ChoiceField(choices=Grain.choices)
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "created the schedule")
