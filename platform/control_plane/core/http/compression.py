"""Compresses the API's answers with gzip where the client accepts it. The console's files are compressed by its build.

An answer that holds a secret is not compressed: its length must not depend on what it has in common with text that an
attacker chose (BREACH). Such answers are those with `no-store`, and the session's. The others get up to `PADDING`
random bytes in gzip's header. Every cookie is `SameSite=Lax`, so that another site's requests carry none.
"""

from __future__ import annotations

import asyncio
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.regex_helper import _lazy_re_compile
from django.utils.text import compress_string

from control_plane.core.http.middleware import AsyncNext, HybridMiddleware

SMALLEST = 1000  # bytes: a shorter answer is sent as it is
# Bytes above which an answer is compressed on a thread, so that it does not block the event loop.
LARGE = 32_768
PADDING = 100  # bytes
TYPES = ("application/json", "application/vnd.oai.openapi", "text/")
# Addresses whose answer holds the CSRF token.
SECRET_PATHS = ("/api/session", "/api/session/second-factor", "/api/session/confirmation", "/api/profile")
_accepts_gzip = _lazy_re_compile(r"(?i)(?:^|[,\s])gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")


class CompressionMiddleware(HybridMiddleware):
    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if is_compressible(request, response):
            compress(cast(HttpResponse, response))
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        response = await cast(AsyncNext, self.get_response)(request)
        if is_compressible(request, response):
            answer = cast(HttpResponse, response)
            if len(answer.content) > LARGE:
                await asyncio.to_thread(compress, answer)
            else:
                compress(answer)
        return response


def is_compressible(request: HttpRequest, response: HttpResponseBase) -> bool:
    if response.streaming or response.has_header("Content-Encoding") or not isinstance(response, HttpResponse):
        return False
    if not response.get("Content-Type", "").startswith(TYPES) or len(response.content) < SMALLEST:
        return False
    if "no-store" in response.get("Cache-Control", "") or request.path_info in SECRET_PATHS:
        return False
    patch_vary_headers(response, ("Accept-Encoding",))
    return bool(_accepts_gzip.search(request.headers.get("Accept-Encoding", "")))


def compress(response: HttpResponse) -> None:
    response.content = compress_string(response.content, max_random_bytes=PADDING)
    response["Content-Encoding"] = "gzip"
    response["Content-Length"] = str(len(response.content))
