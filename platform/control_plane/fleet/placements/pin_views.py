"""Views for pinning adapters and prefixes."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry import queries
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.fleet.placements import pins, prefixes
from control_plane.fleet.placements.prefix_serializers import (
    NewPrefixSerializer,
    PrefixSerializer,
    PrefixTextSerializer,
    TenantPinsSerializer,
)
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["pins"])


class HostPinSerializer(serializers.Serializer[Any]):
    host = serializers.CharField()
    bytes = serializers.IntegerField()
    pinned = serializers.BooleanField(help_text="Whether the host keeps the live version loaded now.")


class PinSerializer(serializers.Serializer[Any]):
    """The pin of an adapter's live version in the device memory of its hosts, and its size."""

    pinned_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the adapter was pinned; null: it is not pinned."
    )
    bytes = serializers.IntegerField(
        allow_null=True,
        help_text="Bytes of device memory that the live version takes on one host; null: no version is live.",
    )
    used_bytes = serializers.IntegerField(
        help_text="Bytes of device memory that all the tenant's pins take on the host where they take most."
    )
    limit_bytes = serializers.IntegerField(
        allow_null=True, help_text="Bytes of each host's device memory that the tenant may pin; null or 0: none."
    )
    hosts = HostPinSerializer(many=True, help_text="Hosts on which the live version is ready.")


class PinView(TenantView):
    needs: ClassVar = {
        "GET": Capability.VIEW,
        "PUT": Capability.WRITE_ADAPTERS,
        "DELETE": Capability.WRITE_ADAPTERS,
    }

    @operation("read_pin", responses=PinSerializer, tags=["adapters"])
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """Read whether the adapter is pinned, and how much memory that takes."""
        return self.show(name)

    @operation("pin_adapter", request=None, responses={200: PinSerializer} | CONFLICT, tags=["adapters"])
    def put(self, request: Request, tenant: str, name: str) -> Response:
        """Keep the live version loaded on the hosts that have it, so that no request waits for it."""
        pins.pin_adapter(acting=self.principal, adapter=queries.get_adapter(self.principal.tenant, name).adapter)
        return self.show(name)

    @operation("unpin_adapter", responses={204: None}, tags=["adapters"])
    def delete(self, request: Request, tenant: str, name: str) -> Response:
        """Let hosts evict the adapter when others need the room."""
        pins.unpin_adapter(acting=self.principal, adapter=queries.get_adapter(self.principal.tenant, name).adapter)
        return Response(status=204)

    def show(self, name: str) -> Response:
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        return Response(PinSerializer(pins.pin_state(adapter)).data)


class PinsView(TenantView):
    @operation("list_pins", responses=TenantPinsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Adapters and prefixes that the tenant keeps in device memory, and how much of its quota they take."""
        return Response(TenantPinsSerializer(prefixes.tenant_pins(self.principal.tenant)).data)


class PrefixesView(TenantView):
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("pin_prefix", request=NewPrefixSerializer, responses={201: PrefixSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Keep the beginning of prompts in the KV cache of the hosts that answer for a model. It is computed in the
        background, at nobody's cost; its text is stored until it is unpinned."""
        body = validated(NewPrefixSerializer, request.data)
        made = prefixes.pin_prefix(
            acting=self.principal,
            name=body.pop("name"),
            model=body.pop("model"),
            cache_salt=body.pop("cache_salt"),
            prompt=body,
        )
        return Response(PrefixSerializer(prefixes.prefix_details(made)).data, status=201)


class PrefixView(TenantView):
    # The text is written by developers and may be confidential: viewers of usage do not see it.
    needs: ClassVar = {"GET": Capability.WRITE_ADAPTERS, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_pinned_prefix", responses=PrefixTextSerializer)
    def get(self, request: Request, tenant: str, prefix_name: str) -> Response:
        """A pinned prefix with its text."""
        prefix = prefixes.get_prefix(self.principal.tenant, prefix_name)
        shown = PrefixSerializer(prefixes.prefix_details(prefix)).data
        return Response({**shown, "content": prefixes.text_of(prefix)})

    @operation("unpin_prefix", responses={204: None})
    def delete(self, request: Request, tenant: str, prefix_name: str) -> Response:
        """Let hosts evict a pinned prefix, and delete its text."""
        prefix = prefixes.get_prefix(self.principal.tenant, prefix_name)
        prefixes.unpin_prefix(acting=self.principal, prefix=prefix)
        return Response(status=204)
