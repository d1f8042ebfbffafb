"""Storing, reading and deleting conversations."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import NotFoundError
from control_plane.core.jobs import clocks
from control_plane.gateway.conversations.models import StoredResponse
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant


class NoSuchResponseError(NotFoundError):
    """No such stored response; another tenant's response, and one that was not stored, give the same answer."""

    def __init__(self, name: str, param: str) -> None:
        super().__init__(
            f"Response with id '{name[:64]}' not found.",
            "Responses are kept for a limited time, and not with store: false or if the tenant chose to store none.",
            code="response_not_found",
            param=param,
        )


def store(tenant: Tenant, name: str, *, messages: str, body: str) -> None:
    """Store a response in place of the tenant's oldest if the limit is reached. It follows from a request of the
    tenant, so there is no audit row.
    """
    now = clocks.database_time()
    expires = now + timedelta(seconds=current().response_expire_s)
    with transaction.atomic():
        responses = StoredResponse.objects.for_tenant(tenant)
        responses.create(tenant=tenant, name=name, messages=messages, body=body, created_at=now, expires_at=expires)
        beyond = responses.order_by("-id").values_list("id", flat=True)[current().responses_max_stored :]
        if oldest := list(beyond[:100]):
            responses.filter(id__in=oldest).delete()


def get_response(tenant: Tenant, name: str, param: str = "response_id") -> StoredResponse:
    """Return the tenant's stored response. Raises NoSuchResponseError (404)."""
    responses = StoredResponse.objects.for_tenant(tenant)
    response = responses.filter(name=name[:65], expires_at__gt=timezone.now()).first()
    if response is None:
        raise NoSuchResponseError(name, param)
    return response


def delete_response(*, acting: Principal, name: str) -> None:
    """Delete a stored response. Raises NoSuchResponseError (404)."""
    with transaction.atomic():
        response = get_response(acting.tenant, name)
        audit.record(acting.actor, "response.delete", response, tenant=acting.tenant)
        response.delete()


def forget() -> int:
    """Delete expired responses. Returns their number. Raises DeletionPausedError."""
    return StoredResponse.objects.filter(expires_at__lt=clocks.deletion_time()).delete()[0]
