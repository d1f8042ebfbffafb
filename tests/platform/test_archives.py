"""Archives: nothing is lost or repeated wherever a run is interrupted, and what is archived can be read again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from lorikeet_testing.bucket import bucket
from lorikeet_testing.ledger import record_event
from lorikeet_testing.small_disk import PretendedDisk

from control_plane.adapters.artifacts import s3
from control_plane.adapters.artifacts.file_store import FolderFiles
from control_plane.billing.archives import archiving, parquet, reading
from control_plane.billing.archives.archiving import ArchiveError
from control_plane.billing.archives.audit_log import AUDIT
from control_plane.billing.archives.models import ArchivePart, ArchiveRun
from control_plane.billing.archives.reading import ArchiveDamagedError
from control_plane.billing.archives.tables import bounds, month_of, months_before
from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.reports.statements import statement
from control_plane.billing.usage import actions
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.ledger_archive import LEDGER
from control_plane.billing.usage.models import DailyTotals, UsageEvent
from control_plane.billing.usage.rollup_check import ArchivedLedgerError, differences, forget_rollups
from control_plane.core.config import Settings
from control_plane.core.jobs import claims, clocks
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]

OLD = months_before(month_of(timezone.now()), 8)
STEPS = ("write", "put", "verify", "insert", "delete", "mark")


class Killed(BaseException):
    """The end of a process: no handler of exceptions runs."""


def record(org: Any, number: int, at: datetime, **more: Any) -> bool:
    return record_event(
        request_id=f"req_{org.tenant.slug}_{number}", tenant=org.tenant, model="support", endpoint="chat.completions",
        outcome="finished", created_at=at,
        counts=Counts(prompt_tokens=10 + number, cached_prompt_tokens=3, completion_tokens=number, device_us=1 << 40),
        **more,
    )  # fmt: skip


@pytest.fixture
def configure(settings: Any, lorikeet: Any) -> Callable[..., None]:
    def change(**values: Any) -> None:
        settings.LORIKEET = settings.LORIKEET.model_copy(update=values)

    return change


@pytest.fixture
def ledger(acme: Any, globex: Any, configure: Any, tmp_path: Path) -> Any:
    """Two old months and the present one, of two tenants, in the rollups. The first month begins and ends exactly."""
    configure(artifact_dir=tmp_path / "store", var_dir=tmp_path / "var")
    PriceVersion.objects.create(
        number=1, effective_on=OLD, currency="USD", input_per_million=200_000, cached_input_per_million=50_000,
        output_per_million=600_000, storage_per_gb_month=0,
    )  # fmt: skip
    first, end = bounds(OLD)
    key, _ = acme.key()
    record(acme, 1, first, api_key=key)
    record(acme, 2, end - timedelta(microseconds=1), user=acme.users[Role.OWNER])
    record(globex, 3, first + timedelta(days=3))
    record(acme, 4, end)
    record(acme, 5, timezone.now())
    aggregate()
    return acme


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "DELETED_ROWS", 1)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)


def ids() -> set[str]:
    return set(UsageEvent.objects.values_list("request_id", flat=True))


def archived() -> list[str]:
    """The archived requests, each as often as it is in a file."""
    months = sorted({part.month for part in reading.parts("ledger")})
    return sorted(row["request_id"] for month in months for row in reading.read_rows("ledger", month))


def everything() -> list[str]:
    return sorted([*archived(), *ids()])


def free_claim() -> None:
    """Let the claim of a killed worker end."""
    ArchiveRun.objects.update(claim=None, claimed_until=None)


def test_months_are_archived_and_deleted(ledger: Any, small_batches: None, tmp_path: Path) -> None:
    before = {month: statement(ledger.tenant, f"{month:%Y-%m}") for month in (OLD, months_before(OLD, -1))}
    rows = list(UsageEvent.objects.filter(created_at__lt=bounds(OLD)[1]).order_by("id").values())
    assert archiving.run(LEDGER) == 4
    assert ids() == {"req_acme_5"}
    assert archived() == ["req_acme_1", "req_acme_2", "req_acme_4", "req_globex_3"]
    read = sorted(reading.read_rows("ledger", OLD), key=lambda row: row["id"])
    for row, copy in zip(rows, read, strict=True):
        assert copy.pop("tenant_slug") in ("acme", "globex")
        assert {
            name: value if isinstance(value, int | datetime | None) else str(value) for name, value in row.items()
        } == copy
    for month, shown in before.items():
        assert {**statement(ledger.tenant, f"{month:%Y-%m}"), "as_of": None} == {**shown, "as_of": None}
    assert differences() == []
    assert archiving.run(LEDGER) == 0 and ArchivePart.objects.count() == 2, "the second run finds nothing"
    part = ArchivePart.objects.get(month=OLD)
    manifest = json.loads((tmp_path / "store" / f"{part.name}.json").read_text())
    assert (manifest["rows"], manifest["digest"], manifest["sums"]) == (3, part.digest, part.sums)
    assert (tmp_path / "store" / part.name).stat().st_mode & 0o77 == 0
    assert list((tmp_path / "var" / "archive-work" / "ledger").iterdir()) == []
    assert AuditEvent.objects.filter(action="ledger.archive").count() == 2


def test_null_and_structured_columns_survive(acme: Any, ledger: Any) -> None:
    UsageEvent.objects.bulk_create(
        [
            UsageEvent(
                request_id="req_odd", tenant=acme.tenant, model='a "quoted",\nname', endpoint="completions",
                outcome="failed", prompt_tokens=0, completion_tokens=0, created_at=bounds(OLD)[0],
                preemption_spans=[[1, 2]], ignored=["seed", "ü"], schema_violations=None,
            )
        ]
    )  # fmt: skip
    aggregate()
    archiving.run(LEDGER)
    (row,) = [row for row in reading.read_rows("ledger", OLD) if row["request_id"] == "req_odd"]
    assert row["model"] == 'a "quoted",\nname' and row["api_key_id"] is None and row["schema_violations"] is None
    assert json.loads(row["preemption_spans"]) == [[1, 2]] and json.loads(row["ignored"]) == ["seed", "ü"]


def test_rows_that_no_rollup_holds_stay(ledger: Any) -> None:
    record(ledger, 6, bounds(OLD)[0])  # not aggregated
    archiving.run(LEDGER)
    assert ids() == {"req_acme_5", "req_acme_6"}
    assert archiving.run(LEDGER) == 0, "the watermark has not passed it"
    aggregate()
    assert archiving.run(LEDGER) == 1
    parts = ArchivePart.objects.filter(month=OLD)
    assert [(part.number, part.rows) for part in parts] == [(1, 3), (2, 1)], "a part of its own"
    assert differences() == []


def test_a_rollup_that_differs_stops_the_deletion(ledger: Any) -> None:
    DailyTotals.objects.filter(start=OLD).update(completion_tokens=99)
    with pytest.raises(ArchiveError, match="DailyTotals"):
        archiving.run(LEDGER)
    assert len(ids()) == 5 and not ArchivePart.objects.exists()
    assert "DailyTotals" in ArchiveRun.objects.get().failure
    DailyTotals.objects.filter(start=OLD).update(completion_tokens=1)
    DailyTotals.objects.filter(start=OLD, tenant__slug="globex").update(completion_tokens=3)
    assert archiving.run(LEDGER) == 4
    assert ArchiveRun.objects.get().failure == ""


def test_kept_months_and_none(ledger: Any, configure: Any) -> None:
    configure(ledger_months=0)
    assert archiving.run(LEDGER) == 0
    configure(ledger_months=8)
    assert archiving.run(LEDGER) == 0 and len(ids()) == 5, "the month is one of the eight"
    configure(ledger_months=7)
    assert archiving.run(LEDGER) == 3
    with pytest.raises(ValueError, match="LORIKEET_LEDGER_MONTHS"):
        Settings(ledger_months=1)


# -- interruptions -----------------------------------------------------------------------------------------------------


def interrupt(patch: pytest.MonkeyPatch, step: str, error: BaseException) -> None:
    """Raise an error in one step of a run, after what the step does before it could be seen."""

    def after(owner: Any, name: str, calls: int = 1) -> None:
        original, count = getattr(owner, name), [0]

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            count[0] += 1
            if count[0] == calls:
                raise error
            return result

        patch.setattr(owner, name, wrapped)

    match step:
        case "write":
            after(parquet, "write")
        case "put":
            after(FolderFiles, "put")
        case "verify":
            after(archiving, "verified")
        case "insert":
            after(archiving.audit, "record")  # within the transaction that inserts the part
        case "delete":
            after(archiving, "_delete_ids", calls=2)  # the second batch, which is rolled back
        case "mark":
            after(archiving.logger, "info")


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_run_loses_and_repeats_nothing(
    ledger: Any, small_batches: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = everything()
    with monkeypatch.context() as patch:
        interrupt(patch, step, Killed())
        with pytest.raises(Killed):
            archiving.run(LEDGER)
    assert set(everything()) == set(before), "each request is in the ledger, or in a file, or for a while in both"
    assert archiving.run(LEDGER) == 0, "the claim of the killed worker holds"
    assert differences() == []
    free_claim()
    archiving.run(LEDGER)
    assert everything() == before and ids() == {"req_acme_5"}
    assert differences() == []
    files = [name for name in FolderFiles(archiving.current().artifacts).names("archives") if name.endswith(".parquet")]
    assert len(files) == ArchivePart.objects.count() == 2, "no file is left that no part names"


def test_the_store_is_away(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything()
    for step in ("put", "verify"):
        with monkeypatch.context() as patch:
            interrupt(patch, step, OSError("The store is away."))
            with pytest.raises(OSError, match="away"):
                archiving.run(LEDGER)
        assert ArchiveRun.objects.get().failure == "OSError: The store is away."
    assert ids() == set(before)
    assert archiving.run(LEDGER) == 4, "the failure gave the claim back"
    assert everything() == before


def test_the_disk_is_full(ledger: Any, configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything()
    (tmp_path / "small").mkdir()
    for full in ("artifact_dir", "var_dir"):
        with monkeypatch.context() as patch:
            disk = PretendedDisk(tmp_path / "small", patch)
            configure(**{"artifact_dir": tmp_path / "store", "var_dir": tmp_path / "var", full: disk.folder / full})
            disk.fill()
            with pytest.raises(OSError, match="No space left"):
                archiving.run(LEDGER)
            disk.free()
    assert ids() == set(before)
    configure(artifact_dir=tmp_path / "store", var_dir=tmp_path / "var")
    assert archiving.run(LEDGER) == 4 and everything() == before


def test_a_file_that_the_store_damaged_deletes_nothing(
    ledger: Any, small_batches: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = FolderFiles.put

    def damaging(self: FolderFiles, source: Path, name: str) -> None:
        original(self, source, name)
        path = self.root / name
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")

    before = everything()
    with monkeypatch.context() as patch:
        patch.setattr(FolderFiles, "put", damaging)
        with pytest.raises(ArchiveDamagedError):
            archiving.run(LEDGER)
    assert ids() == set(before) and not ArchivePart.objects.exists()
    # Damaged after it was compared: before the first row was deleted it is written again.
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_delete", lambda *_: 0)
        archiving.run(LEDGER)
    part = ArchivePart.objects.get(month=OLD)
    (tmp_path / "store" / part.name).write_bytes(b"damaged")
    assert archiving.run(LEDGER) == 4
    assert everything() == before
    # With rows deleted already, the rest stays and the run fails.
    late = [record(ledger, number, bounds(OLD)[0]) for number in (7, 8, 9)]
    aggregate()
    with monkeypatch.context() as patch:
        interrupt(patch, "delete", OSError("interrupted"))
        with pytest.raises(OSError, match="interrupted"):
            archiving.run(LEDGER)
    part = ArchivePart.objects.get(deleted_at=None)
    (tmp_path / "store" / part.name).unlink()
    left = ids()
    with pytest.raises(FileNotFoundError):
        archiving.run(LEDGER)
    assert ids() == left and all(late)


def test_a_worker_that_lost_its_claim_deletes_nothing(
    ledger: Any, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice at once: the second worker finishes while the first one is paused between its steps."""
    before, original = everything(), archiving._delete_ids
    with monkeypatch.context() as patch:

        def paused(*args: Any) -> int:
            patch.setattr(archiving, "_delete_ids", original)
            free_claim()
            archiving.run(LEDGER)
            return original(*args)

        patch.setattr(archiving, "_delete_ids", paused)
        assert archiving.run(LEDGER) == 0
    assert everything() == before and ids() == {"req_acme_5"} and ArchivePart.objects.count() == 2
    with monkeypatch.context() as patch:
        record(ledger, 7, bounds(OLD)[0])
        aggregate()
        original_put = FolderFiles.put

        def slow(self: FolderFiles, source: Path, name: str) -> None:
            patch.setattr(FolderFiles, "put", original_put)
            copy = source.read_bytes()
            free_claim()
            assert archiving.run(LEDGER) == 1
            assert not source.exists(), "the other worker took its folder for a leftover"
            source.parent.mkdir(parents=True)
            source.write_bytes(copy)
            original_put(self, source, name)

        patch.setattr(FolderFiles, "put", slow)
        assert archiving.run(LEDGER) == 0
    assert len(everything()) == len(before) + 1


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_workers_at_once_and_requests_meanwhile(ledger: Any, small_batches: None) -> None:
    before, begin = everything(), threading.Barrier(4)

    def at_once(function: Callable[[], Any]) -> Any:
        try:
            begin.wait(20)
            return function()
        finally:
            archiving.connection.close()

    runs = [lambda: archiving.run(LEDGER)] * 3
    with ThreadPoolExecutor(4) as threads:
        *deleted, new = threads.map(at_once, [*runs, lambda: record(ledger, 8, timezone.now())])
    assert sum(deleted) == 4 and new
    assert everything() == sorted([*before, "req_acme_8"]) and ArchivePart.objects.count() == 2


