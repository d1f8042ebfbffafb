"""References within a JSON Schema."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from .schema_problems import subschemas


class References:
    """The targets of a document's references, as far as they are JSON pointers into it."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._known: dict[str, Any] = {}
        # Pointers in a part with an address of its own begin there; such documents are not resolved.
        self._has_parts: bool | None = None

    def target(self, reference: object) -> Any:
        """Return the part of the schema that a reference leads to; None if it is unknown."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        if reference not in self._known:
            self._known[reference] = None if self._parts_have_addresses() else point(self._schema, reference)
        return self._known[reference]

    def _parts_have_addresses(self) -> bool:
        if self._has_parts is None:
            self._has_parts = any(
                path and any(isinstance(name := node.get(key), str) and name[:1] != "#" for key in ("$id", "id"))
                for path, node in subschemas(self._schema)
            )
        return self._has_parts


def steps(reference: str) -> list[str]:
    """Return the names on the way of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[1:]).split("/")[1:]]


def point(schema: Any, reference: str) -> Any:
    """Follow a JSON pointer from the root of a document; None if it leads nowhere."""
    place = schema
    for step in steps(reference):
        if isinstance(place, dict) and step in place:
            place = place[step]
        elif isinstance(place, list) and step.isdecimal() and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place
