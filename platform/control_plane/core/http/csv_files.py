"""Tables as CSV, streamed page by page, so that the memory used does not grow with the answer."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse

from control_plane.core.db import run_db
from control_plane.core.http.serializers import ErrorResponseSerializer

CSV: dict[tuple[int, str] | int, object] = {
    (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
    400: ErrorResponseSerializer,
}


class Table(Protocol):
    @property
    def file_name(self) -> str: ...

    def pages(self) -> Iterator[str]:
        """Yield pages of some whole lines each."""


def csv_answer(table: Table) -> StreamingHttpResponse:
    return StreamingHttpResponse(
        _pages(table),
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{table.file_name}"',
            "Cache-Control": "private, no-store",
        },
    )


async def _pages(table: Table) -> AsyncIterator[str]:
    """Yield the pages. Each is a separate query, so that a slow reader keeps no connection to the database."""
    pages = table.pages()
    while (page := await run_db(next, pages, "")) != "":
        yield page


def lines(rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue()


def safe(value: Any) -> Any:
    """Return the value with a quote before a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
