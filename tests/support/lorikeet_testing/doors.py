"""Requests to every operation of the API's schema, by somebody who may do all, about things that exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from control_plane.gateway.openai import asgi
from control_plane.gateway.openai.asgi import is_inference
from control_plane.gateway.openai.callers import Authentication
from lorikeet_testing.clients import call, keyed

__all__ = ["doors", "owner"]
ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "frontend" / "openapi.json").read_text())


def operations(content: str | None = None) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All of the schema, or those whose body has this type."""
    for path, methods in SCHEMA["paths"].items():
        for method, operation in methods.items():
            if content is None or content in operation.get("requestBody", {}).get("content", {}):
                yield path, method, operation


@pytest.fixture
def owner(acme: Any) -> APIClient:
    """An owner who runs the installation, too."""
    user = next(iter(acme.users.values()))
    user.is_operator = True
    user.save()
    client: APIClient = acme.client()
    return client


class Doors:
    """A client of every operation, with an owner's session and an API key."""

    def __init__(self, owner: APIClient, robot: APIClient, furnished: dict[str, Any]) -> None:
        self._owner, self._robot = owner, robot
        self._known = {**{name: str(value) for name, value in furnished.items()}, "tenant": "acme", "slug": "acme"}

    def ask(self, path: str, method: str, query: str = "", body: Any = None) -> Any:
        values = {name: self._known.get(name, "x") for name in path_parameters(path)}
        address = path.format_map(values) + query
        is_gateways = is_inference({"path": path, "method": method.upper()})
        return call(self._robot if is_gateways else self._owner, method, address, body)

    def send(self, path: str, form: dict[str, Any]) -> Any:
        return self._owner.post(path.format_map({"tenant": "acme"}), form, format="multipart")


def path_parameters(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


@pytest.fixture
def doors(acme: Any, owner: APIClient, furnished: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Doors:
    principal = acme.principal()

    async def identify(_scope: Any) -> Authentication:
        """Return the principal without a query: another thread sees only committed rows."""
        return Authentication(principal)

    monkeypatch.setattr(asgi, "identify", identify)
    return Doors(owner, keyed("lk_any"), furnished)
