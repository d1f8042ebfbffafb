"""Websocket addresses of the console's live events."""

from typing import Any

from django.urls import path

from control_plane.live.console_socket import ConsoleConsumer

websocket_urlpatterns: list[Any] = [path("ws/console", ConsoleConsumer.as_asgi())]
