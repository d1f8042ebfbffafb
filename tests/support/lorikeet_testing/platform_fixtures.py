"""Two tenants with a member of every role, a host that has been seen, and adapters: all made by the product's actions.

The database is SQLite, or PostgreSQL where LORIKEET_TEST_DATABASE_URL names a server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import dj_database_url
import pytest
import pytest_asyncio
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import override_settings
from django.utils import timezone
from rest_framework.test import APIClient

from control_plane.adapters.evaluations.actions import create_set, start_evaluation
from control_plane.adapters.imports.actions import set_bucket_credentials
from control_plane.adapters.imports.follows import add_follow
from control_plane.adapters.registry import versions
from control_plane.adapters.registry.aliases import set_alias, start_canary
from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import AdapterVersion, EvaluationMetric
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job, validation_sandbox
from control_plane.adapters.uploads.models import Upload
from control_plane.adapters.uploads.spool import SpooledFile
from control_plane.billing.reports.exports import add_schedule, request_export
from control_plane.billing.reports.models import Cadence, Grain
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.billing.usage.sums import last_days
from control_plane.console.webhooks.actions import WebhookSettings, create_endpoint, send_test
from control_plane.core.jobs import claims, clocks
from control_plane.fleet.hosts import actions as fleet
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.joining.join_tokens import create_token
from control_plane.fleet.placements.models import PinnedPrefix
from control_plane.fleet.transport.endpoint import configured_endpoints
from control_plane.gateway.batches.actions import upload_batch
from control_plane.gateway.batches.files import upload_file
from control_plane.gateway.transcripts.actions import NewTranscript, set_recording, store
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts import attempts
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.accounts.models import Identity, SignIn, User
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.actions import create_key
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.members.actions import add_member, create_tenant
from control_plane.identity.members.invitations import invite
from control_plane.identity.second_factor.models import Passkey
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb
from lorikeet_testing import peft_files
from lorikeet_testing.audit_watch import audit_watch
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.joining import Machine
from lorikeet_testing.ledger import record_event
from lorikeet_testing.quick_django import empty_database, quick_django
from lorikeet_testing.web import migrated_database, migrated_folder

PASSWORD = "correct horse battery"
QUICK_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
Committing = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    from django.db import connections

    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    database = django_settings.DATABASES["default"]
    if database["TEST"].get("NAME"):
        return  # each folder of tests has these fixtures, and all share one database
    if url := os.environ.get("LORIKEET_TEST_DATABASE_URL"):
        database.update(dj_database_url.parse(url, engine="control_plane.core.postgres"), OPTIONS={})
        database["TEST"].update(NAME=f"test_lorikeet_{worker}", TEMPLATE=migrated_database())
        del connections["default"]  # made for the engine of the settings
    elif not database["TEST"].get("NAME"):  # two folders of tests have these fixtures, and one database
        # A file: threads of one test must see one database, which one in memory would not give them.
        name = str(tmp_path_factory.mktemp("database") / "test.sqlite3")
        shutil.copyfile(migrated_folder() / "lorikeet.sqlite3", name)
        database["NAME"] = database["TEST"]["NAME"] = name


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Return whether Django uses the database that it finds: on SQLite it is a migrated one."""
    return "LORIKEET_TEST_DATABASE_URL" not in os.environ


@pytest.fixture(scope="session", autouse=True)
def django_is_quick() -> Iterator[None]:
    with quick_django():
        yield


def settings_of(folder: Path) -> Any:
    """Folders of one test alone, one engine host by name."""
    return django_settings.LORIKEET.model_copy(
        update={
            "var_dir": folder,
            "artifact_dir": folder / "artifacts",
            "engine_hosts": {"local": f"unix:{folder}/engine.sock"},
            "demo_dir": folder / "demo",
            "secret_key": django_settings.SECRET_KEY,
            **{name: name * 8 for name in ("key_pepper", "sealing_key", "authority_key", "webhook_key")},
        }
    )


