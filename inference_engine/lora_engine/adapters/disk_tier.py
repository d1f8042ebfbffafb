"""The disk tier keeps adapters on the host's disk: content-addressed, bounded, and consistent after a crash.

A folder ``sha256/<hh>/<hex>`` appears by one rename, after both files were written. A crash leaves incomplete files
only in ``incoming``, which is emptied at start. Staging does not wait until the disk has written the files (``flush``):
damage by a power cut is detected by the digest, which is compared once in each process, and the adapter is fetched
again. The folder's modification time records its last use, so that the order of eviction survives restarts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lora_engine.errors import StageError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests

log = logging.getLogger(__name__)

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


@dataclass(slots=True)
class _Entry:
    folder: Path
    num_bytes: int
    last_used: float
    checked: bool  # the files' digest was compared in this process
    flushed: bool  # the files are on disk, not only in the page cache


class DiskTier:
    """A store of folders by digest, at most ``capacity`` bytes. It may be used from several threads."""

    def __init__(self, root: Path, capacity: int) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._capacity = capacity
        self._lock = threading.Lock()
        self._pins: Counter[str] = Counter()
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(parents=True)
        self._entries = dict(self._scan())

    def has(self, digest: str) -> bool:
        return digest in self._entries

    def contents(self) -> dict[str, int]:
        """Return digest → bytes of all adapters on disk."""
        with self._lock:
            return {digest: entry.num_bytes for digest, entry in self._entries.items()}

    @property
    def used(self) -> int:
        return sum(self.contents().values())

    def pin(self, digest: str) -> None:
        """Keep the digest, present or not, from being evicted until ``unpin``."""
        with self._lock:
            self._pins[digest] += 1

    def unpin(self, digest: str) -> None:
        with self._lock:
            self._pins[digest] -= 1
            if self._pins[digest] <= 0:
                del self._pins[digest]

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        """Return a context with the adapter's folder, which is not evicted meanwhile.

        Raises ``StageError`` if it is not on disk, or if the disk fails while the block reads.
        """
        self.pin(digest)
        try:
            entry = self._entry(digest)
            entry.last_used = time.time()
            with contextlib.suppress(OSError):  # a full disk can still be read
                os.utime(entry.folder)
            yield entry.folder
        except OSError as error:
            message = f"The copy of {digest} on disk cannot be read: {error.strerror or error}."
            raise StageError("disk_error", message, "Check the engine host's disk.", passes=True) from None
        finally:
            self.unpin(digest)

    @contextmanager
    def adding(self, digest: str) -> Iterator[Path]:
        """Return a context with an empty folder, which becomes the adapter's when the block has written its files.

        Raises ``StageError`` if the disk fails or has no room. Leaves no files then, or if the block raises.
        """
        place = self._incoming / uuid.uuid4().hex
        try:
            place.mkdir()
            yield place
            num_bytes = sum(file.stat().st_size for file in place.iterdir())
            self._make_room(num_bytes)
            folder = self._folder(digest)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                if digest not in self._entries:
                    shutil.rmtree(folder, ignore_errors=True)
                    place.rename(folder)
                    self._entries[digest] = _Entry(folder, num_bytes, time.time(), checked=True, flushed=False)
        except OSError as error:
            message = f"The adapter cannot be written to {self._root}: {error.strerror or error}."
            raise StageError("disk_error", message, "Free space on the engine host's disk.", passes=True) from None
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def verify(self, digest: str) -> None:
        """Check once per process that the files have the digest under which they are stored.

        Raises ``StageError``; a damaged adapter is removed.
        """
        entry = self._entry(digest)
        if entry.checked:
            return
        with self.reading(digest) as folder:
            entry.checked = adapter_digest(folder_digests(folder)) == digest
        if not entry.checked:
            self.remove(digest)
            message = f"The copy of {digest} on disk was damaged and has been removed."
            raise StageError("disk_tier_damaged", message, "Stage the adapter again.", passes=True)

    def flush(self, digest: str) -> None:
        """Wait until an adapter is on disk, so that it survives a power cut."""
        entry = self._entries.get(digest)
        if entry is None or entry.flushed:
            return
        try:
            for path in (entry.folder / CONFIG_FILE, entry.folder / WEIGHTS_FILE, entry.folder, entry.folder.parent):
                _sync(path)
            entry.flushed = True
        except FileNotFoundError:  # evicted meanwhile
            pass
        except OSError as error:
            log.warning("%s may not outlast a power cut: %s", digest, error)

    def remove(self, digest: str) -> bool:
        """Remove an adapter; True if it was on disk. A reader with open files can read them to the end."""
        with self._lock:
            entry = self._entries.pop(digest, None)
            try:
                trash = self._put_aside(entry) if entry else None
            except OSError as error:  # drop it all the same; the next start scans the folder again
                log.warning("%s cannot be removed from disk: %s", digest, error)
                trash = None
        self._discard(trash)
        return entry is not None

    def _entry(self, digest: str) -> _Entry:
        entry = self._entries.get(digest)
        if entry is None:
            raise StageError("adapter_not_found", f"{digest} is not on this host's disk.", "Stage the adapter again.")
        return entry

    def _make_room(self, num_bytes: int) -> None:
        while True:
            with self._lock:
                if sum(entry.num_bytes for entry in self._entries.values()) + num_bytes <= self._capacity:
                    return
                idle = [digest for digest in self._entries if not self._pins[digest]]
                victim = min(idle, key=lambda digest: self._entries[digest].last_used, default=None)
                trash = self._put_aside(self._entries[victim]) if victim else None
                if victim:
                    del self._entries[victim]
            if victim is None:
                raise StageError(
                    "disk_tier_full",
                    f"The adapter needs {num_bytes} bytes, but the disk tier of {self._capacity} bytes is in use.",
                    "Try again when requests have ended, or give the engine a larger --disk-tier-mb.",
                    passes=True,
                )
            self._discard(trash)

    def _put_aside(self, entry: _Entry) -> Path | None:
        """Move a folder aside before its files are deleted, so that a crash leaves no incomplete adapter.

        The caller has the lock: the folder might otherwise be one that was just published again.
        """
        trash = self._incoming / uuid.uuid4().hex
        try:
            entry.folder.rename(trash)
        except FileNotFoundError:
            return None
        return trash

    def _discard(self, trash: Path | None) -> None:
        if trash is not None:
            shutil.rmtree(trash, ignore_errors=True)

    def _scan(self) -> Iterator[tuple[str, _Entry]]:
        for folder in self._root.glob("sha256/??/*"):
            digest = f"sha256:{folder.name}"
            files = [folder / CONFIG_FILE, folder / WEIGHTS_FILE]
            if _DIGEST.fullmatch(digest) and all(file.is_file() for file in files):
                num_bytes = sum(file.stat().st_size for file in files)
                yield digest, _Entry(folder, num_bytes, folder.stat().st_mtime, checked=False, flushed=True)

    def _folder(self, digest: str) -> Path:
        match = _DIGEST.fullmatch(digest)
        assert match, "the digest was computed from files"
        return self._root / "sha256" / match[1][:2] / match[1]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
