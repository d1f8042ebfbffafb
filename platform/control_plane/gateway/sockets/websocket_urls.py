"""Websocket addresses of inference."""

from typing import Any

from django.urls import path

from control_plane.gateway.sockets.inference_socket import InferenceConsumer

websocket_urlpatterns: list[Any] = [path("ws/inference", InferenceConsumer.as_asgi())]
