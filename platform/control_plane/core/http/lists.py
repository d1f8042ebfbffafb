"""Lists returned whole, or a part at a time: `search`, `offset`, `limit`, and the total number in a header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response

# Maximum number of rows that one request returns.
MAX_ROWS = 200
TOTAL_HEADER = "X-Total-Count"
TOTAL = OpenApiParameter(
    TOTAL_HEADER,
    int,
    OpenApiParameter.HEADER,
    response=[200],
    description="Number of rows that match the query, on all pages.",
)


class ListQuerySerializer(serializers.Serializer[Any]):
    search = serializers.CharField(
        max_length=120, required=False, default="", allow_blank=True, help_text="Part of the name."
    )
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, default=0)
    limit = serializers.IntegerField(
        min_value=1,
        max_value=MAX_ROWS,
        required=False,
        default=None,
        help_text="Maximum number of rows; without it, all.",
    )


def part_of(rows: Any, offset: int, limit: int | None) -> Any:
    """Return a part of a queryset or list."""
    return rows[offset : None if limit is None else offset + limit]


def list_response(
    serializer: type[serializers.BaseSerializer[Any]], rows: QuerySet[Any], query: Mapping[str, Any]
) -> Response:
    """Return the part of the rows that a `ListQuerySerializer` names, with the number of all rows in a header."""
    part = part_of(rows, query["offset"], query["limit"])
    return Response(serializer(part, many=True).data, headers={TOTAL_HEADER: str(rows.count())})
