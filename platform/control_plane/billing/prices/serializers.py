from typing import Any

from rest_framework import serializers

from control_plane.billing.prices.models import HIGHEST
from control_plane.core.http.serializers import AccountField, FormField, NameField


class AmountField(serializers.IntegerField):
    """An amount in whole millionths of the currency."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=HIGHEST, **options)


class _BatchAmountsSerializer(serializers.Serializer[Any]):
    batch_input_per_million = AmountField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Millionths of the currency for a million prompt tokens in batches; null: as outside batches.",
    )
    batch_cached_input_per_million = AmountField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Millionths of the currency for a million cached prompt tokens in batches; null: as outside batches.",
    )
    batch_output_per_million = AmountField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Millionths of the currency for a million output tokens in batches; null: as outside batches.",
    )


class NewPricesSerializer(_BatchAmountsSerializer):
    effective_on = serializers.DateField(help_text="First day of the prices, from midnight UTC.")
    base_model_digest = NameField(
        max_length=71,
        required=False,
        allow_null=True,
        default=None,
        help_text="Digest of the base model that gets its own list; null: the installation's list.",
    )
    currency = FormField(
        r"^[A-Z]{3}\Z",
        form="three capital letters, such as USD",
        help_text="ISO 4217 code of the currency, such as USD.",
    )
    input_per_million = AmountField(help_text="Price of a million prompt tokens, in millionths of the currency.")
    cached_input_per_million = AmountField(
        help_text="Price of a million prompt tokens from the prefix cache, in millionths of the currency."
    )
    output_per_million = AmountField()
    storage_per_gb_month = AmountField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Millionths of the currency for 10^9 bytes of adapters a month; null: in a base model's list,"
        " which has none.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        of_base, storage = attrs["base_model_digest"] is not None, attrs["storage_per_gb_month"]
        if of_base and storage is not None:
            raise serializers.ValidationError(
                {"storage_per_gb_month": "A base model's list has no price of storage: the installation's has it."}
            )
        if not of_base and storage is None:
            raise serializers.ValidationError({"storage_per_gb_month": "Send a price; 0 if storage is free."})
        return attrs


class EndPricesSerializer(serializers.Serializer[Any]):
    base_model_digest = NameField(max_length=71, help_text="Digest of the base model whose own prices end.")
    effective_on = serializers.DateField(
        help_text="First day on which the installation's list applies to the base model, from midnight UTC."
    )


class PriceVersionSerializer(_BatchAmountsSerializer):
    """A version of one list. Of requests the base model's own list counts, if it has one on their day, or else the
    installation's."""

    number = serializers.IntegerField()
    base_model = serializers.CharField(
        source="base_model.name",
        default=None,
        allow_null=True,
        help_text="Current name of the base model of the list; null: the installation's list.",
    )
    base_model_digest = serializers.CharField(
        source="base_model.digest",
        default=None,
        allow_null=True,
        help_text="Digest of the base model of the list; null: the installation's list.",
    )
    inherits = serializers.BooleanField(
        help_text="True: the base model has no list of its own from `effective_on`; every amount is 0."
    )
    effective_on = serializers.DateField(help_text="First day of the prices, from midnight UTC.")
    currency = serializers.CharField()
    input_per_million = serializers.IntegerField()
    cached_input_per_million = serializers.IntegerField()
    output_per_million = serializers.IntegerField()
    storage_per_gb_month = serializers.SerializerMethodField(
        help_text="Millionths of the currency for 10^9 bytes of adapters a month; null: a base model's list."
    )
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "published the prices")

    def get_storage_per_gb_month(self, version: Any) -> int | None:
        return None if version.base_model_id else version.storage_per_gb_month
