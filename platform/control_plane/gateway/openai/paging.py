"""Pages of lists in OpenAI's form: ``limit``, ``order`` and ``after``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from control_plane.gateway.dispatch.errors import ApiError, invalid

# Maximum number of entries in one page of a list, as in OpenAI's API.
MAX_LISTED = 100
DEFAULT_LISTED = 20
# Query parameters of a list.
PAGE = ("limit", "after", "order")


@dataclass(frozen=True)
class ListPage:
    """The part of a list that a request asks for: up to ``limit`` entries after the one with the id ``after``."""

    limit: int
    after: str
    ascending: bool


def read_page(request: HttpRequest) -> ListPage:
    """Return the requested page, newest first unless ``order`` is asc. Raises ``ApiError`` (400)."""
    try:
        limit = int(request.GET.get("limit", str(DEFAULT_LISTED)))
    except ValueError:
        limit = 0
    if not 1 <= limit <= MAX_LISTED:
        raise invalid(f"limit must be 1 to {MAX_LISTED}.", "Request fewer, and continue with after.", "limit")
    order = request.GET.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("order must be asc or desc.", "desc returns the newest first.", "order")
    return ListPage(limit, request.GET.get("after", ""), order == "asc")


def unknown_after() -> ApiError:
    """Return the error about an ``after`` that no entry has."""
    return invalid("after names no entry of this list.", "Use the last id of the previous page.", "after")


def list_json(data: Sequence[dict[str, Any]], *, more: bool) -> dict[str, Any]:
    """Return one page of a list as an object."""
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": list(data), **ends, "has_more": more}
