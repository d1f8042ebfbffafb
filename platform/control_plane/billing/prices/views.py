"""Price lists, read by tenants and written by operators."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.prices.actions import PriceList, end_base_prices, priced_base, publish_prices
from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.serializers import (
    EndPricesSerializer,
    NewPricesSerializer,
    PriceVersionSerializer,
)
from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, ErrorResponseSerializer, validated
from control_plane.identity.access.operator import OperatorView
from control_plane.identity.access.views import TenantView


def _all() -> Response:
    versions = PriceVersion.objects.select_related("created_by", "base_model").order_by("-number")
    return Response(PriceVersionSerializer(versions, many=True).data)


_PUBLISHED = {201: PriceVersionSerializer, 400: ErrorResponseSerializer} | NOT_FOUND | CONFLICT


class PricesView(TenantView):
    @extend_schema("list_prices", responses=PriceVersionSerializer(many=True), tags=["usage"])
    def get(self, request: Request, tenant: str) -> Response:
        """Every version of every price list, newest first."""
        return _all()


class OperatorPricesView(OperatorView):
    @extend_schema("list_operator_prices", responses=PriceVersionSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Every version of every price list, newest first."""
        return _all()

    @extend_schema("publish_prices", request=NewPricesSerializer, responses=_PUBLISHED)
    def post(self, request: Request) -> Response:
        """Publish new prices, of all base models or of one, from a day to come on."""
        values = dict(validated(NewPricesSerializer, request.data))
        effective_on, digest = values.pop("effective_on"), values.pop("base_model_digest")
        storage = values.pop("storage_per_gb_month") or 0
        version = publish_prices(
            actor=self.actor,
            prices=PriceList(**values, storage_per_gb_month=storage),
            effective_on=effective_on,
            user=self.operator,
            base=None if digest is None else priced_base(digest),
        )
        return Response(PriceVersionSerializer(version).data, status=201)


class OperatorPricesEndView(OperatorView):
    @extend_schema("end_base_prices", request=EndPricesSerializer, responses=_PUBLISHED)
    def post(self, request: Request) -> Response:
        """End a base model's own prices, from a day to come on: the installation's list counts for it again."""
        body = validated(EndPricesSerializer, request.data)
        base = priced_base(body["base_model_digest"])
        version = end_base_prices(actor=self.actor, base=base, effective_on=body["effective_on"], user=self.operator)
        return Response(PriceVersionSerializer(version).data, status=201)
