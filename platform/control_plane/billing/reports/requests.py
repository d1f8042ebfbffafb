"""Parameters of reports."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.billing.reports.models import Cadence, Grain
from control_plane.billing.usage.sums import Span, last_days
from control_plane.core.http.serializers import DayField, require_valid

LONGEST_DAYS = 366


class SpanQuery(serializers.Serializer[dict[str, Any]]):
    """The days of a report: `from` and `to`, or the last `days`."""

    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, default=30)
    grain = serializers.ChoiceField(choices=Grain.choices, default=Grain.DAY)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        ends = {"from": DayField(required=False), "to": DayField(required=False)}
        return {**super().get_fields(), **ends}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        first, last = attrs.get("from"), attrs.get("to")
        if (first is None) != (last is None):
            raise serializers.ValidationError({"from" if first is None else "to": "Give both ends, or days."})
        if first is not None and not 0 <= (last - first).days < LONGEST_DAYS:
            raise serializers.ValidationError({"to": f"It must be 0 to {LONGEST_DAYS - 1} days after from."})
        return attrs

    @property
    def span(self) -> Span:
        values = self.validated_data
        return Span(values["from"], values["to"]) if values.get("from") else last_days(values["days"])

    @property
    def chosen_grain(self) -> Grain:
        return Grain(self.validated_data["grain"])


def read_span(params: Any) -> SpanQuery:
    """Return the span of a query or a body. Raises LorikeetError (400)."""
    query = SpanQuery(data=params)
    require_valid(query)
    return query


class NewExportScheduleSerializer(serializers.Serializer[Any]):
    cadence = serializers.ChoiceField(choices=Cadence.choices)
    grain = serializers.ChoiceField(choices=Grain.choices, default=Grain.DAY)


class NewExportSerializer(serializers.Serializer[Any]):
    """The days of an export: `from` and `to`, or the last `days`."""

    days = serializers.IntegerField(required=False, min_value=1, max_value=LONGEST_DAYS)
    grain = serializers.ChoiceField(choices=Grain.choices, required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        ends = {"from": DayField(required=False), "to": DayField(required=False)}
        return {**super().get_fields(), **ends}
