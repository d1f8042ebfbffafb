"""Pages of a growing table, newest first: a cursor continues where a page ended, unmoved by newer rows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db import models
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from control_plane.core.errors import LorikeetError

M = TypeVar("M", bound=models.Model)
# Maximum number of rows of a page.
MAX_ROWS = 200
# Maximum number of characters of a cursor.
LONGEST_CURSOR = 64
PAGE_PARAMETERS = [
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": 50}),
    OpenApiParameter("cursor", {"type": "string", "minLength": 1, "maxLength": LONGEST_CURSOR}),
]


def days_parameter(most: int) -> OpenApiParameter:
    return OpenApiParameter("days", {"type": "integer", "minimum": 1, "maximum": most, "default": 30})


class PageQuery(serializers.Serializer[dict[str, object]]):
    limit = serializers.IntegerField(min_value=1, max_value=MAX_ROWS, default=50)
    cursor = serializers.CharField(
        max_length=LONGEST_CURSOR,
        required=False,
        default=None,
        allow_null=True,
        help_text="`next_cursor` of the page before; null: the first page.",
    )


@dataclass(frozen=True)
class Page(Generic[M]):
    results: list[M]
    next_cursor: str | None


def page_of(
    queryset: models.QuerySet[M],
    limit: int,
    cursor: str | None,
    *related: str,
    down_to: Callable[[int | None], int | None] | None = None,
) -> Page[M]:
    """Return a page ordered by `id`. Raises LorikeetError (bad_cursor).

    Where few rows of many may match, `down_to` takes the id before which the page begins and returns the last id to
    examine, or None for the end. The page may then have few rows or none, and its cursor continues from there.
    """
    begins = _decode(cursor) if cursor else None
    before = queryset if begins is None else queryset.filter(id__lt=begins)
    last = down_to(begins) if down_to else None
    if last is not None:
        before = before.filter(id__gte=last)
    # Read the ids first, from an index of tenant and id: for whole rows PostgreSQL may walk back through every tenant's
    # newer rows until it meets this tenant's.
    ids = list(before.order_by("-id").values_list("id", flat=True)[: limit + 1])
    rows = queryset.filter(id__in=ids[:limit]).select_related(*related).order_by("-id")
    goes_on = ids[limit - 1] if len(ids) > limit else last
    return Page(list(rows), None if goes_on is None else _encode(goes_on))


def _encode(last_id: int) -> str:
    return base64.urlsafe_b64encode(str(last_id).encode()).decode().rstrip("=")


def _decode(cursor: str) -> int:
    try:
        number = int(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        if 0 <= number < 1 << 63:
            return number
    except (ValueError, binascii.Error):
        pass
    raise LorikeetError(
        "bad_cursor",
        "The cursor was not issued by this address.",
        "Start again without a cursor.",
        param="cursor",
    )
