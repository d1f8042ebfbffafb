"""`manage.py seed_demo`: the way a user goes, once, and never by mistake in production."""

from __future__ import annotations

import io
import json
import stat
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload
from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.values import Limits
from control_plane.identity.keys.auth import authenticate_key
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.management.demo import adapters, people
from control_plane.management.demo.adapters import split_card

pytestmark = pytest.mark.django_db
CARD = "---\nwidget:\n- text: Ahoy?\n---\n\n# pirate\n\nSpeaks like\na pirate.\n\nMore.\n"


@pytest.fixture
def demo(settings: Any, tmp_path: Path, queue: Any) -> Path:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"demo": True})
    folder = tmp_path / "demo" / "adapters" / "pirate"
    folder.mkdir(parents=True)
    for name, content in adapter_files().items():
        (folder / name).write_bytes(content)
    (folder / "README.md").write_text(CARD)
    return folder


def seed(*options: str) -> dict[str, Any]:
    output = io.StringIO()
    call_command("seed_demo", "--json", *options, stdout=output)
    answer: dict[str, Any] = json.loads(output.getvalue().splitlines()[-1])
    return answer


def test_refuses_in_production(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"demo": False, "debug": False})
    with pytest.raises(CommandError, match="LORIKEET_DEMO=1"):
        call_command("seed_demo")
    assert not Tenant.objects.exists()


def test_seed(demo: Path, host: Any, queue: Any, committing: Any, lorikeet: Any) -> None:
    with committing():
        answer = seed()
    assert answer["email"] == "demo@lorikeet.local"
    assert authenticate_key(answer["key"]) is not None
    credentials = lorikeet.var_dir / "demo-credentials.json"
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
    assert json.loads(credentials.read_text())["key"] == answer["key"]
    roles = {f"{m.tenant.slug}:{m.user.email}": m.role for m in Membership.objects.select_related("tenant", "user")}
    assert roles == {
        "acme:demo@lorikeet.local": "owner",
        "acme:viewer@lorikeet.local": "viewer",
        "globex:globex@lorikeet.local": "owner",
    }
    quotas = {row.tenant.slug: row.limits for row in LimitSet.objects.all()}
    assert quotas == {"acme": Limits(pinned_bytes=people.PINNED_BYTES)}, "else nothing may be pinned"
    upload = Upload.objects.get()
    assert (upload.adapter_name, upload.description, upload.state) == ("pirate", "Speaks like a pirate.", "received")
    assert queue.names() == ["validate_next"]
    assert answer["adapters"] == {"pirate": "received"}


def test_again(demo: Path, host: Any, committing: Any, in_process: None) -> None:
    with committing():
        first = seed()
        second = seed()
        validation_job.validate_next()
        third = seed()
    assert first["key"] == second["key"] == third["key"]
    assert Upload.objects.count() == AdapterVersion.objects.count() == ApiKey.objects.count() == 1


def test_an_archived_adapter_is_not_counted(demo: Path, host: Any, committing: Any, in_process: None) -> None:
    with committing():
        seed()
        validation_job.validate_next()
        AdapterVersion.objects.update(state=VersionState.ARCHIVED)
        assert seed()["adapters"] == {}


def test_limits_that_an_operator_set_are_kept(demo: Path, host: Any, queue: Any, committing: Any) -> None:
    with committing():
        seed()
        LimitSet.objects.update(pinned_bytes=1)
        seed()
    assert LimitSet.objects.get().pinned_bytes == 1


def test_lost_credentials_are_replaced(demo: Path, host: Any, lorikeet: Any) -> None:
    first = seed()
    (lorikeet.var_dir / "demo-credentials.json").unlink()
    second = seed()
    assert first["key"] != second["key"]
    assert authenticate_key(second["key"]) is not None


def test_unreachable_server(demo: Path, host: Any) -> None:
    with pytest.raises(CommandError, match="does not answer"):
        seed("--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [("", {}, ""), ("# x", {}, "# x"), ("---\na: 1\n---\nb", {"a": 1}, "b"), ("---\n---\nb", {}, "b")],
)
def test_cards(text: str, front: dict[str, Any], body: str) -> None:
    assert split_card(text) == (front, body)


class Answers(BaseHTTPRequestHandler):
    """Takes what is uploaded, unless its name is "refused"."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, self.headers["Authorization"], body))  # type: ignore[attr-defined]
        self.send_response(422 if b"refused" in body else 202)
        self.end_headers()
        self.wfile.write(b"Its name is refused.")

    def log_message(self, *_: Any) -> None: ...


def test_an_upload_to_a_server_that_runs(demo: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    (adapter,) = adapters.demo_adapters(demo.parent)
    try:
        adapters.upload_to(url, "lk_key", adapter)
        with pytest.raises(adapters.DemoServerError, match="422 Its name is refused"):
            adapters.upload_to(url, "lk_key", replace(adapter, description="refused"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    path, authorization, body = server.seen[0]  # type: ignore[attr-defined]
    assert path.startswith("/api/tenants/") and authorization == "Bearer lk_key"
    assert b'name="name"\r\n\r\npirate' in body
    for name, content in adapter_files().items():
        assert f'filename="{name}"'.encode() in body and content in body
    with pytest.raises(adapters.DemoServerError, match="does not answer"):
        adapters.upload_to(url, "lk_key", adapter)
