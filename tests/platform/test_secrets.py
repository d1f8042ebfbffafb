"""Secrets: where they come from, their rotation step by step, and processes with the secrets of another database."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.joining import *  # noqa: F403
from lorikeet_testing.joining import Machine, token
from rest_framework.test import APIClient

from control_plane.adapters.imports.models import BucketCredentials, HubToken
from control_plane.adapters.imports.sealed import seal as seal_token
from control_plane.adapters.imports.sealed import unseal as unseal_token
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.console.webhooks.actions import WebhookSettings, create_endpoint
from control_plane.console.webhooks.signing import secret_of, signature_headers
from control_plane.core import sealed
from control_plane.core.config import current
from control_plane.core.secrets import checks, keys, rotation
from control_plane.core.secrets.rotation import State
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.joining import authority
from control_plane.fleet.joining.joining import renew_due
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.accounts.models import User
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.auth import authenticate_key
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.members.invitations import InvitationError, invitation_link, invite, open_invitation
from control_plane.identity.second_factor import recovery_codes
from control_plane.identity.second_factor.models import RecoveryCode
from control_plane.identity.tenants.roles import Role
from control_plane.management import secret_uses

pytestmark = pytest.mark.django_db
REQUIRED = [kind.name for kind in keys.KINDS.values() if kind.required]


@pytest.fixture(autouse=True)
def in_files(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep all secrets in files of the data folder, which are read at each use, and wait for nobody."""
    values = {keys.KINDS[name].field: "" for name in keys.KINDS}
    settings.LORIKEET = settings.LORIKEET.model_copy(update=values)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = keys.in_use("secret-key"), []
    monkeypatch.setattr(keys, "FOLLOW_S", 0.0)
    monkeypatch.setattr(rotation, "SETTLE_S", 0.0)
    monkeypatch.setattr("control_plane.management.commands.rotate_secret.FOLLOW_S", 0.0)
    return tmp_path


def rotate(name: str, *steps: str) -> str:
    out = StringIO()
    for step in steps or [""]:
        call_command("rotate_secret", name, *step.split(), stdout=out)
    return out.getvalue()


def state(name: str) -> State:
    return rotation.rotation_of(name).state


# -- values -----------------------------------------------------------------------------------------------------------


def test_each_secret_is_a_root_of_its_own(in_files: Path) -> None:
    values = [keys.in_use(name) for name in REQUIRED]
    assert len({*values}) == len(REQUIRED) and all(len(value) >= 64 for value in values)
    assert {stat.S_IMODE((in_files / name).stat().st_mode) for name in REQUIRED} == {0o600}


def test_a_setting_holds_values_or_names_a_file(settings: Any, tmp_path: Path) -> None:
    settings.LORIKEET = current().model_copy(update={"metrics_token": " new , old ", "engine_token": f"@{tmp_path}/t"})
    assert keys.accepted("metrics-token") == ("new", "old")
    with pytest.raises(keys.SecretFileError, match="cannot be read: No such file"):
        keys.accepted("engine-token")
    (tmp_path / "t").write_text("one\n\ntwo\n")
    assert keys.accepted("engine-token") == ("one", "two")
    (tmp_path / "t").write_text("three\n")
    assert keys.accepted("engine-token") == ("three",)


DAMAGED = (b"", b"\n \n", b"\xff\xfe\x00", b"half a secret", b"a\nb\nc\nd\ne\n", b"same\nsame\n", b"a,b", b"\x00" * 64)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_said_and_a_running_process_goes_on(in_files: Path, content: bytes) -> None:
    value = keys.in_use("key-pepper")
    (in_files / "key-pepper").write_bytes(content)
    assert keys.in_use("key-pepper") == value, "a process that has read it"
    keys.forget(in_files / "key-pepper")
    with pytest.raises(keys.SecretFileError, match=r"key-pepper is damaged.*Restore it from the backup"):
        keys.in_use("key-pepper")
    (problem,) = checks.problems()
    assert problem.name == "key-pepper" and "damaged" in problem.message
    with pytest.raises(CommandError, match="damaged"):
        rotate("key-pepper", "begin")


