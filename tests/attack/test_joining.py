"""Who may be a host, and who may call one: a token counts once and in time, a certificate for one side only, and a
credential until it is taken back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.joining import *  # noqa: F403
from lorikeet_testing.joining import Machine, token

from control_plane.core.config import current
from control_plane.fleet.base_models.actions import set_base_model
from control_plane.fleet.base_models.base_model import host_quarantine, served_bases, serving_hosts
from control_plane.fleet.hosts.actions import record_boot, record_status, sync_hosts
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.joining import authority
from control_plane.fleet.joining.join_tokens import withdraw_token
from control_plane.fleet.joining.joining import forget_host, revoke_host
from control_plane.fleet.joining.models import JoinToken
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints, endpoint_of, known_endpoints
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError
from lora_engine.server import joining
from lora_engine.server.identity import BadCertificateError, certificate_request, new_key, private_pem
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("api", "queue")]


@pytest.fixture
def engine(machine: Machine) -> Iterator[FakeEngineThread]:
    """A host that joined and runs."""
    thread = FakeEngineThread(machine.address, identity=machine.join(token()))
    yield thread
    thread.close()


def describe(endpoint: HostEndpoint) -> pb.EngineDescription:
    with engine_calls(endpoint) as calls:
        return calls.describe()


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_the_token_itself_is_kept_nowhere(machine: Machine) -> None:
    text = token()
    machine.join(text)
    kept = str(list(JoinToken.objects.values())) + str(list(AuditEvent.objects.values()))
    assert text not in kept and text.removeprefix("lkj_") not in kept
    files = [path.read_text() for path in machine.folder.rglob("*") if path.is_file()]
    assert files and not any(text in content for content in files)


def test_it_lets_one_machine_join_once(machine: Machine, tmp_path: Path) -> None:
    text = token()
    machine.join(text)
    with pytest.raises(StartupError, match="403 join_token_used"):
        Machine(tmp_path, "gpu2").join(text)
    assert not EngineHost.objects.filter(name="gpu2").exists()


def test_the_same_key_may_ask_again_as_the_answer_may_have_been_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, post = token(), joining._post

    def lost(url: str, body: dict[str, str]) -> dict[str, Any]:
        post(url, body)
        raise StartupError("the connection broke")

    monkeypatch.setattr(joining, "_post", lost)
    with pytest.raises(StartupError, match="broke"):
        machine.join(text)
    monkeypatch.setattr(joining, "_post", post)
    assert machine.join(text).name == "gpu1"
    assert EngineHost.objects.filter(active=True).count() == 1


def test_one_that_expired_was_withdrawn_or_is_another_installations(machine: Machine) -> None:
    with pytest.raises(StartupError, match="403 join_token_expired"):
        machine.join(token(seconds=-1))
    text = token()
    withdraw_token(actor=SYSTEM, token_id=JoinToken.objects.get(used_at=None, expires_at__gt=timezone.now()).pk)
    with pytest.raises(StartupError, match="403 join_token_withdrawn"):
        machine.join(text)
    for foreign in ("lkj_" + "x" * 43, "", " "):
        with pytest.raises(StartupError, match=r"403 join_token_unknown|400|has not joined"):
            machine.join(foreign)
    assert not EngineHost.objects.filter(active=True).exclude(credential="").exists()


def test_it_is_hashed_under_the_pepper(machine: Machine, settings: Any) -> None:
    text = token()
    settings.LORIKEET = current().model_copy(update={"key_pepper": "another installation's"})
    with pytest.raises(StartupError, match="403 join_token_unknown"):
        machine.join(text)


def test_nobody_takes_the_name_of_a_host_but_by_a_token_for_it(machine: Machine, tmp_path: Path) -> None:
    machine.join(token())
    other = Machine(tmp_path / "other", "gpu1")
    with pytest.raises(StartupError, match="409 host_name_taken"):
        other.join(token())
    with pytest.raises(StartupError, match="409 host_name_taken"):
        Machine(tmp_path, "local").join(token("local"))  # of the settings
    before = endpoint_of("gpu1")
    other.join(token("gpu1"))
    assert endpoint_of("gpu1").credential != before.credential and endpoint_of("gpu1").address == other.address


@pytest.mark.parametrize("address", ["unix:/etc/passwd", "dns:///x:1", "ipv4:1.2.3.4:5", "gpu1", "a b:1", "x:1/y"])
def test_an_address_is_a_host_and_a_port(machine: Machine, address: str) -> None:
    body = {"token": token(), "name": "gpu1", "address": address, "certificate_request": "x"}
    with pytest.raises(StartupError, match="400"):
        joining._post("", body)


def test_only_a_request_signed_by_its_own_key_of_the_right_kind_is_certified(machine: Machine) -> None:
    good = certificate_request(new_key()).decode()
    lines = good.splitlines()
    altered = "\n".join([*lines[:-2], lines[-2][::-1], lines[-1]])
    for bad in ("x", altered, private_pem(new_key()), good[:200]):
        body = {"token": token(), "name": "gpu1", "address": "gpu1:7000", "certificate_request": bad}
        with pytest.raises(StartupError, match="400 bad_certificate_request"):
            joining._post("", body)


# -- what the token is sent to ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://lorikeet.example.org", "http://10.0.0.1:8000", "ftp://127.0.0.1", "x"])
def test_it_is_sent_over_tls_only_and_never_on(url: str) -> None:
    with pytest.raises(StartupError, match="https"):
        joining._require_https(url)


def test_a_redirect_does_not_carry_it_on_and_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real one
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.path)
            away = self.path.startswith("/away")
            self.send_response(307 if away else 403)
            self.send_header("Location", "/elsewhere")
            body = b"" if away else json.dumps({"error": {"message": "It is used.", "fix": "Ask."}}).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.raises(StartupError, match="status 307"):
            joining._post(f"{url}/away", {"token": "t"})
        with pytest.raises(StartupError, match=r"It is used\. Ask\."):
            joining._post(url, {"token": "t"})
    finally:
        server.shutdown()
        server.server_close()
    assert seen == ["/away/api/hosts/join", "/api/hosts/join"]


# -- who may call a host ---------------------------------------------------------------------------------------------


def calls_with(address: str, credentials: grpc.ChannelCredentials | None, name: str) -> grpc.StatusCode:
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    made = grpc.secure_channel(address, credentials, options) if credentials else grpc.insecure_channel(address)
    with made as channel:
        try:
            stub = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]
            stub.Describe(pb.DescribeRequest(), timeout=5)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def test_only_the_control_plane_of_its_fleet_may_call_it(
    machine: Machine, engine: FakeEngineThread, tmp_path: Path, settings: Any
) -> None:
    assert describe(endpoint_of("gpu1")).boot_id == engine.engine.boot_id
    name, root = authority.server_name(endpoint_of("gpu1").credential), authority.authority_certificate()
    other = Machine(tmp_path, "gpu2").join(token())._identity
    as_host = grpc.ssl_channel_credentials(root, other.key.encode(), other.certificate.encode())
    settings.LORIKEET = current().model_copy(update={"authority_key": "another installation's"})
    theirs = authority.client_identity()
    foreign = grpc.ssl_channel_credentials(root, theirs.key, theirs.certificate)
    for credentials in (None, grpc.ssl_channel_credentials(root), as_host, foreign):
        assert calls_with(machine.address, credentials, name) == grpc.StatusCode.UNAVAILABLE


def test_a_machine_at_the_address_of_a_host_is_not_taken_for_it(machine: Machine, tmp_path: Path) -> None:
    machine.join(token())
    other = Machine(tmp_path, "gpu2").join(token())
    thread = FakeEngineThread(machine.address, identity=other)  # a host of the same fleet
    try:
        with pytest.raises(HostError):
            describe(endpoint_of("gpu1"))
    finally:
        thread.close()


# -- revoking --------------------------------------------------------------------------------------------------------


def test_a_revoked_host_is_in_quarantine_at_once_and_connected_to_no_more(
    machine: Machine, engine: FakeEngineThread
) -> None:
    before = endpoint_of("gpu1")
    set_base_model(actor=SYSTEM, description=describe(before))
    record_boot("gpu1", describe(before))
    assert [host.name for host in serving_hosts(served_bases())] == ["gpu1"]
    revoke_host(actor=SYSTEM, name="gpu1")
    host = EngineHost.objects.get(name="gpu1")
    reason = host_quarantine(served_bases(), host)
    assert reason is not None and reason.code == "revoked"
    assert not serving_hosts(served_bases()) and "gpu1" not in known_endpoints()
    with pytest.raises(HostError, match="revoked"):
        endpoint_of("gpu1")
    # A watcher that still follows it for a moment changes nothing of that.
    assert record_boot("gpu1", pb.EngineDescription(boot_id="late")) is False
    record_status("gpu1", pb.HostStatus(boot_id="late"))
    sync_hosts(configured_endpoints())
    host.refresh_from_db()
    assert (host.active, host.state, host.boot_id) == (True, "offline", engine.engine.boot_id)
    assert AuditEvent.objects.filter(action="host.revoke", target_label="gpu1").count() == 1


def test_what_it_had_is_worth_nothing_when_it_joins_anew(
    machine: Machine, engine: FakeEngineThread, tmp_path: Path
) -> None:
    revoke_host(actor=SYSTEM, name="gpu1")
    with pytest.raises(StartupError, match="409 host_name_taken"):
        Machine(tmp_path / "again", "gpu1").join(token())
    again = Machine(tmp_path / "again", "gpu1")
    again.port = machine.port
    again.join(token("gpu1"))
    with pytest.raises(HostError):  # the engine there still shows the old certificate
        describe(endpoint_of("gpu1"))


def test_the_token_that_it_joined_with_does_not_bring_it_back(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, str] = {}
    post = joining._post
    monkeypatch.setattr(joining, "_post", lambda url, body: sent.update(body) or post(url, body))
    machine.join(token())
    revoke_host(actor=SYSTEM, name="gpu1")
    for _ in range(2):  # revoked, then forgotten
        with pytest.raises(StartupError, match="409 host_name_taken"):
            post("", sent)
        forget_host(actor=SYSTEM, name="gpu1") if EngineHost.objects.filter(name="gpu1", active=True) else None
    Machine(tmp_path / "new", "gpu1").join(token())  # its name is free again


# -- the host's own files ----------------------------------------------------------------------------------------------


def test_its_key_is_readable_by_its_user_only(machine: Machine) -> None:
    machine.join(token())
    (kept,) = (machine.folder / "identity").iterdir()
    assert kept.stat().st_mode & 0o077 == 0 and kept.parent.stat().st_mode & 0o077 == 0


def test_a_certificate_of_another_key_or_authority_is_not_installed(machine: Machine, settings: Any) -> None:
    identity = machine.join(token())
    before = identity._identity
    request, other_key = identity.request(), certificate_request(new_key())
    lifetime = timedelta(days=1)
    for_another_key = authority.certify_host(other_key, "x", lifetime).certificate
    settings.LORIKEET = current().model_copy(update={"authority_key": "another installation's"})
    of_another_authority = authority.certify_host(request, "x", lifetime).certificate
    for bad in (for_another_key, of_another_authority, b"", b"\xff"):
        with pytest.raises(BadCertificateError):
            identity.install(bad)
    assert identity._identity is before and machine.join()._identity == before


def test_a_damaged_file_is_said(machine: Machine) -> None:
    machine.join(token())
    for content in ("", "{}", "[]", '{"name": 1}'):
        (machine.folder / "identity" / "identity.json").write_text(content)
        with pytest.raises(StartupError, match="damaged"):
            machine.join()


def test_it_needs_a_port_that_stays(tmp_path: Path) -> None:
    for listen in ("unix:/tmp/x.sock", "127.0.0.1:0"):
        with pytest.raises(StartupError, match="port that stays"):
            joining.advertised(EngineConfig(model=tmp_path, listen=listen, join="http://127.0.0.1:8000"))
    wild = EngineConfig(model=tmp_path, listen="0.0.0.0:7000", join="http://127.0.0.1:8000")
    assert joining.advertised(wild) == "127.0.0.1:7000"
