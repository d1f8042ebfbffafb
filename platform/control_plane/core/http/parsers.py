"""How bodies of the API are read: DRF's parser, over the JSON reader of every body here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import JSONParser

from control_plane.core.http.json_body import read_value


class StrictJSONParser(JSONParser):
    """Raises JsonError (400)."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return read_value(stream.read())
