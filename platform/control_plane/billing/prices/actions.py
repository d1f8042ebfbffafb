"""Actions that publish prices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.signals import use_check
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.access.actor import Actor
from control_plane.identity.accounts.models import User
from control_plane.identity.audit import actions as audit


@dataclass(frozen=True)
class PriceList:
    """The amounts of a list, in millionths of `currency`. A base model's list has no price of storage: it says 0."""

    currency: str
    input_per_million: int
    cached_input_per_million: int
    output_per_million: int
    storage_per_gb_month: int
    batch_input_per_million: int | None = None
    batch_cached_input_per_million: int | None = None
    batch_output_per_million: int | None = None


class UnknownBaseModelError(NotFoundError):
    def __init__(self) -> None:
        super().__init__(
            "This installation has never served a base model with that digest.",
            "GET /api/operator/base-models lists those that it serves.",
            code="base_model_not_found",
            param="base_model_digest",
        )


class NoBasePricesError(LorikeetError):
    def __init__(self, base: BaseModel) -> None:
        super().__init__(
            "no_prices_of_its_own",
            f"{base.name} has no price list that could end.",
            "Nothing needs to be done: the installation's list applies.",
            param="base_model_digest",
            status=409,
        )


def publish_prices(
    *, actor: Actor, prices: PriceList, effective_on: date, user: User | None = None, base: BaseModel | None = None
) -> PriceVersion:
    """Add a version to the installation's price list, or to that of a base model.

    Raises LorikeetError (409) for a day that has begun, as days that were shown with a cost must keep it, and for
    another currency, as amounts in two cannot be added up. The first list of the installation may begin in the past,
    and a base model's on any day since which it had no request.
    """
    with transaction.atomic():
        newest = _newest()
        if newest is not None:
            _check_day(base, effective_on)
            _check_currency(newest, prices)
        version = _add(base, effective_on, user, **asdict(prices))
        audit.record(
            actor,
            "prices.publish",
            version,
            tenant=None,
            base_model=base.name if base else None,
            effective_on=effective_on.isoformat(),
            **asdict(prices),
        )
    return version


def end_base_prices(*, actor: Actor, base: BaseModel, effective_on: date, user: User | None = None) -> PriceVersion:
    """End a base model's own price list: from that day on the installation's list applies to it.

    Raises NoBasePricesError (409) if it has no list, or LorikeetError (409) for a day that has begun.
    """
    with transaction.atomic():
        newest = _newest()
        last = PriceVersion.objects.filter(base_model=base).order_by("effective_on", "number").last()
        if newest is None or last is None or last.inherits:
            raise NoBasePricesError(base)
        _check_day(base, effective_on)
        amounts = PriceList(newest.currency, 0, 0, 0, 0)
        version = _add(base, effective_on, user, inherits=True, **asdict(amounts))
        audit.record(
            actor, "prices.end", version, tenant=None, base_model=base.name, effective_on=effective_on.isoformat()
        )
    return version


def priced_base(digest: str) -> BaseModel:
    """Return a base model, also a withdrawn one, as it may come back. Raises UnknownBaseModelError (404)."""
    row = BaseModel.objects.filter(digest=digest).first()
    if row is None:
        raise UnknownBaseModelError
    return row


def _newest() -> PriceVersion | None:
    """Return the newest version, locked, so that concurrent publications are serialised."""
    return PriceVersion.objects.select_for_update().order_by("-number").first()


def _add(base: BaseModel | None, effective_on: date, user: User | None, **values: object) -> PriceVersion:
    number = (PriceVersion.objects.aggregate(last=Max("number"))["last"] or 0) + 1
    return PriceVersion.objects.create(
        number=number, base_model=base, effective_on=effective_on, created_by=user, **values
    )


def _check_day(base: BaseModel | None, effective_on: date) -> None:
    today = timezone.now().astimezone(UTC).date()
    if effective_on > today:
        return
    if base is None:
        is_priced = PriceVersion.objects.filter(base_model=None).exists()
    else:
        is_priced = any(used for _, used in use_check.send(BaseModel, base=base, day=effective_on))
    if is_priced:
        raise LorikeetError(
            "price_day_has_begun",
            f"{effective_on} has begun; usage on it has been priced.",
            "Choose tomorrow (UTC) or later.",
            param="effective_on",
            status=409,
        )


def _check_currency(newest: PriceVersion, prices: PriceList) -> None:
    if prices.currency != newest.currency:
        raise LorikeetError(
            "price_currency_differs",
            f"The published prices are in {newest.currency}; amounts in two currencies cannot be added up.",
            f"Give the prices in {newest.currency}.",
            param="currency",
            status=409,
        )