class NoKeeper:
    """A keeper of claims that renews none."""

    def add(self, kept: Any) -> None: ...

    def remove(self, kept: Any) -> None: ...


@pytest.fixture(autouse=True)
def lorikeet(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    settings.LORIKEET = settings_of(tmp_path)
    settings.PASSWORD_HASHERS = QUICK_HASHERS
    # Another connection would not see what a test has not committed, and take the claim for lost.
    monkeypatch.setattr(claims, "_keeper", NoKeeper())
    # A test that moves the clock must not make it step for the next one.
    monkeypatch.setattr(clocks, "_last", None)
    monkeypatch.setattr(clocks, "_reported_s", None)
    cache.clear()
    attempts.limiter.cache_clear()
    return settings.LORIKEET


@pytest.fixture(autouse=True)
def every_write_is_audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check, in every test with a database, that each change by the product leaves an audit row."""
    if not {"db", "transactional_db", "django_db_setup"} & set(request.fixturenames):
        yield
        return
    with audit_watch() as watch:
        yield
    assert not watch.findings, (
        "Changes without an audit row: call audit.record in the same transaction.atomic(), or say in "
        "tests/support/lorikeet_testing/audit_watch.py why it needs none:\n" + "\n".join(watch.findings)
    )


@dataclass
class Queue:
    """Tasks that were queued, instead of a broker."""

    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name.rpartition(".")[2] for name, _ in self.calls]


def queue_tasks(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queued = Queue()
    app = SimpleNamespace(send_task=lambda name, args, **_: queued.calls.append((name, args)))
    monkeypatch.setattr("control_plane.core.jobs.sending.current_app", app)
    return queued


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return queue_tasks(monkeypatch)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[UUID | str, str, dict[str, Any]]]:
    """Live events as they are published: (tenant id, event, data)."""
    seen: list[tuple[UUID | str, str, dict[str, Any]]] = []
    monkeypatch.setattr("control_plane.core.writes.publish", lambda *args: seen.append(args))
    return seen


@dataclass
class Org:
    """A tenant with one member of each role, and their clients."""

    tenant: Tenant
    users: dict[Role, User]

    def principal(self, role: Role = Role.OWNER) -> Principal:
        memberships = Membership.objects.select_related("tenant", "user")
        return Principal.of_member(memberships.get(tenant=self.tenant, user=self.users[role]))

    def client(self, role: Role = Role.OWNER) -> APIClient:
        return signed_in(self.users[role])

    def path(self, rest: str) -> str:
        return f"/api/tenants/{self.tenant.slug}/{rest}"

    def key(self, name: str = "test", role: Role = Role.OWNER, **options: Any) -> tuple[ApiKey, str]:
        return create_key(acting=self.principal(role), name=name, **options)


def signed_in(user: User) -> APIClient:
    """Return the client of a person who signed in now."""
    client = APIClient()
    client.force_login(user)
    session = client.session
    session["confirmed_at"] = time.time()
    session.save()
    return client


def make_org(slug: str) -> Org:
    """Make a tenant with one member of each role.

    The product's actions do it once in a process. After that their rows are copied, with new ids and at the present
    time: 45 statements, which took 20 ms of each test, are four.
    """
    kind = slug, tuple(django_settings.PASSWORD_HASHERS)
    if kind in _made:
        return _made[kind].copy()
    org, _made[kind] = _make_org(slug)
    return org


@dataclass(frozen=True)
class MadeOrg:
    """The rows of a tenant that was made by actions, as these wrote them."""

    tenant: Tenant
    users: dict[Role, User]
    memberships: list[Membership]
    events: list[AuditEvent]

    def copy(self) -> Org:
        now = timezone.now()
        tenant = again(self.tenant)
        tenant.save(force_insert=True)
        users = {role: again(user, email_verified_at=now) for role, user in self.users.items()}
        User.objects.bulk_create(users.values())
        new_ids = {str(self.users[role].pk): user.pk for role, user in users.items()}
        memberships = [again(row, tenant_id=tenant.pk, user_id=new_ids[str(row.user_id)]) for row in self.memberships]
        Membership.objects.bulk_create(memberships)
        new_ids |= {str(row.pk): new.pk for row, new in zip(self.memberships, memberships, strict=True)}
        new_ids[str(self.tenant.pk)] = tenant.pk
        AuditEvent.objects.bulk_create(
            again(row, tenant_id=row.tenant_id and tenant.pk, target_id=str(new_ids[row.target_id]))
            for row in self.events
        )
        return Org(tenant, users)


_made: dict[tuple[str, tuple[str, ...]], MadeOrg] = {}


def again(row: Any, **changes: Any) -> Any:
    """Return an unsaved copy of a row of a model, without its id and the time of its creation."""
    fields = [field for field in row._meta.concrete_fields if not field.primary_key and field.name != "created_at"]
    return type(row)(**{field.attname: getattr(row, field.attname) for field in fields} | changes)


def _make_org(slug: str) -> tuple[Org, MadeOrg]:
    tenant = create_tenant(actor=SYSTEM, slug=slug, name=slug.title())
    users: dict[Role, User] = {}
    memberships = []
    for role in Role:
        users[role] = create_user(actor=SYSTEM, email=f"{role.value}@{slug}.example", password=PASSWORD)
        memberships.append(add_member(actor=SYSTEM, tenant=tenant, user=users[role], role=role))
    ids = [str(row.pk) for row in (tenant, *users.values(), *memberships)]
    kinds = [model._meta.model_name for model in (Tenant, User, Membership)]
    events = list(AuditEvent.objects.filter(target_id__in=ids, target_kind__in=kinds).order_by("id"))
    kept = {role: copy(user) for role, user in users.items()}  # tests change the objects that they get
    return Org(tenant, users), MadeOrg(copy(tenant), kept, memberships, events)


@pytest.fixture
def acme(db: None) -> Org:
    return make_org("acme")


@pytest.fixture
def globex(db: None) -> Org:
    return make_org("globex")


@pytest_asyncio.fixture
async def loop_engine(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    """A scripted engine on the event loop of the test."""
    engine = FakeEngine(f"unix:{tmp_path}/e.sock")
    await engine.start()
    yield engine
    if engine.running_server:
        await engine.stop()


def seen_host() -> EngineHost:
    """A host that was seen once and serves `peft_files.GEOMETRY`."""
    fleet.sync_hosts(configured_endpoints())
    geometry = peft_files.GEOMETRY
    sizes = {name: getattr(geometry, name) for name in pb.BaseGeometry.DESCRIPTOR.fields_by_name}
    fleet.record_boot(
        "local",
        pb.EngineDescription(
            boot_id="boot-1",
            base_model=geometry.name,
            base_digest=geometry.digest,
            device="cpu",
            dtype="float32",
            max_context=4096,
            max_lora_rank=64,
            geometry=pb.BaseGeometry(**sizes),
        ),
    )
    return EngineHost.objects.get(name="local")


@pytest.fixture
def host(db: None) -> EngineHost:
    return seen_host()


@pytest.fixture
def operator(db: None) -> APIClient:
    """The client of an operator who is a member of no tenant."""
    user = create_user(actor=SYSTEM, email="ops@example.org", password=PASSWORD)
    set_operator(actor=SYSTEM, user=user, operator=True)
    return signed_in(user)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that wants to join as the host gpu1."""
    return Machine(tmp_path, "gpu1")


@pytest.fixture
def tenant_id() -> str:
    """The id of a tenant that no other test has, without rows in the database."""
    return uuid4().hex


def error_of(answer: Any) -> tuple[int, str]:
    """Return the status and the error code of a refused request."""
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture
def committing(django_capture_on_commit_callbacks: Any) -> Committing:
    """`with committing(): ...` runs what follows a commit, although the test itself never commits."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


class ScriptedChild:
    """A check in this process: the answer is what a function returns for the request."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer

    def ask(self, request: str, wall_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, json.dumps(self._answer(json.loads(request))), "")

    def kill(self) -> None:
        """Do nothing: the function runs to its end."""


def validate_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validate without the child process, which costs a second each time and has its own tests."""

    monkeypatch.setattr(validation_job, "start_child", lambda: ScriptedChild(validation_sandbox.validate))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    validate_in_process(monkeypatch)


@dataclass(frozen=True)
class Uploader:
    """A client that sends adapters through the actions, each step committed as `committing` does it."""

    committing: Committing

    def upload(self, org: Org, name: str = "support", files: dict[str, bytes] | None = None, **options: Any) -> Upload:
        """Send files, validate them, return the decided upload."""
        contents = files or peft_files.adapter_files(**options)
        with self.committing():
            received = uploads.receive_upload(
                acting=org.principal(),
                name=name,
                description="",
                files=[spool(file, content) for file, content in contents.items()],
            )
            validation_job.validate_next()
        return Upload.objects.select_related("version").get(pk=received.pk)

    def ready_version(self, org: Org, name: str = "support", **options: Any) -> AdapterVersion:
        """A version that a host has reported ready."""
        version = self.upload(org, name, **options).version
        assert version is not None
        with self.committing():
            return versions.mark_version_ready(version)


def spool(name: str, content: bytes) -> SpooledFile:
    file = SpooledFile(name, "application/octet-stream", len(content), None)
    file.write(content)
    file.flush()
    return file


@pytest.fixture
def uploader(host: EngineHost, queue: Queue, committing: Committing, in_process: None) -> Uploader:
    return Uploader(committing)


@pytest.fixture
def upload(uploader: Uploader) -> Callable[..., Upload]:
    return uploader.upload


@pytest.fixture
def ready_version(uploader: Uploader) -> Callable[..., AdapterVersion]:
    return uploader.ready_version


@pytest.fixture
def two(acme: Org, ready_version: Callable[..., AdapterVersion]) -> tuple[AdapterVersion, AdapterVersion]:
    """Two ready versions of acme's adapter support."""
    return ready_version(acme), ready_version(acme, seed=1)


@pytest.fixture
def anonymous() -> Iterator[APIClient]:
    yield APIClient()


Furniture = dict[str, Any]


def furnish(acme: Org, ready_version: Callable[..., AdapterVersion]) -> Furniture:
    """Create one of every object in acme; return the values for the parameters of the URLs."""
    version, owner = ready_version(acme), acme.users[Role.OWNER]
    upload_id = Upload.objects.get().pk
    second = ready_version(acme, seed=1)
    for pointed in (version, second):
        set_alias(acting=acme.principal(), version=pointed, name="beta")
    start_canary(acting=acme.principal(), version=version, name="beta", percent=10)
    old = ready_version(acme, name="old", seed=2).adapter
    archive_adapter(acting=acme.principal(), adapter=old)
    key, _ = acme.key()
    record_event(
        request_id="req_1",
        tenant=acme.tenant,
        model="support",
        endpoint="chat.completions",
        outcome="finished",
        created_at=datetime.now(UTC),
        counts=Counts(prompt_tokens=3, completion_tokens=5),
        adapter=version.adapter,
        version=version,
        api_key=key,
    )
    hook = WebhookSettings(url="https://hooks.example.org/lorikeet", description="", events=[], active=True)
    endpoint = create_endpoint(acting=acme.principal(), settings=hook)
    delivery = send_test(acting=acme.principal(), endpoint=endpoint)
    guest = create_user(actor=SYSTEM, email="guest@acme.example", password=PASSWORD)
    add_member(actor=SYSTEM, tenant=acme.tenant, user=guest, role=Role.VIEWER)
    set_recording(acting=acme.principal(), enabled=True, days=7)
    text: dict[str, Any] = {"prompt": [{"role": "user", "content": "hi"}], "answers": ["hello"], "cut": False}
    store([NewTranscript(request_id="req_1", tenant_id=acme.tenant.pk, created_at=datetime.now(UTC), **text)])
    content = b'{"custom_id": "r1"}\n'
    batch = upload_batch(
        acting=acme.principal(), key_id=key.pk, endpoint=ApiEndpoint.CHAT, name="requests.jsonl", content=[content],
        size=len(content),
    )  # fmt: skip
    items = b'{"prompt": "1 + 1 =", "expected": "2"}'
    for name in ("sums", "in-use"):
        create_set(acting=acme.principal(), name=name, metric=EvaluationMetric.EXACT, max_tokens=4, content=items)
    evaluation = start_evaluation(acting=acme.principal(), set_name="in-use", key_id=key.pk, of=version)
    other_file = upload_file(acting=acme.principal(), name="other.jsonl", content=[content], size=len(content))
    now = datetime.now(UTC)
    sign_in = SignIn.objects.create(user=acme.users[Role.OWNER], session_key="f" * 32, last_seen_at=now)
    handbook = PinnedPrefix.objects.create(
        tenant=acme.tenant,
        name="handbook",
        adapter=version.adapter,
        prompt='{"prompt": "Hi."}',
        tokens=16,
        pinned_at=now,
    )
    return {
        "session_id": sign_in.pk,
        "prefix_name": handbook.name,
        "batch_id": str(batch),
        "set_name": "sums",
        "evaluation_id": evaluation.pk,
        "file_id": str(other_file),
        "name": "support",
        "digest": version.base_digest,
        "request_id": "req_1",
        "number": 1,
        "alias": "beta",
        "follow_id": add_follow(acting=acme.principal(), name="support", source="hub:org/name@main").pk,
        "bucket": set_bucket_credentials(
            acting=acme.principal(),
            bucket="trainings",
            endpoint="",
            region="r",
            access_key_id="a",
            secret_access_key="s",
        ).bucket,
        "adapter_id": old.pk,
        "upload_id": upload_id,
        "key_id": key.pk,
        "webhook_id": endpoint.pk,
        "delivery_id": delivery.pk,
        "export_id": request_export(acting=acme.principal(), span=last_days(3), grain=Grain.DAY).pk,
        "user_id": guest.pk,
        "identity_id": Identity.objects.create(user=guest, issuer="https://id.example.org", subject="guest").pk,
        "passkey_id": Passkey.objects.create(user=owner, name="Laptop", credential_id="a", rp_id="example.com").pk,
        "invitation_id": invite(acting=acme.principal(), email="new@acme.example", role=Role.VIEWER).pk,
        "host_name": "local",
        "token_id": create_token(actor=SYSTEM, host_name="", lifetime=timedelta(hours=1))[0].pk,
        "placement_id": version.placements.get().pk,
        "schedule_id": add_schedule(acting=acme.principal(), cadence=Cadence.MONTH, grain=Grain.DAY).pk,
    }


@pytest.fixture
def furnished(acme: Org, ready_version: Any) -> Furniture:
    return furnish(acme, ready_version)


@dataclass(frozen=True)
class World:
    """Two tenants, one of them furnished, all committed."""

    acme: Org
    globex: Org
    furnished: Furniture
    artifacts: Path


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world made once per module, whose tests undo their changes. Not for modules with tests that commit."""
    folder = tmp_path_factory.mktemp("world")
    ours = override_settings(LORIKEET=settings_of(folder), PASSWORD_HASHERS=QUICK_HASHERS)
    try:
        with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch, ours:
            queue_tasks(patch)
            validate_in_process(patch)
            acme, globex = make_org("acme"), make_org("globex")
            seen_host()
            furnished = furnish(acme, Uploader(nullcontext).ready_version)
        yield World(acme, globex, furnished, folder / "artifacts")
    finally:
        with django_db_blocker.unblock():
            empty_database()
