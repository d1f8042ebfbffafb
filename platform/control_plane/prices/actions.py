"""Publishing prices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from control_plane.access.actor import Actor
from control_plane.accounts.models import User
from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError
from control_plane.prices.models import PriceVersion


@dataclass(frozen=True)
class PriceList:
    """Amounts in millionths of `currency`."""

    currency: str
    input_per_million: int
    cached_input_per_million: int
    output_per_million: int
    storage_per_gb_month: int
    batch_input_per_million: int | None = None
    batch_cached_input_per_million: int | None = None
    batch_output_per_million: int | None = None


def publish_prices(*, actor: Actor, prices: PriceList, effective_on: date, user: User | None = None) -> PriceVersion:
    """Add a version to the price list.

    Raises LorikeetError (409) for a day that has begun, because days that were shown with a cost must keep it, and
    for another currency, because amounts in two cannot be added up. The very first list may begin in the past.
    """
    with transaction.atomic():
        newest = PriceVersion.objects.select_for_update().order_by("-number").first()
        if newest is not None:
            _check(newest, prices, effective_on)
        number = (PriceVersion.objects.aggregate(last=Max("number"))["last"] or 0) + 1
        version = PriceVersion.objects.create(
            number=number, effective_on=effective_on, created_by=user, **asdict(prices)
        )
        audit.record(
            actor, "prices.publish", version, tenant=None, effective_on=effective_on.isoformat(), **asdict(prices)
        )
    return version


def _check(newest: PriceVersion, prices: PriceList, effective_on: date) -> None:
    today = timezone.now().astimezone(UTC).date()
    if effective_on <= today:
        raise LorikeetError(
            "price_day_has_begun",
            f"{effective_on} has begun; what was used on it has been priced.",
            "Choose tomorrow (UTC) or later.",
            param="effective_on",
            status=409,
        )
    if prices.currency != newest.currency:
        raise LorikeetError(
            "price_currency_differs",
            f"Prices so far are in {newest.currency}; amounts in two currencies cannot be added up.",
            f"Give the prices in {newest.currency}.",
            param="currency",
            status=409,
        )
