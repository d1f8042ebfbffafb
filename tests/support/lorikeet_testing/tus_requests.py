"""Requests of the tus protocol, straight to its ASGI application."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tarfile
from typing import Any

from control_plane.adapters.uploads import tus

TUS = {"tus-resumable": "1.0.0"}
BODY = {**TUS, "content-type": "application/offset+octet-stream"}


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def metadata(**values: str) -> str:
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in values.items())


def creation(length: int, **values: str) -> dict[str, str]:
    fields = {"adapter": "support", "filename": "support.tar", **values}
    return {**TUS, "upload-length": str(length), "upload-metadata": metadata(**fields)}


class Answer:
    def __init__(self) -> None:
        self.status, self.headers, self.body, self.taken = 0, dict[str, str](), b"", 0

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


async def ask(
    method: str,
    path: str,
    headers: dict[str, str],
    *chunks: bytes,
    key: str = "",
    drops: bool = False,
    app: Any = None,
) -> Answer:
    """Send a request, to `app` if it is not one of resumable uploads.

    With `drops` the client goes away after the last chunk instead of ending its body.
    """
    answer, left, ended = Answer(), list(chunks), False

    async def receive() -> dict[str, Any]:
        nonlocal ended
        if ended:
            await asyncio.Event().wait()
        if not left:
            ended = not drops
            return {"type": "http.disconnect" if drops else "http.request"}
        chunk = left.pop(0)
        answer.taken += len(chunk)
        ended = not drops and not left
        return {"type": "http.request", "body": chunk, "more_body": drops or bool(left)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        answer.body += message.get("body", b"")

    sent = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    if key:
        sent.append((b"authorization", f"Bearer {key}".encode()))
    scope = {
        "type": "http", "method": method, "path": path, "headers": sent, "query_string": b"", "root_path": "",
        "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    await (app or tus.ResumableUploads(nothing))(scope, receive, send)
    return answer


async def nothing(*_: Any) -> None:
    raise AssertionError("left to Django")


def at(start: int) -> dict[str, str]:
    return {**BODY, "upload-offset": str(start)}
