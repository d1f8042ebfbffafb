"""Archiving of a table's old months: write, upload, read back, compare, and only then delete.

Each step can be repeated. A file's name contains its digest, so no run overwrites the file of another. A part is in the
database once its file has been compared, in a transaction that checks this worker's claim; every batch of deletions
checks the claim too. A run that was interrupted leaves at most a file that no part names, which the next one removes,
or a part whose rows are partly deleted, which the next one continues.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Max, Min, Sum
from django.db.models.functions import TruncMonth

from control_plane.adapters.artifacts.configured import file_store
from control_plane.billing.archives import parquet
from control_plane.billing.archives.models import ArchivePart, ArchiveRun
from control_plane.billing.archives.reading import ArchiveDamagedError, verified
from control_plane.billing.archives.tables import ArchivedTable, Sums, added, bounds
from control_plane.core.config import current
from control_plane.core.jobs import claims, clocks
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit
from lora_engine.peft_format import file_digest

logger = logging.getLogger(__name__)

# Rows of one transaction that deletes: a tenth of a second, and none that others wait for.
DELETED_ROWS = 5_000


class ArchiveError(RuntimeError):
    """An archive and the database disagree; no row was deleted."""


def run(table: ArchivedTable) -> int:
    """Archive the months that are no longer kept. Returns the number of deleted rows.

    Does nothing while another worker archives this table. Raises DeletionPausedError, ArchiveError, OSError.
    """
    cutoff = table.cutoff(clocks.deletion_time())
    state = _claim(table) if cutoff is not None else None
    if cutoff is None or state is None:
        return 0
    try:
        with claims.keep(state):
            deleted = sum(archive_month(table, month, state) for month in _months(table, cutoff))
    except claims.ClaimLostError:
        return _lost(table)
    except Exception as error:
        if _finish(state, failure=f"{type(error).__name__}: {error}"[:2000]):
            raise
        return _lost(table)  # such as a file that the other worker took for a leftover
    _finish(state)
    return deleted


def _lost(table: ArchivedTable) -> int:
    logger.warning("Another worker archives the table %s.", table.name)
    return 0


def archive_month(table: ArchivedTable, month: date, state: ArchiveRun) -> int:
    """Archive the rows of a month that are settled, and delete them. Returns their number."""
    parts = ArchivePart.objects.filter(table=table.name, month=month)
    deleted = sum(_continue(table, part, state) for part in parts.filter(deleted_at=None))
    up_to = table.settled_id()
    expected = _in_database(table, month, up_to)
    if not expected["rows"]:
        return deleted
    earlier: Sums = {}
    for part in parts:
        earlier = added(earlier, {"rows": part.rows, **part.sums})
    table.reconcile(month, added(earlier, expected))
    return deleted + _delete(table, _write_part(table, month, up_to, expected, state), state)


def _continue(table: ArchivedTable, part: ArchivePart, state: ArchiveRun) -> int:
    """Delete the rest of an interrupted part's rows. Forget the part if its file was damaged before any was deleted."""
    try:
        return _delete(table, part, state)
    except (ArchiveDamagedError, FileNotFoundError):
        whole = table.rows(part.month, part.last_id).filter(id__gte=part.first_id).count() == part.rows
        if not whole:
            raise
        logger.warning("The file of %s is damaged, and all its rows are in the database: it is written again.", part)
        with _claimed(state):
            audit.record(SYSTEM, f"{table.name}.forget_archive", part, tenant=None, rows=part.rows)
            part.delete()
        return 0


def _claim(table: ArchivedTable) -> ArchiveRun | None:
    ArchiveRun.objects.get_or_create(table=table.name, defaults={"finished_at": clocks.database_time()})
    with transaction.atomic():
        free = ArchiveRun.objects.select_for_update().filter(claims.unclaimed(), table=table.name).first()
        if free is not None:
            claims.take(free)
    return free


@contextmanager
def _claimed(state: ArchiveRun) -> Iterator[None]:
    """Open a transaction in which no other worker can claim the table. Raises ClaimLostError if one has."""
    with transaction.atomic():
        locked = ArchiveRun.objects.select_for_update().get(pk=state.pk)
        if not claims.holds(state, locked):
            raise claims.ClaimLostError
        yield


def _finish(state: ArchiveRun, failure: str = "") -> bool:
    """Record the end of a run. Returns False if another worker has taken the table."""
    now = clocks.database_time()
    times = {"failed_at": now} if failure else {"finished_at": now}
    rows = ArchiveRun.objects.filter(pk=state.pk, claim=state.claim).update(failure=failure, **times)
    claims.end(state)
    return bool(rows)


def _months(table: ArchivedTable, cutoff: date) -> list[date]:
    """Return the months with rows to archive, and those whose deletion was interrupted, in order."""
    rows: Any = table.model._default_manager.order_by().filter(created_at__lt=bounds(cutoff)[0])
    due = {at.date() for at in rows.values_list(TruncMonth("created_at"), flat=True).distinct()}
    interrupted = ArchivePart.objects.filter(table=table.name, deleted_at=None).values_list("month", flat=True)
    return sorted(due | set(interrupted))


