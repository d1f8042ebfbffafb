"""What ADR 0051 says is used of Django's private names, and that Django still has it."""

from __future__ import annotations

import inspect
import re

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler

from control_plane.config import REPOSITORY

ATTRIBUTES = ("_view_middleware", "_template_response_middleware", "_exception_middleware", "_middleware_chain")


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
