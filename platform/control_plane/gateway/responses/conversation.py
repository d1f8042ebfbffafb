"""The conversation of a request: the stored one that it continues, and its input with references resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from control_plane.core.db import run_db
from control_plane.core.errors import NotFoundError
from control_plane.gateway.conversations import actions as conversations
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.openai.paging import ListPage, unknown_after
from control_plane.gateway.responses.items import InputItem, Item, ItemReference, listed, read_stored
from control_plane.gateway.responses.request import ConversationRequest
from control_plane.identity.tenants.models import Tenant

Json = dict[str, Any]
# References of one request: each may be in another stored response.
MAX_REFERENCES = 512


class NoSuchItemError(NotFoundError):
    """No such stored item; another tenant's item, and one that was not stored, give the same answer."""

    def __init__(self, reference: ItemReference, param: str) -> None:
        super().__init__(
            f"Item with id '{reference.id[:64]}' not found.",
            "Send the item itself. Items are kept for a limited time, and not with store: false or if the tenant chose "
            "to store none.",
            code="item_not_found",
            param=param,
        )


@dataclass(frozen=True)
class Conversation:
    """Items before a request as they are stored, with ids, and the items of its input."""

    before: Sequence[Json]
    before_items: Sequence[Item]
    input: Sequence[Item]

    @property
    def items(self) -> list[Item]:
        return [*self.before_items, *self.input]

    def listed(self, response_id: str) -> list[Json]:
        """Return all items as they are stored; ``response_id`` is the random part of the response's id."""
        return [*self.before, *listed(self.input, response_id, {item["id"] for item in self.before})]


async def read_conversation(tenant: Tenant, params: ConversationRequest) -> Conversation:
    """Return the conversation of a request. Raises NoSuchResponseError, NoSuchItemError (404), ``ApiError``."""
    items = params.input_items()
    if params.previous_response_id is None and not any(isinstance(item, ItemReference) for item in items):
        return Conversation([], [], items)  # type: ignore[arg-type]
    return await run_db(_read, tenant, params.previous_response_id, items)


def _read(tenant: Tenant, previous: str | None, items: Sequence[InputItem]) -> Conversation:
    before = [] if previous is None else conversations.get_conversation(tenant, previous)
    return Conversation(before, read_stored(before), _resolved(tenant, items, {item["id"] for item in before}))


def _resolved(tenant: Tenant, items: Sequence[InputItem], before: set[str]) -> list[Item]:
    """Return items with those that are referred to in place of references."""
    places = [(index, item) for index, item in enumerate(items) if isinstance(item, ItemReference)]
    if len(places) > MAX_REFERENCES:
        raise invalid(
            f"The input has {len(places)} item references; at most {MAX_REFERENCES} are possible.",
            "Send the items themselves, or continue with previous_response_id.",
            "input",
        )
    stored = conversations.find_items(tenant, {reference.id for _, reference in places})
    resolved: list[Any] = list(items)
    seen = set(before)
    for index, reference in places:
        param = f"input[{index}]"
        if reference.id in seen:
            raise _duplicate(reference, param)
        seen.add(reference.id)
        if reference.id not in stored:
            raise NoSuchItemError(reference, param)
        [resolved[index]] = read_stored([stored[reference.id]])
    return resolved


def _duplicate(reference: ItemReference, param: str) -> ApiError:
    return invalid(
        f"Item with id '{reference.id[:64]}' is in the conversation twice.",
        "Leave the reference out: the item is in the conversation of previous_response_id, or referred to before.",
        param,
        "duplicate_item",
    )


def page_of(tenant: Tenant, name: str, page: ListPage) -> tuple[list[Json], bool]:
    """Return a page of the items that a stored response was generated from, and whether more follow.

    Raises NoSuchResponseError (404), ``ApiError`` (400) for an ``after`` that no item has.
    """
    items = conversations.get_input_items(tenant, name)
    if not page.ascending:
        items.reverse()
    start = 0
    if page.after:
        start = next((index + 1 for index, item in enumerate(items) if item["id"] == page.after), 0)
        if start == 0:
            raise unknown_after()
    return items[start : start + page.limit], len(items) > start + page.limit
