"""The built console: its files through WhiteNoise, and index.html for every address that is a page of the console."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from control_plane.core.config import current
from control_plane.core.http.errors import error_response

SERVER_PATHS = (
    "/api", "/v1", "/ws", "/static", "/livez", "/readyz", "/metrics", "/assets", "/health", "/ping", "/version",
    "/generate", "/generate_stream",
)  # fmt: skip


# Folder of the files that have a hash of their content in their names.
ASSETS = "/assets"
PLAIN_NAME = re.compile(r"[\w-][\w.-]{0,199}", re.ASCII)


class ConsoleMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise that works in both of Django's modes and knows the console's pages."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Any) -> None:
        Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)
        super().__init__(get_response)
        self.index = current().console_dir / "index.html"
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        response = self.local_response(request)
        if response is None:
            following: HttpResponseBase | Awaitable[HttpResponseBase] = self.get_response(request)
            return following
        return _ready(response) if self.is_async else response

    def local_response(self, request: HttpRequest) -> HttpResponse | None:
        """Return the file or page behind the address, or None if the console has none."""
        path = request.path_info
        file = self.find_file(path) if self.autorefresh else self.files.get(path) or self.new_asset(path)
        if file is not None:
            try:
                return self.serve(file, request)
            except FileNotFoundError:  # a later build has removed it
                self.files.pop(path, None)
        return self.page() if is_page(request) else None

    def new_asset(self, path: str) -> StaticFile | None:
        """Return a file of a build that was made while this process runs, or None.

        index.html, which is read for each page, names it, and WhiteNoise lists all files at its start.
        """
        folder, _, name = path.rpartition("/")
        file = self.index.parent / "assets" / name
        if folder != ASSETS or not PLAIN_NAME.fullmatch(name) or not file.is_file():
            return None
        self.add_file_to_dictionary(path, str(file))
        return self.files.get(path)

    def page(self) -> HttpResponse:
        """Return index.html, never cached, as it names the bundle's current files."""
        if not self.index.is_file():
            return error_response(
                404,
                "console_not_built",
                "The console has not been built.",
                "Run `make run`, or install a release.",
            )
        return HttpResponse(
            self.index.read_bytes(), content_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"}
        )

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        # Read whole: the files are small, and a file iterator would cost a thread hop per block under ASGI.
        answer = static_file.get_response(request.method, request.META)
        body = b""
        if answer.file is not None:
            with answer.file:
                body = answer.file.read()
        response = HttpResponse(body, status=int(answer.status))
        del response["Content-Type"]
        for name, value in answer.headers:
            response[name] = value
        return response

    def immutable_file_test(self, path: str, url: str) -> bool:
        """Vite puts a content hash into the name of everything under assets/."""
        return url.startswith("/assets/") or super().immutable_file_test(path, url)


def is_page(request: HttpRequest) -> bool:
    """Return True if a browser requests a page of the console, at any address its router knows."""
    path = request.path_info
    if request.method not in ("GET", "HEAD"):
        return False
    if any(path == prefix or path.startswith(f"{prefix}/") for prefix in SERVER_PATHS):
        return False
    # Below /t/ a dot may belong to an adapter's name, as in llama-3.1.
    has_suffix = bool(Path(path).suffix) and not path.startswith("/t/")
    return path == "/" or (not has_suffix and "text/html" in request.headers.get("Accept", ""))


async def _ready(response: HttpResponse) -> HttpResponseBase:
    return response
