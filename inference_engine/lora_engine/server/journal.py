"""The usage journal keeps the record of every finished request on disk until a client acknowledges it.

A record is committed before its ``Finished`` is sent. The database is SQLite in WAL mode with ``synchronous=NORMAL``: a
commit is in the operating system's cache, so nothing is lost when this process dies in any way. Only a power failure
within the seconds before a checkpoint could lose records, and those have been sent to a web process by then. (FULL
would close that gap with a disk flush at the end of every request.)
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from lora_engine.wire import engine_pb2 as pb

log = logging.getLogger(__name__)
T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused, so that a reader can page by it
    request_id TEXT NOT NULL UNIQUE,
    record BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS damaged (  -- records that cannot be parsed, kept for inspection
    seq INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL,
    record BLOB NOT NULL
)
"""
# Seconds between two attempts to write.
_RETRY_S = 1.0


class JournalError(Exception):
    """The journal cannot be opened; the message says what to do."""


class UsageJournal:
    """A store of records by request id. One thread does all disk work; appends are committed in batches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "journal")
        self._lock = threading.Lock()
        self._pending: list[tuple[Sequence[pb.UsageRecord], Callable[[], None]]] = []
        self._flushing = False
        self._closed = False
        self._ids: set[str] = set()
        self.failing = False  # the last write failed: later records are in memory only
        self._thread.submit(self._open).result()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._ids

    def __len__(self) -> int:
        """Return the number of records that are not acknowledged."""
        return len(self._ids)

    def append(self, records: Sequence[pb.UsageRecord], done: Callable[[], None]) -> None:
        """Write ``records``, then call ``done`` from the journal's thread. Sets each record's ``seq``.

        If the write fails, ``done`` is called all the same and the write is repeated every second.
        """
        with self._lock:
            self._ids.update(record.request_id for record in records)
            self._pending.append((records, done))
            if not self._flushing:
                self._flushing = True
                self._thread.submit(self._flush)

    def pull(self, after_seq: int, limit: int) -> Future[list[pb.UsageRecord]]:
        """Return unacknowledged records in order of ``seq``, at most ``limit`` (0: 1000)."""
        return self._thread.submit(self._pull, after_seq, limit or 1000)

    def acknowledge(self, request_ids: Iterable[str]) -> Future[int]:
        """Delete records; return how many there were."""
        return self._thread.submit(self._acknowledge, list(request_ids))

    def close(self) -> None:
        """Write what is pending and close the file."""
        self._closed = True
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    # The methods below run in the journal's thread.

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connect()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # a full or read-only disk, not a damaged file
                    raise
                log.error(
                    "the usage journal is damaged (%s); it was moved to %s, and a new one was created",
                    error,
                    self._put_aside(),
                )
                self._connect()
        except (sqlite3.Error, OSError) as error:
            raise JournalError(
                f"The usage journal {self._path} cannot be opened: {error}. Free space on the disk of --data-dir, or "
                "make the folder writable."
            ) from error

    def _connect(self) -> None:
        self._db = db = sqlite3.connect(self._path, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
            self._ids = {row[0] for row in db.execute("SELECT request_id FROM usage")}
        except BaseException:
            db.close()
            raise

    def _put_aside(self) -> Path:
        """Rename the damaged file and its write-ahead log, which SQLite would replay into the new file; return the new
        path.
        """
        aside = self._path.with_suffix(f".damaged-{int(time.time())}")
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).rename(aside.with_name(aside.name + suffix))
        return aside

    def _flush(self) -> None:
        with self._lock:
            batch, self._pending, self._flushing = self._pending, [], False
        if not batch:
            return
        try:
            self._write([record for records, _ in batch for record in records])
        except sqlite3.Error as error:
            self._write_later(batch, error)
        else:
            self.failing = False
        for _, done in batch:
            done()

    def _write(self, records: list[pb.UsageRecord]) -> None:
        with self._transaction() as db:
            for record in records:
                row = (record.request_id, record.SerializeToString())
                cursor = db.execute("INSERT OR IGNORE INTO usage (request_id, record) VALUES (?, ?)", row)
                record.seq = cursor.lastrowid or 0

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit or roll back: a failed write must not leave a transaction that blocks the next."""
        db = self._db
        if db.in_transaction:  # the rollback failed too, on a full disk
            db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _write_later(self, batch: list[tuple[Sequence[pb.UsageRecord], Callable[[], None]]], cause: Exception) -> None:
        log.error("usage of %d requests cannot be written (%s); trying again", sum(len(r) for r, _ in batch), cause)
        self.failing = True
        with self._lock:
            self._pending[:0] = [(records, _nothing) for records, _ in batch]
        if not self._closed:
            timer = threading.Timer(_RETRY_S, self._try_again)
            timer.daemon = True
            timer.start()

    def _try_again(self) -> None:
        with contextlib.suppress(RuntimeError):  # the journal was closed, which writes pending records too
            self._thread.submit(self._flush)

    def _pull(self, after_seq: int, limit: int) -> list[pb.UsageRecord]:
        query = "SELECT seq, record FROM usage WHERE seq > ? ORDER BY seq LIMIT ?"
        records, damaged = [], []
        for seq, raw in self._db.execute(query, (after_seq, limit)):
            try:
                records.append(_restore(seq, raw))
            except DecodeError:
                damaged.append(seq)
        if damaged:
            self._set_damaged_aside(damaged)
        return records or (self._pull(damaged[-1], limit) if damaged else [])

    def _set_damaged_aside(self, seqs: list[int]) -> None:
        """Move records that cannot be parsed to another table, so that they do not block the others."""
        with self._transaction() as db:
            for seq in seqs:
                db.execute("INSERT INTO damaged SELECT seq, request_id, record FROM usage WHERE seq = ?", (seq,))
                (request_id,) = db.execute("DELETE FROM usage WHERE seq = ? RETURNING request_id", (seq,)).fetchone()
                self._ids.discard(request_id)
                log.error("the usage of request %s is damaged and cannot be counted; see table damaged of %s",
                          request_id, self._path)  # fmt: skip

    def _acknowledge(self, request_ids: list[str]) -> int:
        with self._transaction() as db:
            gone = db.executemany("DELETE FROM usage WHERE request_id = ?", [(r,) for r in request_ids]).rowcount
        self._ids.difference_update(request_ids)
        return gone

    def _close(self) -> None:
        self._flush()
        self._db.close()


def _nothing() -> None:
    """Do nothing when a repeated write succeeds: ``done`` was called after the first attempt."""


def _restore(seq: int, raw: bytes) -> pb.UsageRecord:
    record = pb.UsageRecord.FromString(raw)
    record.seq = seq
    return record
