"""Rows to Parquet and back. pyarrow is imported here only, when a file is written or read: it takes half a second."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from django.db import models, transaction
from django.db.models import F

from control_plane.billing.archives.tables import ArchivedTable, Sums

# Rows of a row group, which are in memory at once: about 40 MB of Python objects.
GROUP_ROWS = 25_000
# Level of zstd. Higher ones take longer and save little.
LEVEL = 3
TENANT = "tenant_slug"


def columns_of(table: ArchivedTable) -> list[str]:
    return [field.attname for field in table.model._meta.concrete_fields] + [TENANT]


def write(path: Path, table: ArchivedTable, month: date, up_to: int) -> Sums:
    """Write the rows of a month to a file. Returns its rows, sums, and first and last ids.

    The rows are read through a cursor of the server, so that memory stays flat.
    """
    import pyarrow
    from pyarrow import parquet

    names, schema = columns_of(table), _schema(table)
    convert = [_converter(field) for field in table.model._meta.concrete_fields] + [None]
    rows = table.rows(month, up_to).annotate(**{TENANT: F("tenant__slug")}).values_list(*names)
    counted = BatchSums(table.summed)
    with transaction.atomic(), parquet.ParquetWriter(path, schema, compression="zstd", compression_level=LEVEL) as file:
        for group in _groups(rows.iterator(chunk_size=GROUP_ROWS)):
            arrays = [
                pyarrow.array(column if function is None else [v if v is None else function(v) for v in column], kind)
                for column, function, kind in zip(zip(*group, strict=True), convert, schema.types, strict=True)
            ]
            batch = pyarrow.record_batch(arrays, schema=schema)
            counted.add(batch)
            file.write_batch(batch)
    return counted.sums


def count(path: Path, summed: Sequence[str]) -> Sums:
    """Read a whole file and return its rows, sums, and first and last ids. Raises OSError if it is damaged."""
    counted = BatchSums(summed)
    for batch in batches(path):
        counted.add(batch)
    return counted.sums


def batches(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the record batches of a file, with a row group in memory at a time.

    `ParquetFile.iter_batches` would fetch the whole file first.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns=columns).to_batches()


class BatchSums:
    """The rows, sums, and first and last ids of the record batches that were added."""

    def __init__(self, summed: Sequence[str]) -> None:
        self._summed = ("id", *summed)
        self.sums: Sums = {"rows": 0, "first_id": 0, "last_id": 0, **{f"sum_{name}": 0 for name in self._summed}}

    def add(self, batch: Any) -> None:
        import pyarrow.compute as pc

        if not batch.num_rows:
            return
        sums, ids = self.sums, pc.min_max(batch.column("id")).as_py()
        sums["first_id"] = min(sums["first_id"] or ids["min"], ids["min"])
        sums["last_id"] = max(sums["last_id"], ids["max"])
        sums["rows"] += batch.num_rows
        for name in self._summed:
            sums[f"sum_{name}"] += pc.sum(batch.column(name)).as_py() or 0


def _groups(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while group := list(islice(rows, GROUP_ROWS)):
        yield group


def _schema(table: ArchivedTable) -> Any:
    import pyarrow

    fields = [(field.attname, _type(field)) for field in table.model._meta.concrete_fields]
    return pyarrow.schema([*fields, (TENANT, pyarrow.string())])


def _type(field: models.Field[Any, Any]) -> Any:
    import pyarrow

    target = field.target_field if isinstance(field, models.ForeignKey) else field
    if isinstance(target, models.BooleanField):
        return pyarrow.bool_()
    if isinstance(target, models.IntegerField):
        return pyarrow.int64()
    if isinstance(target, models.DateTimeField):
        return pyarrow.timestamp("us", tz="UTC")
    return pyarrow.string()


def _converter(field: models.Field[Any, Any]) -> Any:
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    if isinstance(target, models.UUIDField):
        return str
    return json.dumps if isinstance(target, models.JSONField) else None
