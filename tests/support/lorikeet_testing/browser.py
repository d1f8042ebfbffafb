"""The console's HTTP and websocket calls, made without a browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect


class Signed:
    """A person who is signed in."""

    def __init__(self, url: str, email: str, password: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=30)
        token = self.http.get("/api/session").json()["csrf_token"]
        body = {"email": email, "password": password}
        answer = self.http.post("/api/session", json=body, headers={"X-CSRFToken": token})
        assert answer.status_code == 200, answer.text
        self._csrf = answer.json()["csrf_token"]
        self.tenants = [tenant["slug"] for tenant in answer.json()["tenants"]]

    def send(self, method: str, path: str, body: object = None) -> httpx.Response:
        return self.http.request(method, path, json=body, headers={"X-CSRFToken": self._csrf})

    def ticket(self, tenant: str) -> str:
        answer = self.send("POST", f"/api/tenants/{tenant}/socket-ticket")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["ticket"])

    @property
    def cookies(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())


@asynccontextmanager
async def page_socket(
    url: str, path: str, ticket: str | None = None, *, origin: str | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[ClientConnection]:
    """A websocket as a page at `origin` (ours, unless said) opens it; `ticket` is its first message."""
    both = {"Origin": origin or url, **(headers or {})}
    async with connect(
        url.replace("http", "ws", 1) + path, additional_headers=both, proxy=None, close_timeout=1
    ) as socket:
        if ticket is not None:
            await socket.send(json.dumps({"type": "auth", "ticket": ticket}))
        yield socket


async def receive(socket: ClientConnection, within_s: float = 30) -> dict[str, Any]:
    async with asyncio.timeout(within_s):
        frame: dict[str, Any] = json.loads(await socket.recv())
    return frame
