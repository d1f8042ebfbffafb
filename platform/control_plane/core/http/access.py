"""Access classes of addresses: every view declares one, and a test fails for a view that does not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[..., Any])


class Access(StrEnum):
    # Anybody: the request carries a secret in its body, or the answer contains none.
    PUBLIC = "public"
    # A person who is signed in, about themselves.
    SESSION = "session"
    # A member or key of the tenant in the address, with the capability that `needs` names for the method.
    TENANT = "tenant"
    # A person who runs the installation.
    OPERATOR = "operator"
    # An API key, with the capability `needs`: the addresses of /v1.
    KEY = "key"


def access(kind: Access, needs: str = "") -> Callable[[View], View]:
    """Declare the access class of a view that is a function."""

    def mark(view: View) -> View:
        view.access = kind  # type: ignore[attr-defined]
        view.needs = needs  # type: ignore[attr-defined]
        return view

    return mark


public = access(Access.PUBLIC)