def _in_database(table: ArchivedTable, month: date, up_to: int) -> Sums:
    totals = {f"sum_{name}": Sum(name) for name in ("id", *table.summed)}
    sums = table.rows(month, up_to).aggregate(rows=Count("id"), first_id=Min("id"), last_id=Max("id"), **totals)
    return {name: int(value or 0) for name, value in sums.items()}


def _write_part(table: ArchivedTable, month: date, up_to: int, expected: Sums, state: ArchiveRun) -> ArchivePart:
    """Write, upload and compare the file of a month's rows; then insert its part."""
    store, parts = file_store(), ArchivePart.objects.filter(table=table.name, month=month)
    number = (parts.aggregate(last=Max("number"))["last"] or 0) + 1
    folder = f"archives/{table.name}/{month:%Y-%m}"
    _remove_leftovers(folder, set(parts.values_list("name", flat=True)))
    with work_folder(table.name) as work:
        path = work / "rows.parquet"
        written = parquet.write(path, table, month, up_to)
        _require_equal(f"the file written for {table.name} {month:%Y-%m}", expected, written)
        digest = file_digest(path)
        name = f"{folder}/{number:03}-{digest.removeprefix('sha256:')[:16]}.parquet"
        sums = {key: value for key, value in written.items() if key != "rows"}
        part = ArchivePart(
            table=table.name, month=month, number=number, name=name, digest=digest, bytes=path.stat().st_size,
            rows=written["rows"], sums=sums, created_at=clocks.database_time(),
        )  # fmt: skip
        manifest = work / "manifest.json"
        manifest.write_text(json.dumps(manifest_of(part, parquet.columns_of(table)), indent=1) + "\n")
        store.put(path, name)
        path.unlink()
        store.put(manifest, f"{name}.json")
        read = parquet.count(verified(part, store, work), table.summed)
        _require_equal(store.address(name), expected, read)
    with _claimed(state):
        part.save()
        address = store.address(name)
        audit.record(SYSTEM, f"{table.name}.archive", part, tenant=None, rows=part.rows, digest=digest, address=address)
    return part


def manifest_of(part: ArchivePart, columns: list[str]) -> dict[str, Any]:
    """Return the manifest that lies beside a file, with which it can be checked without the database."""
    return {
        "table": part.table, "month": f"{part.month:%Y-%m}", "part": part.number, "rows": part.rows, "sums": part.sums,
        "digest": part.digest, "bytes": part.bytes, "columns": columns, "created_at": part.created_at.isoformat(),
    }  # fmt: skip


def _require_equal(name: str, expected: Sums, actual: Sums) -> None:
    if expected != actual:
        raise ArchiveError(f"{name} differs from the database, so nothing is deleted: {actual}, expected {expected}")


def _remove_leftovers(folder: str, known: set[str]) -> None:
    """Remove files of runs that were killed before they inserted a part."""
    store = file_store()
    for name in list(store.names(folder)):
        if name.removesuffix(".json") not in known:
            store.remove(name)


def _delete(table: ArchivedTable, part: ArchivePart, state: ArchiveRun) -> int:
    """Delete the rows that a part's file has, in batches. Raises OSError, before any is deleted, if it is damaged."""
    deleted = 0
    with work_folder(table.name) as work:
        for batch in parquet.batches(verified(part, file_store(), work), ["id"]):
            ids = batch.column("id").to_pylist()
            for start in range(0, len(ids), DELETED_ROWS):
                with _claimed(state):
                    deleted += _delete_ids(table, ids[start : start + DELETED_ROWS])
    with _claimed(state):
        ArchivePart.objects.filter(pk=part.pk).update(deleted_at=clocks.database_time())
        audit.record(SYSTEM, f"{table.name}.delete_archived", part, tenant=None, rows=deleted)
    logger.info("%s: %d rows deleted", part, deleted)
    return deleted


def _delete_ids(table: ArchivedTable, ids: list[int]) -> int:
    """Delete rows by SQL: the models of these tables refuse it."""
    one_list = connection.vendor == "postgresql"
    condition = "= ANY(%s)" if one_list else f"IN ({', '.join(['%s'] * len(ids))})"
    name = connection.ops.quote_name(table.model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {name} WHERE id {condition}", [ids] if one_list else ids)
        return int(cursor.rowcount)


@contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """Make a folder on the data volume: in containers, the folder for temporary files is memory."""
    folder = current().var_dir / "archive-work" / name / uuid.uuid4().hex
    _forget_work(folder.parent)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_work(parent: Path) -> None:
    """Remove the folders of runs that were killed; a run holds the table's claim, so no other one works there."""
    for leftover in parent.iterdir() if parent.is_dir() else ():
        shutil.rmtree(leftover, ignore_errors=True)
