"""Storing, reading and deleting conversations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import NotFoundError
from control_plane.core.jobs import clocks
from control_plane.gateway.conversations.models import StoredResponse
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant, TenantQuerySet

Json = dict[str, Any]
# Item ids contain the id of the response that made the item, or was made from it (`_i`): see `responses/items.py`.
_ITEM_ID = re.compile(r"[a-z]+_(?P<response>[\w-]{22})(?:_(?P<input>i?)[0-9]+)?", re.ASCII)
# Stored responses that are read at once to find items.
_READ_AT_ONCE = 32


class NoSuchResponseError(NotFoundError):
    """No such stored response; another tenant's response, and one that was not stored, give the same answer."""

    def __init__(self, name: str, param: str) -> None:
        super().__init__(
            f"Response with id '{name[:64]}' not found.",
            "Check the id, or send the conversation itself as input. Responses are kept for a limited time, and not "
            "with store: false or if the tenant chose to store none.",
            code="response_not_found",
            param=param,
        )


def store(tenant: Tenant, name: str, *, input_items: str, body: str) -> None:
    """Store a response in place of the tenant's oldest if the limit is reached. It follows from a request of the
    tenant, so there is no audit row.
    """
    now = clocks.database_time()
    expires = now + timedelta(seconds=current().response_expire_s)
    with transaction.atomic():
        responses = StoredResponse.objects.for_tenant(tenant)
        responses.create(
            tenant=tenant, name=name, input_items=input_items, body=body, created_at=now, expires_at=expires
        )
        beyond = responses.order_by("-id").values_list("id", flat=True)[current().responses_max_stored :]
        if oldest := list(beyond[:100]):
            responses.filter(id__in=oldest).delete()


def get_response(tenant: Tenant, name: str, param: str = "response_id") -> StoredResponse:
    """Return the tenant's stored response. Raises NoSuchResponseError (404)."""
    response = None if "\0" in name else _unexpired(tenant).filter(name=name[:65]).first()
    if response is None:
        raise NoSuchResponseError(name, param)
    return response


def _unexpired(tenant: Tenant) -> TenantQuerySet[StoredResponse]:
    return StoredResponse.objects.for_tenant(tenant).filter(expires_at__gt=timezone.now())


def get_input_items(tenant: Tenant, name: str) -> list[Json]:
    """Return the items that a stored response was generated from. Raises NoSuchResponseError (404)."""
    items: list[Json] = json.loads(get_response(tenant, name).input_items)
    return items


def get_conversation(tenant: Tenant, name: str) -> list[Json]:
    """Return the items of the conversation up to a stored response and with it. Raises NoSuchResponseError (404)."""
    response = get_response(tenant, name, "previous_response_id")
    return [*json.loads(response.input_items), *json.loads(response.body)["output"]]


def find_items(tenant: Tenant, ids: Collection[str]) -> dict[str, Json]:
    """Return the items with these ids in stored responses of the tenant, by id; those that are stored."""
    inputs: set[str] = set()
    outputs: set[str] = set()
    for item_id in ids:
        if match := _ITEM_ID.fullmatch(item_id):
            (inputs if match["input"] else outputs).add(f"resp_{match['response']}")
    items = [
        *_items_in(tenant, inputs, "input_items", json.loads),
        *_items_in(tenant, outputs, "body", lambda text: json.loads(text)["output"]),
    ]
    wanted = set(ids)
    return {item["id"]: item for item in items if item["id"] in wanted}


def _items_in(tenant: Tenant, names: Collection[str], column: str, read: Callable[[str], list[Json]]) -> Iterator[Json]:
    ordered = sorted(names)
    for start in range(0, len(ordered), _READ_AT_ONCE):
        texts = (
            _unexpired(tenant).filter(name__in=ordered[start : start + _READ_AT_ONCE]).values_list(column, flat=True)
        )
        for text in texts:
            yield from read(text)


def delete_response(*, acting: Principal, name: str) -> None:
    """Delete a stored response. Raises NoSuchResponseError (404)."""
    with transaction.atomic():
        pk = get_response(acting.tenant, name).pk
        response = StoredResponse.objects.for_tenant(acting.tenant).select_for_update().filter(pk=pk).first()
        if response is None:
            raise NoSuchResponseError(name, "response_id")
        audit.record(acting.actor, "response.delete", response, tenant=acting.tenant)
        response.delete()


def forget() -> int:
    """Delete expired responses. Returns their number. Raises DeletionPausedError."""
    return StoredResponse.objects.filter(expires_at__lt=clocks.deletion_time()).delete()[0]
