"""Every address of the project, read from its URL patterns, for tests that walk all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from control_plane.core.http.access import Access

METHODS = ("get", "post", "put", "patch", "delete")
TENANT_PREFIX = "api/tenants/<slug:tenant>/"
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True)
class Address:
    """A URL pattern and the view behind it."""

    route: str
    view: Callable[..., Any]

    @property
    def declared(self) -> Any:
        """The object that carries `access` and `needs`: the view's class, or the function."""
        if hasattr(self.view, "access"):
            return self.view
        return getattr(self.view, "view_class", None) or getattr(self.view, "cls", None) or self.view

    @property
    def methods(self) -> list[str]:
        """HTTP methods that the view handles. Functions do not declare theirs: GET and POST are assumed."""
        declared = self.declared
        if not isinstance(declared, type):
            return ["get", "post"]
        return [name for name in METHODS if hasattr(declared, name) and name in declared.http_method_names]

    def path(self, values: Mapping[str, Any]) -> str:
        """Return the path with a value for each parameter; fail with advice where a value is missing."""
        return "/" + _PARAMETER.sub(lambda match: str(_value(values, match[1], self.route)), self.route)


def every_address() -> list[Address]:
    return list(_walk(get_resolver().url_patterns, ""))


def methods_of(access: Access) -> list[Any]:
    """Parameters `address, method` of a test: all that are declared for these callers."""
    return [
        pytest.param(address, method, id=f"{method.upper()} {address.route}")
        for address in every_address()
        if getattr(address.declared, "access", None) == access
        for method in address.methods
    ]


def tenant_addresses() -> dict[str, type[Any]]:
    """Views by their route below /api/tenants/{tenant}/."""
    inside = (address for address in every_address() if address.route.startswith(TENANT_PREFIX))
    return {address.route.removeprefix(TENANT_PREFIX): address.declared for address in inside}


def _walk(patterns: list[Any], prefix: str) -> Iterator[Address]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield Address(route, pattern.callback)


def _value(values: Mapping[str, Any], name: str, route: str) -> Any:
    assert name in values, (
        f"{route}: the tests have no value for <{name}>. Make one of it in the fixture `furnished` of "
        "tests/platform/conftest.py, so that this address is walked as every role and as a second tenant."
    )
    return values[name]
