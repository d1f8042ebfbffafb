"""Requests of tests that walk addresses, through Django's own handler."""

from __future__ import annotations

from typing import Any

from rest_framework.test import APIClient


def call(client: APIClient, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(path, body, format=None if method == "get" else "json")


def keyed(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client
