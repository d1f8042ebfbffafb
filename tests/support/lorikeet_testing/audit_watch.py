"""Finds changes of the database that leave no audit row, whatever code makes them.

Every statement that product code sends is attributed to the transaction it runs in: the outermost
`transaction.atomic` that product code itself entered. A transaction that changes an audited table must insert into the
audit log before it ends; a change outside of any is wrong already.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.db import connection, transaction

AUDIT_LOG = "audit_auditevent"
PRODUCT = str(Path(__file__).resolve().parents[3] / "platform" / "control_plane")
_CHANGE = re.compile(r'\s*(?:INSERT INTO|INSERT OR \w+ INTO|UPDATE|DELETE FROM)\s+"?(\w+)"?', re.IGNORECASE)

# Tables whose rows tell of themselves, or of machines and not of people's decisions.
UNAUDITED = {
    AUDIT_LOG: "the log itself",
    "django_session": "sessions: their beginning and end are audited, not each use",
    "accounts_signin": "where sessions are used from: their beginning and end are audited, not each use",
    "usage_usageevent": "the ledger of requests",
    "usage_hourlyusage": "sums of the ledger",
    "usage_dailyusage": "sums of the ledger",
    "usage_dailytotals": "sums of the ledger",
    "usage_dailylatency": "sums of the ledger",
    "usage_dailyactivity": "sums of the ledger",
    "usage_overalltotals": "sums of the ledger",
    "usage_timeseries": "sums of the ledger",
    "usage_minutesums": "sums of the ledger",
    "usage_hoursums": "sums of the ledger",
    "usage_daysums": "sums of the ledger",
    "usage_overalllatency": "sums of the ledger",
    "usage_series": "names of what the sums are of",
    "usage_storageday": "measured by the worker",
    "usage_watermark": "how far the sums go",
    "usage_abandonedtry": "which host was not the one that answered",
    "refusals_refusal": "counts of what was refused",
    "refusals_dailyrefusals": "counts of what was refused",
    "refusals_hourlyrefusals": "counts of what was refused",
    "transcripts_transcript": "follows from the tenant's choice to record, and from its days",
    "hosts_enginehost": "what hosts report",
    "hosts_hostadapter": "what hosts report",
    "placements_placement": "what hosts report",
    "placements_prefixonhost": "what hosts report",
    "hosts_servicegap": "what hosts report",
    "conversations_storedresponse": "the text of a request that asked to have it stored; its deletion is audited",
    "batches_batchline": "the work of a batch, whose beginning and end are audited",
    "batches_filepart": "the content of a file",
    "archives_archiverun": "a lock, and when a table was last archived",
    "jobs_queue": "a lock",
    "jobs_clockrecord": "readings of the database's clock",
    "jobs_queueposition": "the order of tenants in a queue",
    "webhooks_event": "follows from the audit log",
    "webhooks_delivery": "tries to reach an endpoint",
    "webhooks_attempt": "tries to reach an endpoint",
}
# Functions that change audited tables in ways that are no decision of anybody.
UNAUDITED_PLACES = {
    "identity/keys/last_used.py _write": "when a key was last used, in batches",
    "identity/keys/auth.py _renew_hash": "the same key, hashed under the present pepper",
    "management/secret_uses.py renew": "the same secrets, encrypted under the present key",
    "core/secrets/checks.py remember": "which secrets the first process had",
    "fleet/base_models/demand.py store_demand": "when a base model was last requested",
    "fleet/placements/prefixes.py _note": "how many tokens a host says that a prefix has",
    "fleet/placements/actions.py follow_renamed": "a copy of the name that operators gave a base model",
    "console/webhooks/delivery.py claim_next": "when an endpoint was last tried",
    "console/webhooks/delivery.py _note": "whether an endpoint answers",
    "console/webhooks/delivery.py _rest": "whether an endpoint answers",
    "billing/reports/exports.py _claim_next": "the progress of an export that was asked for",
    "billing/reports/exports.py _write": "the progress of an export that was asked for",
    "adapters/imports/follows.py _claim": "when a branch is looked at next",
    "adapters/imports/follows.py _note": "whether the Hub answers",
    "core/jobs/claims.py take": "which worker has it",
    "billing/reports/exports.py forget": "what is too old",
    "adapters/uploads/actions.py forget": "what is too old",
    "identity/members/invitations.py forget": "what is too old",
    "fleet/joining/join_tokens.py forget": "what is too old",
    "adapters/artifacts/artifact_gc.py reserve_content": "which content a validation is about to store",
    "adapters/artifacts/artifact_gc.py _lock": "what the store holds",
    "gateway/batches/actions.py _enter": "the progress of a batch that was asked for",
    "gateway/batches/files.py forget": "what is too old",
    "gateway/batches/actions.py forget": "what is too old",
    "core/jobs/claims.py end": "which worker has it",
    "core/jobs/claims.py end_all": "which worker has it",
    "core/jobs/claims.py renew": "which worker has it",
}
# Methods of models through which callers write.
_OF_MODELS = ("models.py", "identity/tenants/append_only.py")


class AuditWatch:
    """A watch on changes; `findings` has a sentence for each one without its audit row."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self._depth = 0
        self._changes: list[str] = []
        self._recorded = False

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Record a statement that changes data, then execute it; a wrapper for `connection.execute_wrapper`."""
        match = _CHANGE.match(sql)
        if match:
            self._changed(match[1], sys._getframe(1))
        return execute(sql, params, many, context)

    def _changed(self, table: str, frame: FrameType | None) -> None:
        if table == AUDIT_LOG:
            self._recorded = True
        place = product_place(frame)
        if table in UNAUDITED or place is None or place in UNAUDITED_PLACES:
            return
        if self._depth:
            self._changes.append(f"{place} changes {table}")
        else:
            self.findings.append(f"{place} changes {table} outside of a transaction")

    def entered(self) -> None:
        if self._depth == 0:
            self._changes, self._recorded = [], False
        self._depth += 1

    def left(self, *, undone: bool) -> None:
        self._depth -= 1
        if self._depth == 0 and self._changes and not self._recorded and not undone:
            self.findings += [f"{change}, and its transaction writes no audit row" for change in self._changes]


def product_place(frame: FrameType | None) -> str | None:
    """Return the innermost product code on the stack, as "identity/keys/actions.py create_key", or None for a test."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PRODUCT) and "/migrations/" not in file and not file.endswith(_OF_MODELS):
            return f"{file[len(PRODUCT) + 1 :]} {frame.f_code.co_name}"
        if "/tests/platform/" in file or "/tests/attack/" in file:
            return None
        frame = frame.f_back
    return None


