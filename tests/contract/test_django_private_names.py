"""Django's private names are used where ADR 0010 says, and Django still has them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler

import control_plane
from control_plane.core.config import REPOSITORY

ATTRIBUTES = ("_view_middleware", "_template_response_middleware", "_exception_middleware", "_middleware_chain")
FRAMEWORKS = ("django.", "rest_framework.", "channels.")


def test_django_still_has_what_the_gateway_overrides() -> None:
    assert inspect.iscoroutinefunction(BaseHandler._get_response_async)  # type: ignore[attr-defined]
    source = inspect.getsource(BaseHandler.load_middleware)
    assert all(f"self.{name} = " in source for name in ATTRIBUTES)
    assert "_middleware_chain" in inspect.getsource(BaseHandler.get_response_async)
    assert issubclass(ASGIHandler, BaseHandler)


def test_private_names_of_django_are_used_in_one_place() -> None:
    private = re.compile(rf"_get_response_async|{'|'.join(ATTRIBUTES)}")
    sources = (REPOSITORY / "platform" / "control_plane").rglob("*.py")
    assert {path.name for path in sources if private.search(path.read_text())} == {"asgi.py"}


def classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(control_plane.__path__, "control_plane."):
        if not any(part in module.name for part in (".migrations", ".management", ".settings")):
            found = importlib.import_module(module.name)
            yield from (one for one in vars(found).values() if inspect.isclass(one) and one.__module__ == module.name)


def overridden(one: type) -> Iterator[str]:
    """Private methods of a framework that this class replaces."""
    frameworks = [base for base in one.__mro__[1:] if base.__module__.startswith(FRAMEWORKS)]
    for name, value in vars(one).items():
        is_private = name.startswith("_") and not name.startswith("__") and inspect.isfunction(value)
        # Metaclasses of the frameworks copy methods into classes of ours.
        if is_private and value.__module__ == one.__module__ and any(name in vars(base) for base in frameworks):
            yield f"{one.__module__}.{one.__qualname__}.{name}"


def test_no_private_method_of_a_framework_is_overridden() -> None:
    assert [name for one in classes() for name in overridden(one)] == []
