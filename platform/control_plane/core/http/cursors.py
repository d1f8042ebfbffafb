"""Pages of a growing table, newest first: a cursor goes on where a page ended, unmoved by newer rows."""

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
MOST_ROWS = 200
LONGEST_CURSOR = 64
PAGE_PARAMETERS = [
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": 50}),
    OpenApiParameter("cursor", {"type": "string", "minLength": 1, "maxLength": LONGEST_CURSOR}),
]


def days_parameter(most: int) -> OpenApiParameter:
    return OpenApiParameter("days", {"type": "integer", "minimum": 1, "maximum": most, "default": 30})


class PageQuery(serializers.Serializer[dict[str, object]]):
    limit = serializers.IntegerField(min_value=1, max_value=MOST_ROWS, default=50)
    cursor = serializers.CharField(max_length=LONGEST_CURSOR, required=False, default=None, allow_null=True)


@dataclass(frozen=True)
class Page(Generic[M]):
    results: list[M]
    next_cursor: str | None


def page_of(
    own: models.QuerySet[M],
    limit: int,
    cursor: str | None,
    *related: str,
    down_to: Callable[[int | None], int | None] | None = None,
) -> Page[M]:
    """By `id`. Raises LorikeetError (bad_cursor).

    Where few rows of many may fit, `down_to` says for the id before which a page begins the last that is looked at, or
    None for the end. The page may then have few rows or none, and its cursor goes on from there.
    """
    begins = _decode(cursor) if cursor else None
    before = own if begins is None else own.filter(id__lt=begins)
    last = down_to(begins) if down_to else None
    if last is not None:
        before = before.filter(id__gte=last)
    # The ids first, which an index of tenant and id has: asked for whole rows, PostgreSQL may walk back through
    # everybody's newer ones until it meets this tenant's.
    ids = list(before.order_by("-id").values_list("id", flat=True)[: limit + 1])
    rows = own.filter(id__in=ids[:limit]).select_related(*related).order_by("-id")
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
        "The cursor is not one that this address gave out.",
        "Start again without a cursor.",
        param="cursor",
    )
