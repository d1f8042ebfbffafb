"""A large installation: one tenant with thousands of adapters and keys, and many small ones, with a ledger of 90 days.

Rows that are few are made by Django; events by the database itself, spread evenly over the days up to now.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from lorikeet_testing.ledger import COLUMNS

PASSWORD = "correct horse battery"
EMAIL = "operator@scale.example"
DAYS = 90
HOSTS = ("host-a", "host-b")
ADAPTERS_OF_OTHERS = 3
BATCH = 2000
# Events for each one of the large tenant.
LARGE_SHARE = 10
DRAWS = 10_007


@dataclass(frozen=True)
class Size:
    adapters: int = 10_000
    keys: int = 1_000
    tenants: int = 1_000
    events: int = 10_000_000
    audit_events: int = 100_000
    refusals: int = 100_000
    members: int = 500
    archived: int = 2_000
    uploads: int = 2_000
    deliveries: int = 10_000
    batches: int = 1_000


def seed(size: Size) -> Any:
    """Fill the database; the owner of the large tenant, `t0`, is an operator: `EMAIL`, `PASSWORD`."""
    with transaction.atomic():
        return _seed(size)


def _seed(size: Size) -> Any:
    from control_plane.identity.tenants.models import Tenant

    tenants = Tenant.objects.bulk_create(
        [Tenant(slug=f"t{n}", name=f"Tenant {n}") for n in range(size.tenants)], batch_size=BATCH
    )
    large = tenants[0]
    _people(large, size)
    _prices()
    keys = _keys(tenants, size)
    names = [(large, _adapter_name(n)) for n in range(size.adapters)]
    names += [(tenant, f"a{n}") for tenant in tenants[1:] for n in range(ADAPTERS_OF_OTHERS)]
    versions = _versions(names)
    _placements(versions)
    _events(size, versions, keys)
    _others(large, keys, versions, size)
    return large


def _adapter_name(number: int) -> str:
    return f"{('support', 'legal', 'sales', 'triage', 'summary')[number % 5]}-{number:05}"


def _people(large: Any, size: Size) -> None:
    from control_plane.identity.accounts.models import User
    from control_plane.identity.tenants.models import Membership

    now = timezone.now()
    operator = User.objects.create_user(EMAIL, PASSWORD, email_verified_at=now, name="Olga Operator")
    User.objects.filter(pk=operator.pk).update(is_operator=True)
    others = User.objects.bulk_create(
        [User(email=f"person{n}@scale.example", name=f"Person {n}", password="!") for n in range(size.members - 1)]
    )
    Membership.objects.bulk_create(
        [Membership(tenant=large, user=operator, role="owner")]
        + [Membership(tenant=large, user=user, role="developer") for user in others]
    )


def _prices() -> None:
    from control_plane.billing.prices.models import PriceVersion

    PriceVersion.objects.create(
        number=1, effective_on=(timezone.now() - timedelta(days=DAYS + 1)).date(), currency="USD",
        input_per_million=200_000, cached_input_per_million=50_000, output_per_million=600_000,
        storage_per_gb_month=250_000,
    )  # fmt: skip


def _keys(tenants: list[Any], size: Size) -> list[Any]:
    from control_plane.identity.keys.models import ApiKey

    owners = [tenants[0]] * size.keys + tenants[1:]
    return ApiKey.objects.bulk_create(
        [
            ApiKey(tenant=owner, name=f"key {n}", prefix=f"{n:08x}", secret_hash="0" * 64, scopes=["inference"])
            for n, owner in enumerate(owners)
        ],
        batch_size=BATCH,
    )


def _versions(names: list[tuple[Any, str]]) -> list[Any]:
    from control_plane.adapters.registry.models import Adapter, AdapterVersion, Alias, VersionState

    adapters = Adapter.objects.bulk_create(
        [Adapter(tenant=tenant, name=name, description=f"Answers as {name} does.") for tenant, name in names],
        batch_size=BATCH,
    )
    versions = AdapterVersion.objects.bulk_create(
        [
            AdapterVersion(
                tenant=adapter.tenant, adapter=adapter, number=1, rank=8 << n % 3, targets=["q_proj", "v_proj"],
                digest="sha256:" + hashlib.sha256(f"{n}".encode()).hexdigest(), state=VersionState.READY,
                file_digests={"adapter_config.json": "sha256:00", "adapter_model.safetensors": "sha256:00"},
                dtype="float32", bytes=(1 << 20) + n, num_parameters=1 << 18, base_model="fake-base",
                base_digest="sha256:" + "ba5e" * 16,
                report={"ok": True, "problems": [], "problem_count": 0, "checks": [], "notes": [], "manifest": None},
            )
            for n, adapter in enumerate(adapters)
        ],
        batch_size=BATCH,
    )  # fmt: skip
    Alias.objects.bulk_create(
        [Alias(tenant=one.tenant, adapter=one.adapter, name="live", version=one) for one in versions], batch_size=BATCH
    )
    return versions


def _placements(versions: list[Any]) -> None:
    from control_plane.fleet.base_models.models import BaseModel
    from control_plane.fleet.hosts.models import EngineHost, HostState, StagingPhase
    from control_plane.fleet.placements.models import Placement

    BaseModel.objects.create(
        name="fake-base", digest="sha256:" + "ba5e" * 16, description={}, decided_by="seed", decided_at=timezone.now()
    )
    hosts = EngineHost.objects.bulk_create(
        [EngineHost(name=name, address=f"unix:/{name}", state=HostState.OFFLINE) for name in HOSTS]
    )
    Placement.objects.bulk_create(
        [
            Placement(version=version, host=host, phase=StagingPhase.READY, bytes_total=version.bytes)
            for version in versions
            for host in hosts
        ],
        batch_size=BATCH,
    )


def _events(size: Size, versions: list[Any], keys: list[Any]) -> None:
    """Fill the ledger; one event in ten is the large tenant's."""
    large = [version for version in versions if version.tenant_id == versions[0].tenant_id]
    small = versions[len(large) :]
    key_of = {key.tenant_id: key for key in keys}
    large_keys = [key for key in keys if key.tenant_id == versions[0].tenant_id]
    rows = [(n, version, large_keys[n % len(large_keys)]) for n, version in enumerate(large)]
    rows += [(n, version, key_of[version.tenant_id]) for n, version in enumerate(small, start=len(large))]
    postgres = connection.vendor == "postgresql"
    kind = "uuid" if postgres else "char(32)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TEMPORARY TABLE owners (n integer PRIMARY KEY, tenant {kind}, adapter {kind}, version {kind},"
            f" api_key {kind}, name text)"
        )
        cursor.executemany(
            "INSERT INTO owners VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (n, *(_id(pk) for pk in (one.tenant_id, one.adapter_id, one.pk, key.pk)), one.adapter.name)
                for n, one, key in rows
            ],
        )
        if postgres:
            cursor.execute("SET session_replication_role = replica")  # the rows are right: their keys need no look-up
            cursor.execute("ANALYZE owners")
        of_large, others = len(large), len(small)
        owner = f"CASE WHEN i %% {LARGE_SHARE} = 0 THEN {_skewed(of_large)} ELSE {of_large} + {_skewed(others)} END"
        second = f"i * {DAYS * 86_400} / {size.events + 1}"
        cursor.execute(
            f"INSERT INTO usage_usageevent ({COLUMNS}) SELECT 'req_' || i, o.tenant, o.adapter, o.version, o.api_key,"
            f" o.name, 'chat.completions', {'true' if postgres else '1'},"
            f" CASE WHEN i %% 3 = 0 THEN '{HOSTS[1]}' ELSE '{HOSTS[0]}' END, i %% 3000 + 100, i %% 100, i %% 500,"
            " CASE WHEN i %% 97 = 0 THEN 'failed' WHEN i %% 20 = 0 THEN 'aborted' ELSE 'finished' END,"
            " CASE WHEN i %% 97 = 0 THEN 'engine_lost' ELSE '' END,"
            " i %% 70, i %% 9, i %% 4000, i %% 300, i %% 30000, 0, i %% 100000,"
            f" {_moment(second)} FROM ({_numbers(size.events)}) numbers JOIN owners o ON o.n = ({owner}) ORDER BY i",
            [],
        )
        if postgres:
            cursor.execute("SET session_replication_role = origin")
        cursor.execute("DROP TABLE owners")


