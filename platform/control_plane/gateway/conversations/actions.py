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


class ResponseNotFoundError(NotFoundError):
    """Also for another tenant's, and for one that was not stored."""

    def __init__(self, name: str, param: str) -> None:
        super().__init__(
            f"Response with id '{name[:64]}' not found.",
            "Only responses whose request said store: true are kept, and only for a while.",
            code="response_not_found",
            param=param,
        )


def store(tenant: Tenant, name: str, *, messages: str, body: str) -> None:
    """A new one in place of the oldest, if the tenant has as many as are kept. It follows from a request of the tenant,
    and has no audit row."""
    now = clocks.database_time()
    expires = now + timedelta(seconds=current().response_expire_s)
    with transaction.atomic():
        own = StoredResponse.objects.for_tenant(tenant)
        own.create(tenant=tenant, name=name, messages=messages, body=body, created_at=now, expires_at=expires)
        beyond = own.order_by("-id").values_list("id", flat=True)[current().responses_max_stored :]
        if oldest := list(beyond[:100]):
            own.filter(id__in=oldest).delete()


def get_response(tenant: Tenant, name: str, param: str = "response_id") -> StoredResponse:
    """Raises ResponseNotFoundError (404)."""
    own = StoredResponse.objects.for_tenant(tenant)
    found = own.filter(name=name[:65], expires_at__gt=timezone.now()).first()
    if found is None:
        raise ResponseNotFoundError(name, param)
    return found


def delete_response(*, acting: Principal, name: str) -> None:
    """Raises ResponseNotFoundError (404)."""
    with transaction.atomic():
        found = get_response(acting.tenant, name)
        audit.record(acting.actor, "response.delete", found, tenant=acting.tenant)
        found.delete()


def forget() -> int:
    """Delete what has expired. Returns how many. Raises DeletionPausedError."""
    return StoredResponse.objects.filter(expires_at__lt=clocks.deletion_time()).delete()[0]
