from typing import Any

from rest_framework import serializers

from control_plane.prices.models import HIGHEST


class AmountField(serializers.IntegerField):
    """Whole millionths of the currency."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=HIGHEST, **options)


class NewPricesSerializer(serializers.Serializer[Any]):
    effective_on = serializers.DateField(help_text="From midnight UTC on.")
    currency = serializers.RegexField(r"^[A-Z]{3}\Z", help_text="ISO 4217, like USD.")
    input_per_million = AmountField(help_text="Millionths of the currency for a million prompt tokens.")
    cached_input_per_million = AmountField()
    output_per_million = AmountField()
    storage_per_gb_month = AmountField()
    batch_input_per_million = AmountField(
        required=False, allow_null=True, default=None, help_text="Of batches; null = as of other requests."
    )
    batch_cached_input_per_million = AmountField(required=False, allow_null=True, default=None)
    batch_output_per_million = AmountField(required=False, allow_null=True, default=None)


class PriceVersionSerializer(NewPricesSerializer):
    number = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(source="created_by.email", default=None, allow_null=True)
