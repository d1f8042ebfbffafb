"""Websocket addresses of the console's live events."""

from typing import Any

websocket_urlpatterns: list[Any] = []