WORKER = """
import time, django
django.setup()
from control_plane.billing.archives import archiving
from control_plane.billing.usage.ledger_archive import LEDGER
archiving.DELETED_ROWS, delete, calls = 1, archiving._delete_ids, []
def slow(*args):
    calls.append(delete(*args))
    if len(calls) == 2:
        print("in the second batch", flush=True)
        time.sleep(60)
    return calls[-1]
archiving._delete_ids = slow
archiving.run(LEDGER)
"""


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_killed_while_it_deletes(ledger: Any, tmp_path: Path) -> None:
    """SIGKILL, and another process continues: the open transaction is rolled back by the server."""
    before, database = everything(), archiving.connection.settings_dict
    address = f"{quote(database['USER'])}:{quote(database['PASSWORD'])}@{database['HOST']}:{database['PORT']}"
    env = {
        **os.environ,
        "LORIKEET_DATABASE_URL": f"postgres://{address}/{database['NAME']}",
        "LORIKEET_SECRET_KEY": "of a test",
        "LORIKEET_VAR_DIR": str(tmp_path / "var"),
        "LORIKEET_ARTIFACT_DIR": str(tmp_path / "store"),
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen([sys.executable, "-c", WORKER], env=env, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None and "second batch" in worker.stdout.readline()
        worker.kill()
    assert set(everything()) == set(before)
    assert archiving.run(LEDGER) == 0, "the claim of the killed worker holds"
    free_claim()
    assert archiving.run(LEDGER) == 3, "one of four was deleted and committed"
    assert everything() == before and ids() == {"req_acme_5"} and ArchivePart.objects.count() == 2
    assert differences() == []


# -- late requests -----------------------------------------------------------------------------------------------------


def test_a_late_report_of_an_archived_request_is_not_counted_again(ledger: Any) -> None:
    first, _ = bounds(OLD)
    archiving.run(LEDGER)
    before = statement(ledger.tenant, f"{OLD:%Y-%m}")
    assert not record(ledger, 1, first), "as the host's journal reports it, months later"
    assert not record(ledger, 2, bounds(OLD)[1] + timedelta(seconds=5)), "by a clock that was a little ahead"
    assert record(ledger, 6, first + timedelta(days=1)), "this one was never reported"
    aggregate()
    assert {**statement(ledger.tenant, f"{OLD:%Y-%m}"), "as_of": None} != {**before, "as_of": None}
    archiving.run(LEDGER)
    assert archived().count("req_acme_1") == 1 and archived().count("req_acme_6") == 1
    assert differences() == []


def test_a_request_that_is_archived_during_its_report(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = actions.LateRequests.recorded

    def archived_behind_it(self: Any) -> frozenset[str]:
        found = original(self)
        monkeypatch.setattr(actions.LateRequests, "recorded", original)
        archiving.run(LEDGER)
        return found

    monkeypatch.setattr(actions.LateRequests, "recorded", archived_behind_it)
    assert not record(ledger, 1, bounds(OLD)[0])
    assert archived().count("req_acme_1") == 1 and "req_acme_1" not in ids()


def test_a_late_report_while_the_store_is_away_waits(ledger: Any, configure: Any, tmp_path: Path) -> None:
    archiving.run(LEDGER)
    configure(artifact_dir=tmp_path / "elsewhere")
    with pytest.raises(OSError, match="does not exist"):
        record(ledger, 1, bounds(OLD)[0])
    assert record(ledger, 9, timezone.now()), "requests of today do not need the store"


def test_rollups_are_not_rebuilt_without_the_rows(ledger: Any) -> None:
    archiving.run(LEDGER)
    with pytest.raises(ArchivedLedgerError, match="is archived"):
        forget_rollups()
    with pytest.raises(CommandError, match="is archived"):
        call_command("check_rollups", "--rebuild")
    call_command("check_rollups")


# -- the audit log, and a bucket ---------------------------------------------------------------------------------------


def old_audit(org: Any, count: int, at: datetime) -> None:
    AuditEvent.objects.bulk_create(
        [
            AuditEvent(
                tenant=org.tenant if number else None, actor_kind="user", actor_label="ann@acme.example",
                action="key.create", target_kind="apikey", target_id=str(number), target_label="ci",
                detail={"scopes": ["inference"]},
            )
            for number in range(count)
        ]
    )  # fmt: skip
    with archiving.connection.cursor() as cursor:
        cursor.execute(
            "UPDATE audit_auditevent SET created_at = %s WHERE target_kind = 'apikey'",
            [archiving.connection.ops.adapt_datetimefield_value(at)],
        )


@pytest.fixture
def in_bucket(configure: Any, tmp_path: Path) -> Iterator[str]:
    s3.bucket_client.cache_clear()
    with bucket() as url:
        configure(artifact_url=url, var_dir=tmp_path / "var")
        yield url
    s3.bucket_client.cache_clear()


def test_the_audit_log_in_a_bucket(acme: Any, in_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    month = months_before(month_of(timezone.now()), 14)
    old_audit(acme, 3, datetime.combine(month, datetime.min.time(), UTC) + timedelta(days=2))
    kept = AuditEvent.objects.exclude(target_kind="apikey").count()
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "manifest_of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archiving.run(AUDIT)
    assert archiving.run(AUDIT) == 3
    rows = sorted(reading.read_rows("audit", month), key=lambda row: row["target_id"])
    assert [(row["tenant_slug"], json.loads(row["detail"])["scopes"]) for row in rows] == [
        (None, ["inference"]), ("acme", ["inference"]), ("acme", ["inference"]),
    ]  # fmt: skip
    assert sorted(row["target_id"] for row in reading.read_rows("audit", month, "acme")) == ["1", "2"]
    assert AuditEvent.objects.exclude(action__startswith="audit.").count() == kept
    store = archiving.file_store()
    assert len(list(store.names("archives/audit"))) == 2 and store.address("x") == f"{in_bucket}/x"
    for name in list(store.names("archives")):
        store.remove(name)
        store.remove(name)
    with pytest.raises(FileNotFoundError):
        list(reading.read_rows("audit", month))


def test_nothing_is_archived_while_the_clock_is_wrong(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def paused() -> datetime:
        raise clocks.DeletionPausedError("the clock stepped")

    monkeypatch.setattr(clocks, "deletion_time", paused)
    with pytest.raises(clocks.DeletionPausedError):
        archiving.run(LEDGER)
    assert len(ids()) == 5 and claims.CLAIM_S > 0
