"""Websocket URLs: one for programs, one for the console."""

from typing import Any

from django.urls import path

from control_plane.gateway.websocket.console_socket import ConsoleConsumer
from control_plane.gateway.websocket.inference_socket import InferenceConsumer

websocket_urlpatterns: list[Any] = [
    path("ws/inference", InferenceConsumer.as_asgi()),
    path("ws/console", ConsoleConsumer.as_asgi()),
]
