"""The price list, read by tenants and written by operators."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.operator import OperatorView
from control_plane.access.views import TenantView
from control_plane.http.serializers import ErrorResponseSerializer, validated
from control_plane.prices.actions import PriceList, publish_prices
from control_plane.prices.models import PriceVersion
from control_plane.prices.serializers import NewPricesSerializer, PriceVersionSerializer


def _all() -> Response:
    versions = PriceVersion.objects.select_related("created_by").order_by("-number")
    return Response(PriceVersionSerializer(versions, many=True).data)


class PricesView(TenantView):
    @extend_schema(operation_id="list_prices", responses=PriceVersionSerializer(many=True), tags=["usage"])
    def get(self, request: Request, tenant: str) -> Response:
        """Every version of the price list, newest first."""
        return _all()


class OperatorPricesView(OperatorView):
    @extend_schema(operation_id="list_operator_prices", responses=PriceVersionSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """Every version of the price list, newest first."""
        return _all()

    @extend_schema(
        operation_id="publish_prices",
        request=NewPricesSerializer,
        responses={201: PriceVersionSerializer, 400: ErrorResponseSerializer, 409: ErrorResponseSerializer},
        tags=["operator"],
    )
    def post(self, request: Request) -> Response:
        """Publish new prices, from a day to come on."""
        values = dict(validated(NewPricesSerializer, request.data))
        effective_on = values.pop("effective_on")
        version = publish_prices(
            actor=self.actor, prices=PriceList(**values), effective_on=effective_on, user=self.operator
        )
        return Response(PriceVersionSerializer(version).data, status=201)
