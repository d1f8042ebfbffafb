"""The parts of archives, and the state of the runs that write them."""

from __future__ import annotations

from django.db import models

from control_plane.core.jobs.models import Claimable


class ArchivePart(models.Model):
    """A Parquet file with rows of one table and one month (UTC). Rows that come late are in a further part.

    It is inserted once the file in the store has been read back and compared with the rows; only then rows are deleted.
    """

    id = models.BigAutoField(primary_key=True)
    table = models.CharField(max_length=16)
    month = models.DateField(help_text="First day of the month (UTC).")
    number = models.PositiveIntegerField(help_text="Number of the part within its month, from 1.")
    name = models.CharField(max_length=200, help_text="Name of the file in the file store.")
    digest = models.CharField(max_length=71)
    bytes = models.BigIntegerField()
    rows = models.BigIntegerField()
    sums = models.JSONField(help_text="Sums of columns over the rows of the file, and the lowest and highest id.")
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(
        null=True, help_text="Time at which the last row of the file was deleted from the table; null: not yet."
    )

    class Meta:
        ordering = ["table", "month", "number"]
        constraints = [models.UniqueConstraint(fields=["table", "month", "number"], name="archive_part_once")]

    def __str__(self) -> str:
        return f"{self.table} {self.month:%Y-%m} part {self.number}"

    @property
    def first_id(self) -> int:
        return int(self.sums["first_id"])

    @property
    def last_id(self) -> int:
        return int(self.sums["last_id"])


class ArchiveRun(Claimable):
    """The state of a table's runs. Its row is the lock: one worker at a time archives a table."""

    table = models.CharField(max_length=16, unique=True)
    finished_at = models.DateTimeField(
        null=True,
        help_text="Time at which a run last succeeded, before any did the start of the first run; null: none "
        "has begun.",
    )
    failed_at = models.DateTimeField(null=True, help_text="Time at which a run last failed; null: none did.")
    failure = models.TextField(
        default="", blank=True, help_text="Error of the last run; empty: it succeeded, or none has ended."
    )

    def __str__(self) -> str:
        return self.table
