"""Costs of single requests, at the prices of their days and base models."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date

from control_plane.billing.prices.money import micros, tokens_cost
from control_plane.billing.prices.periods import BillingPeriod, currency_of, period_of, periods
from control_plane.billing.usage.models import UsageEvent


class RequestCosts:
    """The costs of some requests, with one query for all."""

    def __init__(self, rows: Iterable[UsageEvent]) -> None:
        days = [_day(row) for row in rows]
        self._periods: list[BillingPeriod] = periods(min(days), max(days)) if days else []

    def micros(self, row: UsageEvent) -> int | None:
        """Return a request's cost in millionths of the currency; None if its base model had no price."""
        price = period_of(self._periods, _day(row)).price(row.base_model_id)
        if price is None:
            return None
        prompt, cached, completion = row.prompt_tokens, row.cached_prompt_tokens, row.completion_tokens
        return micros(tokens_cost(price, prompt=prompt, cached=cached, completion=completion, batch=row.batch))

    @property
    def currency(self) -> str | None:
        """The currency of all price lists, which never changes."""
        return currency_of(self._periods)


def _day(row: UsageEvent) -> date:
    return row.created_at.astimezone(UTC).date()
