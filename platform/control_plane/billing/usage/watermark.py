"""The watermark: the position up to which the rollups have read the ledger, exactly.

Ids of the ledger grow, but PostgreSQL assigns an id before its transaction commits: row 8 can be visible while row 7 is
uncommitted, and a reader that passes 8 would never see 7. So writers share an advisory lock until they commit, and the
reader takes it exclusively for a moment: then no writer is active, and every id so far is visible or will never be.
Writers wait for that moment only. SQLite has one writer at a time, so its ids are in commit order.
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Max

from control_plane.billing.usage.models import UsageEvent

LOCK = 0x6C6F_7269  # any number that nothing else in this database locks


def announce_writer() -> None:
    """Take the shared lock inside the transaction that appends to the ledger, before it does."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [LOCK])


def last_settled_id() -> int:
    """Return the newest id below which no further row can appear. Its own short transaction releases the lock."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        return UsageEvent.objects.aggregate(last=Max("id"))["last"] or 0
