"""Middleware that works in both of Django's modes, so that async views stay on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from control_plane.core.http.request_id import (
    accept_or_make,
    client_request_id,
    current_request_id,
    set_request_id,
)

SyncNext = Callable[[HttpRequest], HttpResponseBase]
AsyncNext = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

# The bundle has no inline scripts. Inline styles stay allowed because component libraries inject style elements.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
PERMISSIONS_POLICY = "camera=(), microphone=(), geolocation=(), payment=()"


def end_line(response: HttpResponseBase) -> HttpResponseBase:
    """End a JSON answer with a newline, so that a terminal's prompt does not follow it on the same line."""
    if (
        isinstance(response, HttpResponse)
        and response.get("Content-Type", "").startswith("application/json")
        and response.content
        and not response.content.endswith(b"\n")
        and not response.has_header("Content-Length")
    ):
        response.content += b"\n"
    return response


class HybridMiddleware:
    """Middleware whose `before` and `after` are short synchronous functions, called the same way in both modes."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: SyncNext | AsyncNext) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._acall(request)
        self.before(request)
        return self.after(request, cast(SyncNext, self.get_response)(request))

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        self.before(request)
        return self.after(request, await cast(AsyncNext, self.get_response)(request))

    def before(self, request: HttpRequest) -> None:
        """Handle a request before its view."""

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response


class RequestIdMiddleware(HybridMiddleware):
    """Middleware that gives every request an id, in the answer's `X-Request-Id`, in logs and in error bodies."""

    def before(self, request: HttpRequest) -> None:
        set_request_id(accept_or_make(request.headers.get("X-Request-Id")))

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-Id"] = client_request_id() or current_request_id()
        return response


class SecurityHeadersMiddleware(HybridMiddleware):
    """Middleware that sets the headers which Django's security middleware does not."""

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response


class EndOfLineMiddleware(HybridMiddleware):
    """Middleware that ends JSON answers with a newline. It comes last: others count and compress the bytes."""

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return end_line(response)