def _skewed(count: int) -> str:
    """Return SQL for a number below `count` for each `i`: few are frequent, most are rare, as with adapters in use."""
    draw = f"(i * 7919 %% {DRAWS})"
    return f"(i - i + {count}) * {draw} * {draw} * {draw} / {DRAWS**3}"  # `i` makes it a bigint


def _others(large: Any, keys: list[Any], versions: list[Any], size: Size) -> None:
    """Fill the tables that grow beside the ledger."""
    from control_plane.adapters.registry.models import Adapter
    from control_plane.adapters.uploads.models import Upload, UploadState
    from control_plane.console.webhooks.models import Delivery, DeliveryState, Endpoint, Event, EventType
    from control_plane.gateway.batches.models import Batch, BatchState, Purpose, StoredFile

    now, later = timezone.now(), timezone.now() + timedelta(days=30)
    Adapter.objects.bulk_create(
        [Adapter(tenant=large, name=_adapter_name(n), archived_at=now) for n in range(size.archived)], batch_size=BATCH
    )
    tenant = _id(large.pk)
    with connection.cursor() as cursor:
        json = "'{}'::jsonb" if connection.vendor == "postgresql" else "'{}'"
        cursor.execute(
            "INSERT INTO audit_auditevent (tenant_id, actor_kind, actor_id, actor_label, action, target_kind,"
            f" target_id, target_label, detail, request_id, created_at) SELECT %s, 'user', '1', '{EMAIL}',"
            " CASE WHEN i %% 3 = 0 THEN 'key.create' ELSE 'version.promote' END, 'version', i, 'support@v' || i,"
            f" {json}, '', {_moment(f'i * {DAYS * 86_400} / {size.audit_events + 1}')}"
            f" FROM ({_numbers(size.audit_events)}) numbers",
            [tenant],
        )
        moment = _moment(f"i * {DAYS * 86_400} / {size.refusals + 1}")
        cursor.execute(
            'INSERT INTO refusals_refusal (tenant_id, endpoint, status, code, "limit", model, param, minute, count,'
            " last_at, identity) SELECT %s, 'chat.completions', 429, 'rate_limited', 'requests_per_minute', 'm', '',"
            f" {moment}, 1 + i %% 9, {moment}, 'r' || i FROM ({_numbers(size.refusals)}) numbers",
            [tenant],
        )
    Upload.objects.bulk_create(
        [
            Upload(
                tenant=large, adapter_name=f"refused-{n}", state=UploadState.REFUSED, bytes=1 << 20, files=[],
                folder="", reason={"code": "rank_mismatch", "message": "The ranks differ.", "fix": "Save it again."},
            )
            for n in range(size.uploads)
        ],
        batch_size=BATCH,
    )  # fmt: skip
    endpoint = Endpoint.objects.create(tenant=large, url="https://hooks.example/lorikeet")
    events = Event.objects.bulk_create(
        [Event(tenant=large, type=EventType.VERSION_READY, data={}) for _ in range(size.deliveries)], batch_size=BATCH
    )
    Delivery.objects.bulk_create(
        [
            Delivery(
                tenant=large, endpoint=endpoint, event=event, state=DeliveryState.DELIVERED, next_attempt_at=now,
                delivered_at=now, attempts=1,
            )
            for event in events
        ],
        batch_size=BATCH,
    )  # fmt: skip
    files = StoredFile.objects.bulk_create(
        [
            StoredFile(
                tenant=large, name=f"batch {n}.jsonl", purpose=Purpose.BATCH, bytes=100, created_at=now,
                expires_at=later,
            )
            for n in range(size.batches)
        ],
        batch_size=BATCH,
    )  # fmt: skip
    Batch.objects.bulk_create(
        [
            Batch(
                tenant=large, api_key=keys[0], input_file=file, endpoint="chat.completions",
                state=BatchState.COMPLETED, created_at=now, expires_at=later,
            )
            for file in files
        ],
        batch_size=BATCH,
    )  # fmt: skip


def _numbers(count: int) -> str:
    """Return SQL for the numbers 1 to `count` as the column `i`."""
    if connection.vendor == "postgresql":
        return f"SELECT i FROM generate_series(1::bigint, {count}) i"
    return f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n"


def _moment(second: str) -> str:
    """Return SQL for the moment this many seconds after `DAYS` ago."""
    first = timezone.now() - timedelta(days=DAYS)
    if connection.vendor == "postgresql":
        return f"(timestamptz '{first:%Y-%m-%d %H:%M:%S+00}' + ({second}) * interval '1 second')"
    return f"datetime('{first:%Y-%m-%d %H:%M:%S}', '+' || ({second}) || ' seconds')"


def _id(pk: uuid.UUID) -> str:
    return str(pk) if connection.vendor == "postgresql" else pk.hex
