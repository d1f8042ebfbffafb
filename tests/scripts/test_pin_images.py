"""Images of others are pinned through the registry's HTTP API, here a fake one with tokens as Docker Hub's."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from control_plane.core.config import REPOSITORY
from scripts.pin_images import FILES, REFERENCE, main, pinned, place_of

MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


class FakeRegistry(ThreadingHTTPServer):
    """A registry with the tag `1.0` of the repository `acme/base`, for callers with a token of its own realm."""

    stated = DIGEST

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:  # the library's name
        if self.path.startswith("/token?"):
            assert "scope=repository%3Aacme%2Fbase%3Apull" in self.path
            self._answer(200, b'{"token": "t0ken"}')
        elif self.headers.get("Authorization") != "Bearer t0ken":
            realm = f'Bearer realm="http://{self.server.host}/token",service="r",scope="repository:acme/base:pull"'
            self._answer(401, b"", {"WWW-Authenticate": realm})
        elif self.path == "/v2/acme/base/manifests/1.0":
            assert "image.index.v1+json" in self.headers["Accept"]
            self._answer(200, MANIFEST, {"Docker-Content-Digest": self.server.stated})
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = FakeRegistry(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def write(root: Path, image: str) -> None:
    (root / "docker").mkdir(exist_ok=True)
    (root / "docker-compose.yml").write_text(f"  a:\n    image: {image}\n  b:\n    image: lorikeet/web:0.1.0\n")
    (root / "docker/web.Dockerfile").write_text(f"FROM {image} AS console\nRUN true\nFROM {image}\n")
    (root / "docker/engine.Dockerfile").write_text(f"FROM {image} AS base\nFROM base AS cpu\n")


def test_every_file_gets_the_digest_that_the_tag_has_now(registry: FakeRegistry, tmp_path: Path) -> None:
    image = f"{registry.host}/acme/base:1.0"
    write(tmp_path, image)
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert (tmp_path / "docker-compose.yml").read_text() == (
        f"  a:\n    image: {image}@{DIGEST}\n  b:\n    image: lorikeet/web:0.1.0\n"
    )
    assert (tmp_path / "docker/web.Dockerfile").read_text().count(f"FROM {image}@{DIGEST}") == 2
    assert "FROM base AS cpu" in (tmp_path / "docker/engine.Dockerfile").read_text()
    assert main(["--check"], tmp_path) == 0 and main([], tmp_path) == 0
    write(tmp_path, f"{image}@sha256:{'0' * 64}")
    assert main(["--check"], tmp_path) == 1, "the tag was moved"


@pytest.mark.parametrize("case", ["unknown tag", "wrong digest", "no registry"])
def test_what_cannot_be_resolved_changes_no_file(
    registry: FakeRegistry, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host, tag = ("127.0.0.1:1" if case == "no registry" else registry.host), "2.0" if case == "unknown tag" else "1.0"
    registry.stated = f"sha256:{'1' * 64}" if case == "wrong digest" else DIGEST
    write(tmp_path, f"{host}/acme/base:{tag}")
    before = {name: (tmp_path / name).read_text() for name in FILES}
    assert main([], tmp_path) == 1
    assert f"{host}/acme/base:{tag}" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_text() for name in FILES} == before


def test_names_are_read_as_docker_reads_them() -> None:
    assert place_of("postgres") == ("registry-1.docker.io", "library/postgres")
    assert place_of("prom/prometheus") == ("registry-1.docker.io", "prom/prometheus")
    assert place_of("ghcr.io/acme/base") == ("ghcr.io", "acme/base")
    assert place_of("localhost:5000/base") == ("localhost:5000", "base")


def test_every_image_of_others_is_found_in_this_project_s_files() -> None:
    names = {match["name"] for file in FILES for match in REFERENCE.finditer((REPOSITORY / file).read_text())}
    assert names == {"postgres", "redis", "prom/prometheus", "grafana/grafana", "node", "python"}
    text = (REPOSITORY / "docker-compose.yml").read_text()
    assert pinned(pinned(text, lambda *_: DIGEST), lambda *_: DIGEST).count(f"@{DIGEST}") == 4
