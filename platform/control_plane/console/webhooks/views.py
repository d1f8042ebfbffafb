"""Views of webhooks."""

from __future__ import annotations

from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.console.webhooks import actions
from control_plane.console.webhooks.models import Delivery, Endpoint
from control_plane.console.webhooks.serializers import (
    DeliverySerializer,
    WebhookSerializer,
    WebhookSettingsSerializer,
    WebhookWithSecretSerializer,
)
from control_plane.console.webhooks.signing import secret_of
from control_plane.core.errors import NotFoundError
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.identity.access.principal import Principal
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["webhooks"])

RECENT = 100
WRITE = Capability.WRITE_WEBHOOKS


def find(acting: Principal, webhook_id: UUID) -> Endpoint:
    endpoints = Endpoint.objects.for_tenant(acting.tenant).select_related("created_by", "tenant")
    endpoint = endpoints.filter(pk=webhook_id).first()
    if endpoint is None:
        raise actions.WebhookNotFoundError
    return endpoint


def settings_of(request: Request) -> actions.WebhookSettings:
    body = validated(WebhookSettingsSerializer, request.data)
    return actions.WebhookSettings(**body)


def with_secret(endpoint: Endpoint, status: int) -> Response:
    endpoint.secret = secret_of(endpoint)  # type: ignore[attr-defined]
    return Response(WebhookWithSecretSerializer(endpoint).data, status=status, headers={"Cache-Control": "no-store"})


class WebhooksView(TenantView):
    needs: ClassVar = {"GET": WRITE, "POST": WRITE}

    @operation("list_webhooks", responses=WebhookSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the endpoints that receive the tenant's events."""
        endpoints = Endpoint.objects.for_tenant(self.principal.tenant).select_related("created_by")
        return Response(WebhookSerializer(endpoints, many=True).data)

    @operation(
        "create_webhook", request=WebhookSettingsSerializer, responses={201: WebhookWithSecretSerializer} | CONFLICT
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Register an endpoint. Its secret is in this answer only."""
        return with_secret(actions.create_endpoint(acting=self.principal, settings=settings_of(request)), 201)


class WebhookView(TenantView):
    needs: ClassVar = {"GET": WRITE, "PUT": WRITE, "DELETE": WRITE}

    @operation("read_webhook", responses=WebhookSerializer)
    def get(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """Read one webhook endpoint."""
        return Response(WebhookSerializer(find(self.principal, webhook_id)).data)

    @operation("change_webhook", request=WebhookSettingsSerializer, responses=WebhookSerializer)
    def put(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """Change an endpoint's address and events."""
        endpoint = find(self.principal, webhook_id)
        changed = actions.change_endpoint(acting=self.principal, endpoint=endpoint, settings=settings_of(request))
        return Response(WebhookSerializer(changed).data)

    @operation("delete_webhook", responses={204: None})
    def delete(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """Remove an endpoint with its log."""
        actions.delete_endpoint(acting=self.principal, endpoint=find(self.principal, webhook_id))
        return Response(status=204)


class RotateView(TenantView):
    needs: ClassVar = {"POST": WRITE}

    @operation("rotate_webhook_secret", request=None, responses=WebhookWithSecretSerializer)
    def post(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """Make a new secret; for a day messages are signed under the old one too."""
        endpoint = find(self.principal, webhook_id)
        return with_secret(actions.rotate_secret(acting=self.principal, endpoint=endpoint), 200)


class TestView(TenantView):
    needs: ClassVar = {"POST": WRITE}

    @operation("test_webhook", request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """Send a message of type "test". Ten a minute for a tenant; 429 says when the next may follow."""
        delivery = actions.send_test(acting=self.principal, endpoint=find(self.principal, webhook_id))
        return Response(DeliverySerializer(delivery).data, status=202)


class DeliveriesView(TenantView):
    needs: ClassVar = {"GET": WRITE}

    @operation("list_deliveries", responses=DeliverySerializer(many=True))
    def get(self, request: Request, tenant: str, webhook_id: UUID) -> Response:
        """List the latest hundred messages with every attempt, newest first."""
        messages = Delivery.objects.for_tenant(self.principal.tenant).filter(endpoint=find(self.principal, webhook_id))
        recent = messages.select_related("event").prefetch_related("log")[:RECENT]
        return Response(DeliverySerializer(recent, many=True).data)


class ReplayView(TenantView):
    needs: ClassVar = {"POST": WRITE}

    @operation("replay_delivery", request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, tenant: str, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Send a message again."""
        messages = Delivery.objects.for_tenant(self.principal.tenant).select_related("endpoint", "event")
        delivery = messages.filter(endpoint=find(self.principal, webhook_id), pk=delivery_id).first()
        if delivery is None:
            raise NotFoundError("There is no such message.", "GET deliveries lists them.", code="delivery_not_found")
        replayed = actions.replay(acting=self.principal, delivery=delivery)
        return Response(DeliverySerializer(replayed).data, status=202)
