"""Who may call an address at all. Every view says it; a test fails for one that does not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[..., Any])


class Access(StrEnum):
    PUBLIC = "public"
    """Anybody: what it takes is a secret in the body, or it tells no secret."""
    SESSION = "session"
    """A person who is signed in, about themselves."""
    TENANT = "tenant"
    """A member or key of the tenant in the address, with the capability that `needs` names for the method."""
    OPERATOR = "operator"
    """A person who runs the installation."""
    KEY = "key"
    """An API key, with the capability `needs`: the addresses of /v1."""


def access(kind: Access, needs: str = "") -> Callable[[View], View]:
    """For views that are functions."""

    def mark(view: View) -> View:
        view.access = kind  # type: ignore[attr-defined]
        view.needs = needs  # type: ignore[attr-defined]
        return view

    return mark


public = access(Access.PUBLIC)
