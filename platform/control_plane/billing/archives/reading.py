"""Reading archives: whole months for people, and single requests for the ledger, which must not count one twice."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from control_plane.adapters.artifacts.configured import file_store
from control_plane.adapters.artifacts.file_store import FileStore
from control_plane.billing.archives import parquet
from control_plane.billing.archives.models import ArchivePart
from control_plane.billing.archives.tables import month_of
from control_plane.core.config import current
from lora_engine.peft_format import file_digest

# Time by which two reports of one request may be apart, so that the end of a month may lie between them.
DOUBT = timedelta(days=1)


class ArchiveDamagedError(OSError):
    """A file in the store is not the one that was archived."""


def verified(part: ArchivePart, store: FileStore, work: Path) -> Path:
    """Return the path of a part's file, with its digest checked. Raises OSError."""
    path = store.local(part.name, work)
    digest = file_digest(path)
    if digest != part.digest:
        raise ArchiveDamagedError(f"{store.address(part.name)} has the digest {digest}, not {part.digest}")
    return path


def parts(table: str, month: date | None = None) -> list[ArchivePart]:
    rows = ArchivePart.objects.filter(table=table)
    return list(rows if month is None else rows.filter(month=month))


def archived_until(table: str) -> date | None:
    """Return the first day after the last archived month; None if no month is archived."""
    last = ArchivePart.objects.filter(table=table).order_by("-month").values_list("month", flat=True).first()
    return None if last is None else (last + timedelta(days=31)).replace(day=1)


def read_rows(table: str, month: date, tenant: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the archived rows of a month, of all tenants or one, by its short name. Raises OSError."""
    import pyarrow.compute as pc

    with _work() as work:
        for part in parts(table, month):
            for batch in parquet.batches(verified(part, file_store(), work)):
                chosen = batch if tenant is None else batch.filter(pc.equal(batch.column(parquet.TENANT), tenant))
                yield from chosen.to_pylist()


@dataclass(frozen=True)
class ArchivedIds:
    """Ids that are in archives, and the parts that were searched."""

    matches: frozenset[str]
    searched: frozenset[int]


def search(table: str, column: str, ids: Collection[str], times: Collection[datetime]) -> ArchivedIds:
    """Search the archived months of these times for ids. Raises OSError if the store is away."""
    import pyarrow.compute as pc

    searched, matches = searchable(table, times), set[str]()
    wanted = list(ids)
    if searched:
        import pyarrow

        values = pyarrow.array(wanted, pyarrow.string())
        with _work() as work:
            for part in searched:
                for batch in parquet.batches(verified(part, file_store(), work), [column]):
                    values_of = batch.column(column)
                    matches.update(values_of.filter(pc.is_in(values_of, values)).to_pylist())
    return ArchivedIds(frozenset(matches), frozenset(part.pk for part in searched))


def searchable(table: str, times: Collection[datetime]) -> list[ArchivePart]:
    months = {month_of(at + shift) for at in times for shift in (-DOUBT, DOUBT)}
    return list(ArchivePart.objects.filter(table=table, month__in=months))


@contextmanager
def _work() -> Iterator[Path]:
    current().var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="archive-read-", dir=current().var_dir) as folder:
        yield Path(folder)
