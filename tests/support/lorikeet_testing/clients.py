"""Requests of tests that walk addresses: inference through the gateway's handler, the rest through Django's own."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from rest_framework.test import APIClient

from control_plane.gateway.openai.asgi import GatewayHandler, is_inference


def call(client: APIClient, method: str, path: str, body: Any = None) -> Any:
    if is_inference({"path": path.partition("?")[0], "method": method.upper()}):
        return asyncio.run(_through_gateway(client, method, path, body))
    return getattr(client, method)(path, body, format=None if method == "get" else "json")


async def _through_gateway(client: APIClient, method: str, path: str, body: Any) -> httpx.Response:
    headers = {"Authorization": client._credentials.get("HTTP_AUTHORIZATION", "")}
    transport = httpx.ASGITransport(app=GatewayHandler())
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver", headers=headers) as http:
        return await http.request(method, path, json=None if method == "get" else body)


def keyed(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client
