"""The API's OpenAPI schema: its two ways to authenticate, and the parts that hold for every operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema


class ApiSchema(AutoSchema):
    """The schema of one operation. A view may have `tags` for all of its operations."""

    def get_tags(self) -> list[str]:
        tags: list[str] = getattr(self.view, "tags", None) or super().get_tags()
        return tags


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "control_plane.identity.keys.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "lk_<prefix>_<secret>"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "control_plane.identity.accounts.auth.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "lorikeet_session"}


Json = dict[str, Any]
# Statuses that are answered before a view runs: an address or header that cannot be read, an invalid key, a caller
# without permission or above a limit, a server behind this one that is unavailable.
_ANY_OPERATION = ("400", "401", "403", "429", "503")
_WITH_BODY = ("413", "415")
_WRITES = ("507",)  # the database or the disk is full
HIGHEST_NUMBER = 2_147_483_647


def complete(result: Json, **_of_the_generator: object) -> Json:
    """Complete the schema (a post-processing hook of drf-spectacular) with what no view declares itself."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
    result["components"]["responses"] = {"Error": {"content": error, "description": "What happened, and what to do."}}
    for path, method, operation in _operations(result):
        if path.startswith("/api/") or path == "/version":
            _add_statuses(path, method, operation)
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path" and parameter["schema"].get("type") == "integer":
                parameter["schema"] = {"minimum": 0, "maximum": HIGHEST_NUMBER, **parameter["schema"]}
        for schema in _request_components(result, operation):
            for shape in schema.get("properties", {}).values():
                _describe_default(shape)
    return result


def _operations(result: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _add_statuses(path: str, method: str, operation: Json) -> None:
    statuses = [
        *_ANY_OPERATION,
        *(("404",) if "{" in path else ()),
        *(_WITH_BODY if "requestBody" in operation else ()),
        *(_WRITES if method != "get" else ()),
    ]
    for status in statuses:
        operation["responses"].setdefault(status, {"$ref": "#/components/responses/Error"})
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _request_components(result: Json, operation: Json) -> Iterator[Json]:
    """Yield the components that a request's body consists of."""
    seen: set[str] = set()
    waiting: list[Any] = [operation.get("requestBody", {})]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        name = part.get("$ref", "") if isinstance(part, dict) else ""
        if isinstance(name, str) and name.startswith("#/components/schemas/") and name not in seen:
            seen.add(name)
            component = result["components"]["schemas"][name.rpartition("/")[2]]
            waiting.append(component)
            yield component


def _describe_default(shape: Json) -> None:
    """Move a default into the description: client generators treat a property with a default as a required one."""
    if "default" not in shape:
        return
    default = shape.pop("default")
    if default not in (None, ""):
        text = default if not isinstance(default, bool) else str(default).lower()
        shape["description"] = " ".join(filter(None, [shape.get("description", ""), f"By default {text}."]))
