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
        choices=AtLimit.choices, default=AtLimit.REFUSE, help_text="refuse: 402 `budget_exceeded`; warn: only tell."
    )
    alerts = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=1000),
        max_length=8,
        default=lambda: [50, 80, 100],
        help_text="Per cent of the amount at which webhooks and the console tell.",
    )


class BudgetsSerializer(serializers.Serializer[Any]):
    """The budgets of a day and a month. One that is left out or null is lifted."""

    day = BudgetSerializer(allow_null=True, default=None)
    month = BudgetSerializer(allow_null=True, default=None)


class BudgetStateSerializer(BudgetSerializer):
    spent_micros = serializers.IntegerField(help_text="By the ledger; what runs is not in it.")
    reached = serializers.IntegerField(allow_null=True, help_text="The highest threshold that is passed, in per cent.")


class BudgetStatesSerializer(serializers.Serializer[Any]):
    day = BudgetStateSerializer(allow_null=True)
    month = BudgetStateSerializer(allow_null=True)


class KeyBudgetsSerializer(BudgetStatesSerializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()


class BudgetReportSerializer(serializers.Serializer[Any]):
    currency = serializers.CharField(allow_null=True, help_text="Null: there are no prices, so no budget can be set.")
    granted = BudgetStatesSerializer(help_text="By the operator.")
    own = BudgetStatesSerializer(help_text="By the tenant itself; all hold.")
    keys = KeyBudgetsSerializer(many=True, help_text="Of the keys that have one, the 50 with the least left.")
    keys_total = serializers.IntegerField(help_text="Keys that have one.")
