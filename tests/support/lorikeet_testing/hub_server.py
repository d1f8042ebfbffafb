"""A server that speaks the Hub's protocol: a repository's listing at a revision, and its files, by way of a store."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit


class HubServer(http.server.ThreadingHTTPServer):
    """`repositories`: name -> revision -> files. Large files are redirected to `store`, as the Hub does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.token = ""  # that private ones need
        self.store: HubServer | None = None
        self.blobs: dict[str, bytes] = {}  # by path, for any address
        self.cut_after: int | None = None  # bytes of a file, then the connection ends; once
        self.longest_part: int | None = None  # bytes of an answer to a range, which may be less than requested
        self.names_sizes = True  # in listings
        self.status: int | None = None  # for everything, with what goes with it:
        self.refusal: tuple[bytes, dict[str, str]] = (b"", {})
        self.open = threading.Event()  # nothing is answered before
        self.open.set()
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class _Handler(http.server.BaseHTTPRequestHandler):
    server: HubServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.open.wait(60)
        self.server.seen.append((path, {name.lower(): text for name, text in self.headers.items()}))
        parts = path.strip("/").split("/")
        if self.server.status is not None:
            body, headers = self.server.refusal
            self.answer(self.server.status, body, **headers)
        elif path in self.server.blobs:
            self.file(self.server.blobs[path])
        elif self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.answer(401, b"{}")
        elif parts[:2] == ["api", "models"]:
            self.listing("/".join(parts[2:4]), "/".join(parts[5:]))
        elif parts[2:3] == ["resolve"]:
            self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self.answer(404, b"{}")

    def listing(self, repository: str, revision: str) -> None:
        files = self.at(repository, revision)
        if files is None:
            self.answer(404, b"{}")
            return
        sizes = {name: {"size": len(content)} if self.server.names_sizes else {} for name, content in files.items()}
        siblings = [{"rfilename": name, **size} for name, size in sizes.items()]
        repository_info = {"id": repository, "sha": commit_of(files), "siblings": siblings, "private": False}
        self.answer(200, json.dumps(repository_info).encode())

    def resolve(self, repository: str, revision: str, name: str) -> None:
        content = (self.at(repository, revision) or {}).get(name)
        if content is None:
            self.answer(404, b"")
        elif self.server.store is not None and name.endswith(".safetensors"):
            path = f"/store/{digest_of(content)}"
            self.server.store.blobs[path] = content
            self.answer(302, b"", location=f"{self.server.store.url}{path}?signature=x")
        else:
            self.file(content)

    def at(self, repository: str, revision: str) -> dict[str, bytes] | None:
        revisions = self.server.repositories.get(repository, {})
        return next((files for name, files in revisions.items() if revision in (name, commit_of(files))), None)

    def file(self, content: bytes) -> None:
        tag = f'"{digest_of(content)}"'
        start = 0
        range_header = self.headers.get("Range", "")
        if range_header and self.headers.get("If-Range") == tag:
            start = int(range_header.removeprefix("bytes=").rstrip("-"))
        end = start + self.server.longest_part if start and self.server.longest_part else len(content)
        body = content[start:end]
        self.send_response(206 if start else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(content)}")
        self.end_headers()
        cut, self.server.cut_after = self.server.cut_after, None
        self.wfile.write(body if cut is None else body[:cut])
        self.close_connection = True

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def commit_of(files: dict[str, bytes]) -> str:
    listing = "".join(f"{name} {digest_of(content)} " for name, content in sorted(files.items()))
    return hashlib.sha1(listing.encode()).hexdigest()


@lru_cache(maxsize=256)
def digest_of(content: bytes) -> str:
    """Once for each content: it may be large."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def running_hub() -> Iterator[HubServer]:
    server = HubServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.open.set()
        server.shutdown()
        server.server_close()