def _make(folder: str, results: Any) -> None:
    results.put(keys.read_or_create_secret(Path(folder) / "shared"))


def test_processes_that_start_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_make, args=(str(tmp_path), results)) for _ in range(4)]
    for process in processes:
        process.start()
    assert len({results.get(timeout=20) for _ in processes}) == 1
    for process in processes:
        process.join()


# -- the secrets of another database ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REQUIRED)
def test_another_secret_than_the_databases_is_said_at_the_start(name: str, in_files: Path, caplog: Any) -> None:
    assert checks.report() == []
    (in_files / name).write_text("x" * 64)
    (problem,) = checks.report()
    assert problem.name == name and str(in_files / name) in problem.message and "rotate_secret" in problem.fix
    assert "is not the one with which the database was made" in caplog.text
    (error,) = run_checks(databases=["default"], tags=["database"])
    assert error.id == "lorikeet.E001" and name in error.msg
    assert "mismatch" in rotate(name)
    with pytest.raises(CommandError, match="not of this database"):
        rotate(name, "begin")
    rotate(name, "adopt")
    assert checks.problems() == []


@pytest.mark.django_db(transaction=True)
def test_a_process_with_another_secret_is_not_ready(in_files: Path) -> None:
    checks.report()
    pages = ("/readyz", "/readyz/inference")
    assert [APIClient().get(page).status_code for page in pages] == [200, 200]
    (in_files / "key-pepper").write_text("x" * 64)
    for page in pages:
        answer = APIClient().get(page)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "secret_mismatch"


def test_a_missing_file_is_noticed_although_a_new_one_was_made(in_files: Path) -> None:
    checks.report()
    (in_files / "sealing-key").unlink()
    keys.forget(in_files / "sealing-key")
    (problem,) = checks.report()
    assert problem.name == "sealing-key"


