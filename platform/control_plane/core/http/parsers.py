"""DRF's JSON parser over the reader of all JSON bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import JSONParser

from control_plane.core.http.json_body import read_value


class StrictJSONParser(JSONParser):
    """A parser that raises JsonError (400)."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return read_value(stream.read())
