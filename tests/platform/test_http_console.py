"""The console's files, its pages, headers and error bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from control_plane.core.http.console import ConsoleMiddleware

HTML = {"HTTP_ACCEPT": "text/html,application/xhtml+xml"}


@pytest.fixture
def dist(tmp_path: Path, settings: Any) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>Lorikeet</title>")
    (folder / "assets" / "index-abc123.js").write_text("console.log(1)")
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"console_dir": folder})
    settings.WHITENOISE_ROOT = str(folder)
    return folder


def middleware() -> ConsoleMiddleware:
    return ConsoleMiddleware(lambda request: HttpResponse("from a view"))


@pytest.mark.parametrize(
    "path", ["/", "/adapters", "/t/acme/adapters/support", "/t/acme/adapters/llama-3.1", "/login?next=/x"]
)
def test_pages(dist: Path, path: str) -> None:
    answer = middleware()(RequestFactory().get(path, **HTML))
    assert b"Lorikeet" in answer.content
    assert answer["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "path", ["/api/session", "/v1/models", "/static/x", "/livez", "/assets/gone.js", "/ws/console"]
)
def test_the_servers_own_addresses(dist: Path, path: str) -> None:
    assert middleware()(RequestFactory().get(path, **HTML)).content == b"from a view"


def test_not_a_page(dist: Path) -> None:
    for request in (RequestFactory().post("/adapters", **HTML), RequestFactory().get("/x", HTTP_ACCEPT="*/*")):
        assert middleware()(request).content == b"from a view"


def test_bundle_is_cached_for_ever(dist: Path) -> None:
    answer = middleware()(RequestFactory().get("/assets/index-abc123.js"))
    assert answer.content == b"console.log(1)"
    assert "immutable" in answer["Cache-Control"]
    assert answer["Content-Type"].startswith("text/javascript")


def test_a_build_under_a_running_process(dist: Path) -> None:
    """Its new files are served beside the page that names them, and those that it removed are missing."""
    served = middleware()
    (dist / "assets" / "index-abc123.js").unlink()
    (dist / "assets" / "index-def456.js").write_text("console.log(2)")
    (dist / "assets" / ".secret").write_text("secret")
    answer = served(RequestFactory().get("/assets/index-def456.js"))
    assert answer.content == b"console.log(2)" and "immutable" in answer["Cache-Control"]
    for path in ("index-abc123.js", ".secret", "", "..", "sub/x.js", "%00", "x" * 300):
        assert served(RequestFactory().get(f"/assets/{path}")).content == b"from a view", path


def test_head(dist: Path) -> None:
    answer = middleware()(RequestFactory().head("/assets/index-abc123.js"))
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["/../etc/passwd", "/assets/../../secret", "/%2e%2e/secret"])
def test_nothing_outside_the_folder(dist: Path, path: str) -> None:
    (dist.parent / "secret").write_text("secret")
    assert b"secret" not in middleware()(RequestFactory().get(path)).content


def test_not_built(tmp_path: Path, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"console_dir": tmp_path / "none"})
    answer = middleware()(RequestFactory().get("/", **HTML))
    assert answer.status_code == 404
    assert "make" in json.loads(answer.content)["error"]["fix"]


def test_headers(client: Client) -> None:
    answer = client.get("/livez")
    assert "script-src 'self';" in answer["Content-Security-Policy"]
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Request-Id"].startswith("req_")


@pytest.mark.parametrize("offered", ["short", "x" * 100, "a b c d e f g", "evil\tid-1234"])
def test_odd_request_ids_are_replaced(client: Client, offered: str) -> None:
    assert client.get("/livez", HTTP_X_REQUEST_ID=offered)["X-Request-Id"].startswith("req_")


def test_unknown_address(client: Client) -> None:
    answer = client.get("/api/nope")
    assert answer.status_code == 404
    assert answer.json()["error"]["request_id"] == answer["X-Request-Id"]


@pytest.mark.django_db
def test_health(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "parts": {"database": "ok"}}


def test_docs_bring_their_own_scripts(client: Client) -> None:
    page = client.get("/api/docs").content.decode()
    assert "cdn" not in page
    assert "<script>" not in page
