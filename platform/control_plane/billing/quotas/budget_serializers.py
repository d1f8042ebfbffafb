from typing import Any

from rest_framework import serializers

from control_plane.billing.quotas.models import AtLimit

# Largest budget, in millionths: a thousand million of the currency.
MAX_MICROS = 10**15


class BudgetSerializer(serializers.Serializer[Any]):
    amount_micros = serializers.IntegerField(
        min_value=1, max_value=MAX_MICROS, help_text="Amount of the budget, in millionths of the price list's currency."
    )
    at_limit = serializers.ChoiceField(
        choices=AtLimit.choices,
        default=AtLimit.REFUSE,
        help_text="Action when the amount is spent; refuse: 402 `budget_exceeded`; warn: only send alerts.",
    )
    alerts = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=1000),
        max_length=8,
        default=lambda: [50, 80, 100],
        help_text="Percentages of the amount at which webhooks and the console send an alert.",
    )


class BudgetsSerializer(serializers.Serializer[Any]):
    """The budgets of a day and a month. One that is left out or null is lifted."""

    day = BudgetSerializer(allow_null=True, default=None, help_text="Budget of a UTC day; null: no budget.")
    month = BudgetSerializer(allow_null=True, default=None, help_text="Budget of a UTC month; null: no budget.")


class BudgetStateSerializer(BudgetSerializer):
    spent_micros = serializers.IntegerField(
        help_text="Amount spent in the period, in millionths of the currency, without running requests."
    )
    reached = serializers.IntegerField(
        allow_null=True, help_text="Highest alert threshold that is reached, in per cent of the amount; null: none."
    )


class BudgetStatesSerializer(serializers.Serializer[Any]):
    day = BudgetStateSerializer(allow_null=True, help_text="Budget of a UTC day; null: there is none.")
    month = BudgetStateSerializer(allow_null=True, help_text="Budget of a UTC month; null: there is none.")


class KeyBudgetsSerializer(BudgetStatesSerializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()


class BudgetReportSerializer(serializers.Serializer[Any]):
    currency = serializers.CharField(
        allow_null=True, help_text="ISO 4217 code of the currency; null: there are no prices, so no budget can be set."
    )
    granted = BudgetStatesSerializer(help_text="Budgets that the operator set for the tenant.")
    own = BudgetStatesSerializer(
        help_text="Budgets that the tenant set for itself; the operator's budgets apply as well."
    )
    keys = KeyBudgetsSerializer(
        many=True, help_text="Unrevoked API keys with a budget: the 50 with the smallest share of it left."
    )
    keys_total = serializers.IntegerField(help_text="Number of unrevoked API keys with a budget.")