@contextmanager
def audit_watch() -> Iterator[AuditWatch]:
    """Watches this thread's connection for as long as the block runs."""
    watch = AuditWatch()
    enter, leave = transaction.Atomic.__enter__, transaction.Atomic.__exit__
    ours: list[bool] = []
    thread = threading.get_ident()

    def entering(atomic: Any) -> Any:
        if threading.get_ident() != thread:
            return enter(atomic)
        ours.append(_entered_by_product(sys._getframe(1)))
        if ours[-1]:
            watch.entered()
        return enter(atomic)

    def leaving(atomic: Any, kind: Any, value: Any, traceback: Any) -> Any:
        if threading.get_ident() == thread and ours.pop():
            watch.left(undone=kind is not None)
        return leave(atomic, kind, value, traceback)

    transaction.Atomic.__enter__, transaction.Atomic.__exit__ = entering, leaving  # type: ignore[method-assign]
    try:
        with connection.execute_wrapper(watch.statement):
            yield watch
    finally:
        transaction.Atomic.__enter__, transaction.Atomic.__exit__ = enter, leave  # type: ignore[method-assign]


def _entered_by_product(frame: FrameType | None) -> bool:
    """Return whether `transaction.atomic` was entered by product code, not by Django itself."""
    while frame is not None and frame.f_code.co_filename.endswith("contextlib.py"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PRODUCT)
