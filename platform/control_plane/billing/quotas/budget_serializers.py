from typing import Any

from rest_framework import serializers

from control_plane.billing.quotas.models import AtLimit

# Largest budget, in millionths: a thousand million of the currency.
MAX_MICROS = 10**15


class BudgetSerializer(serializers.Serializer[Any]):
    amount_micros = serializers.IntegerField(
        min_value=1, max_value=MAX_MICROS, help_text="Millionths of the currency of the price list."
    )
    at_limit = serializers.ChoiceField(
        choices=AtLimit.choices,
        default=AtLimit.REFUSE,
        help_text="Action at the limit: refuse answers 402 `budget_exceeded`, warn only notifies.",
    )
    alerts = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=1000),
        max_length=8,
        default=lambda: [50, 80, 100],
        help_text="Percentages of the amount at which webhooks and the console notify.",
    )


class BudgetsSerializer(serializers.Serializer[Any]):
    """The budgets of a day and a month. One that is left out or null is lifted."""

    day = BudgetSerializer(allow_null=True, default=None)
    month = BudgetSerializer(allow_null=True, default=None)


class BudgetStateSerializer(BudgetSerializer):
    spent_micros = serializers.IntegerField(
        help_text="Millionths of the currency in the ledger; running requests are not included."
    )
    reached = serializers.IntegerField(allow_null=True, help_text="The highest threshold that is passed, in per cent.")


class BudgetStatesSerializer(serializers.Serializer[Any]):
    day = BudgetStateSerializer(allow_null=True)
    month = BudgetStateSerializer(allow_null=True)


class KeyBudgetsSerializer(BudgetStatesSerializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()


class BudgetReportSerializer(serializers.Serializer[Any]):
    currency = serializers.CharField(
        allow_null=True, help_text="Currency of the prices; null: there are no prices, so no budget can be set."
    )
    granted = BudgetStatesSerializer(help_text="Budget that the operator set.")
    own = BudgetStatesSerializer(help_text="Budget that the tenant set; both apply.")
    keys = KeyBudgetsSerializer(many=True, help_text="Budgets of keys, the 50 with the least left.")
    keys_total = serializers.IntegerField(help_text="Number of keys that have a budget.")
