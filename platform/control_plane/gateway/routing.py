"""Websocket addresses of inference."""

from typing import Any

websocket_urlpatterns: list[Any] = []