def test_a_key_gets_503_and_not_401_from_a_process_with_another_pepper(acme: Any, settings: Any) -> None:
    _, text = acme.key()
    checks.report()
    settings.LORIKEET = current().model_copy(update={"key_pepper": "of another installation"})
    with pytest.raises(checks.SecretMismatchError):
        authenticate_key(text)
    answer = APIClient().get(acme.path("adapters"), HTTP_AUTHORIZATION=f"Bearer {text}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "secret_mismatch")
    answer = APIClient().get(acme.path("adapters"), HTTP_AUTHORIZATION=f"Bearer lk_aaaaaaaa_{'x' * 43}")
    assert answer.status_code == 401


def test_a_worker_does_not_start_with_other_secrets(in_files: Path, settings: Any) -> None:
    settings.LORIKEET = current().model_copy(update={"embedded": False})
    checks.require_at_start()
    (in_files / "authority-key").write_text("x" * 64)
    with pytest.raises(SystemExit):
        checks.require_at_start()


# -- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REQUIRED)
def test_a_rotation_and_its_states(name: str) -> None:
    old = keys.in_use(name)
    assert state(name) is State.IDLE
    assert "begun since" in rotate(name, "begin") and keys.accepted(name)[0] == old
    with pytest.raises(CommandError, match="is under way: begun since"):
        rotate(name, "begin")
    with pytest.raises(CommandError, match="not switched yet"):
        rotate(name, "finish")
    assert "switched since" in rotate(name, "switch") and keys.accepted(name)[1] == old
    new = keys.in_use(name)
    rotate(name, "switch")  # again: changes nothing
    assert keys.accepted(name) == (new, old)
    with pytest.raises(CommandError, match="under way: switched"):
        rotate(name, "begin")
    if keys.KINDS[name].overlap_days:
        with pytest.raises(CommandError, match="is valid until"):
            rotate(name, "finish")
    assert "idle" in rotate(name, "finish --discard") and keys.accepted(name) == (new,)
    assert checks.problems() == []
    actions = ["secret.begin", "secret.switch", "secret.switch", "secret.finish"]
    assert [*AuditEvent.objects.filter(target_id=name).order_by("id").values_list("action", flat=True)] == actions
    detail = str([*AuditEvent.objects.values_list("detail", flat=True)])
    assert old not in detail and new not in detail
    with pytest.raises(CommandError, match="no rotation"):
        rotate(name, "abort")
    with pytest.raises(CommandError, match="has begun"):
        rotate(name, "switch")


@pytest.mark.parametrize("name", REQUIRED)
def test_a_rollback(name: str) -> None:
    old = keys.accepted(name)
    rotate(name, "begin", "abort")
    assert keys.accepted(name) == old and state(name) is State.IDLE
    rotate(name, "begin", "switch", "abort")
    assert keys.in_use(name) == old[0] and state(name) is State.BEGUN
    rotate(name, "abort")
    assert keys.accepted(name) == old and checks.problems() == []


class InterruptionError(Exception):
    pass


@pytest.mark.parametrize("step", ["begin", "switch", "finish", "abort"])
@pytest.mark.parametrize("written", [False, True], ids=["before the file", "after the file"])
def test_an_interrupted_step_is_repeated(step: str, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed at its write of the file, before it commits: the record stays as it was."""
    write = rotation.write_values
    checks.report()
    steps = {"begin": [], "switch": ["begin"], "finish": ["begin", "switch"], "abort": ["begin"]}[step]
    rotate("key-pepper", *steps)

    def interrupted(path: Path, values: tuple[str, ...]) -> None:
        if written:
            write(path, values)
        raise InterruptionError

    monkeypatch.setattr(rotation, "write_values", interrupted)
    with pytest.raises(InterruptionError):
        rotate("key-pepper", step)
    monkeypatch.setattr(rotation, "write_values", write)
    assert checks.problems() == [], "no process refuses to work meanwhile"
    rotate("key-pepper", step)
    expected = {"begin": State.BEGUN, "switch": State.SWITCHED}.get(step, State.IDLE)
    assert state("key-pepper") is expected
    assert len(keys.accepted("key-pepper")) == (1 if expected is State.IDLE else 2)


def test_a_variable_is_changed_by_the_operator_and_the_steps_check_it(settings: Any) -> None:
    def variable(text: str) -> None:
        settings.LORIKEET = current().model_copy(update={"key_pepper": text})

    variable("old")
    checks.report()
    with pytest.raises(CommandError, match="Set LORIKEET_KEY_PEPPER to <the present value>,<the new value>, restart"):
        rotate("key-pepper", "begin")
    variable("new,old")
    with pytest.raises(CommandError, match="<the present value>,<the new value>"):
        rotate("key-pepper", "begin")
    variable("old,new")
    rotate("key-pepper", "begin")
    with pytest.raises(CommandError, match="<the new value>,<the old value>"):
        rotate("key-pepper", "switch")
    variable("new,old")
    assert checks.problems() == []
    rotate("key-pepper", "switch", "finish")
    variable("new")
    assert checks.problems() == [] and state("key-pepper") is State.IDLE
    variable("old")
    assert [problem.name for problem in checks.problems()] == ["key-pepper"], "a process that was forgotten"


# -- what each secret is for ------------------------------------------------------------------------------------------


def test_api_keys_are_hashed_anew_at_their_use(acme: Any) -> None:
    (used, text), (_, other) = acme.key(), acme.key()
    before = ApiKey.objects.get(pk=used.pk).secret_hash
    rotate("key-pepper", "begin")
    assert authenticate_key(text) and ApiKey.objects.get(pk=used.pk).secret_hash == before
    listed = rotate("key-pepper", "switch")
    assert "for 2 API keys" in listed
    assert authenticate_key(text) and ApiKey.objects.get(pk=used.pk).secret_hash != before
    with pytest.raises(CommandError, match="1 API keys that were not used since"):
        rotate("key-pepper", "finish")
    assert authenticate_key(other)
    rotate("key-pepper", "finish")
    assert authenticate_key(text) and authenticate_key(other)
    assert not {before} & {*ApiKey.objects.values_list("secret_hash", flat=True)}


def test_a_discarded_pepper_ends_the_keys_that_are_under_it(acme: Any) -> None:
    _, text = acme.key()
    rotate("key-pepper", "begin", "switch", "finish --discard")
    assert authenticate_key(text) is None


def test_sealed_values_are_renewed_and_a_half_done_renewal_is_continued(
    acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: User = acme.users[Role.OWNER]
    digests = [recovery_codes._digest(owner, f"code{number}") for number in range(10)]
    for digest in digests:
        RecoveryCode.objects.create(user=owner, digest=sealed.seal(digest, recovery_codes.purpose(owner.pk)))
    HubToken.objects.create(tenant=acme.tenant, sealed=seal_token("hf_secret"))
    for bucket in ("a", "b", "c"):
        BucketCredentials.objects.create(tenant=acme.tenant, bucket=bucket, sealed=seal_token(bucket))
    rotate("sealing-key", "begin")
    (old, new), seal, calls = keys.key_ids("sealing-key"), secret_uses.sealed.seal, iter(range(12))

    def interrupted(secret: str, purpose: bytes) -> str:
        if next(calls) == 11:
            raise InterruptionError
        return seal(secret, purpose)

    monkeypatch.setattr(secret_uses.sealed, "seal", interrupted)
    with pytest.raises(InterruptionError):
        rotate("sealing-key", "switch")
    monkeypatch.setattr(secret_uses.sealed, "seal", seal)
    assert state("sealing-key") is State.SWITCHED and secret_uses.USES["sealing-key"].remaining(old)
    assert "for" not in rotate("sealing-key", "switch").splitlines()[-1], "the same step again"
    assert secret_uses.USES["sealing-key"].remaining(new) == [
        "10 recovery codes", "1 tokens for the Hub", "3 credentials of buckets",
    ]  # fmt: skip
    rotate("sealing-key", "finish")
    assert unseal_token(HubToken.objects.get().sealed) == "hf_secret"
    assert [unseal_token(row.sealed) for row in BucketCredentials.objects.order_by("bucket")] == ["a", "b", "c"]
    rows = RecoveryCode.objects.order_by("pk")
    assert [sealed.unseal(row.digest, recovery_codes.purpose(owner.pk)) for row in rows] == digests


def test_sessions_keep_their_ids_and_invitations_their_links(acme: Any) -> None:
    browser: APIClient = acme.client()
    browser.force_authenticate(None)
    browser.force_login(acme.users[Role.OWNER])
    cookie = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
    invitation = invite(acting=acme.principal(), email="new@acme.example", role=Role.VIEWER)
    link, request_id = invitation_link(invitation), request_ids.make(acme.principal(), ApiEndpoint.CHAT, streamed=True)

    def valid() -> bool:
        assert browser.get("/api/session").json()["user"] is not None
        assert browser.cookies[django_settings.SESSION_COOKIE_NAME].value == cookie
        open_invitation(link.rpartition("=")[2].rpartition("#")[2])
        return request_ids.is_of(request_id, str(acme.tenant.pk))

    assert valid()
    for step in ("begin", "switch"):
        rotate("secret-key", step)
        assert valid(), step
    rotate("secret-key", "finish --discard")
    assert browser.get("/api/session").json()["user"] is not None, "its contents are signed anew"
    assert not request_ids.is_of(request_id, str(acme.tenant.pk))
    with pytest.raises(InvitationError):
        open_invitation(link.rpartition("=")[2].rpartition("#")[2])


def test_webhooks_have_signatures_of_both_keys(acme: Any) -> None:
    hook = WebhookSettings(url="https://hooks.example.org/x", description="", events=[], active=True)
    endpoint = create_endpoint(acting=acme.principal(), settings=hook)
    now = timezone.now()

    def signatures() -> list[str]:
        return signature_headers(endpoint, "msg_1", b"{}", now)["webhook-signature"].split()

    old_secret, (old,) = secret_of(endpoint), signatures()
    rotate("webhook-key", "begin")
    assert secret_of(endpoint) == old_secret and signatures()[0] == old and len(signatures()) == 2
    rotate("webhook-key", "switch")
    new = signatures()[0]
    assert secret_of(endpoint) != old_secret and signatures() == [new, old]
    rotate("webhook-key", "finish --discard")
    assert signatures() == [new]


@pytest.fixture
def joined_engine(api: None, queue: Any, machine: Machine) -> Iterator[FakeEngineThread]:
    thread = FakeEngineThread(machine.address, identity=machine.join(token()))
    EngineHost.objects.filter(name="gpu1").update(state="online")
    yield thread
    thread.close()


def describe(name: str = "gpu1") -> str:
    with engine_calls(endpoint_of(name)) as calls:
        return calls.describe().boot_id


def test_hosts_trust_two_authorities_and_take_certificates_of_the_new_one(
    joined_engine: FakeEngineThread, machine: Machine, queue: Any, committing: Callable[[], Any]
) -> None:
    boot, first = joined_engine.engine.boot_id, authority.authority_certificate()
    rotate("authority-key", "begin")
    old, new = authority.authority_ids()
    assert EngineHost.objects.get(name="gpu1").authorities == f"{old} {new}" and describe() == boot
    joined_engine.stop()
    with pytest.raises(HostError):
        describe()
    rotate("authority-key", "switch")  # it trusts the new one already, and may be away
    with pytest.raises(CommandError, match="hosts with its certificates: gpu1"):
        rotate("authority-key", "finish")
    joined_engine.start()
    with committing():
        renew_due()
    assert ("joining.renew_certificate", ("gpu1",)) in queue.calls
    boot = describe()
    rotate("authority-key", "finish")
    assert EngineHost.objects.get(name="gpu1").authorities == new and describe() == boot
    stored = machine.join()._identity
    assert stored.authority.encode() == authority.authority_certificate() != first
    with committing():
        renew_due()
    assert len(queue.calls) == 1, "nothing is due"


def test_a_host_that_was_away_blocks_the_switch(joined_engine: FakeEngineThread) -> None:
    joined_engine.stop()
    rotate("authority-key", "begin")
    with pytest.raises(CommandError, match="do not trust the new authority yet: gpu1"):
        rotate("authority-key", "switch")
    assert state("authority-key") is State.BEGUN
    joined_engine.start()
    rotate("authority-key", "switch", "finish")
    assert describe() == joined_engine.engine.boot_id


def test_tokens_of_metrics_overlap(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    settings.LORIKEET = current().model_copy(update={"metrics_token": f"@{tmp_path}/token"})

    def status(value: str) -> int:
        return int(APIClient().get("/metrics", HTTP_AUTHORIZATION=f"Bearer {value}").status_code)

    rotate("metrics-token", "begin")
    _, second = keys.accepted("metrics-token")
    assert [status("first"), status(second), status("third")] == [200, 200, 404]
    rotate("metrics-token", "switch", "finish")
    assert [status("first"), status(second)] == [404, 200]
    with pytest.raises(CommandError, match="LORIKEET_ENGINE_TOKEN is not set"):
        rotate("engine-token", "begin")


def test_a_file_that_others_provide_is_not_written(in_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.in_use("webhook-key")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CommandError, match=r"Set the lines of .*webhook-key to <the present value>"):
        rotate("webhook-key", "begin")
