"""Fetches the source of an import into the upload's folder, before it is validated like any other upload.

A file that is cut off stays as `N.part` with its entity tag, and is continued by this worker or another one.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import httpx
from django.db import transaction

from control_plane.adapters.imports import bucket, hub
from control_plane.adapters.imports.listing import RemoteFile
from control_plane.adapters.imports.models import BucketCredentials, HubToken
from control_plane.adapters.imports.problems import (
    Origin,
    SourceProblemError,
    check_answer,
    no_credentials,
    unavailable,
)
from control_plane.adapters.imports.sealed import unseal
from control_plane.adapters.imports.sources import HubSource, S3Source, UrlSource, parse_source
from control_plane.adapters.registry.locks import lock_claimed
from control_plane.adapters.registry.storage_limits import require_room
from control_plane.adapters.registry.upload_bounds import UploadBound, upload_bound
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.models import Upload
from control_plane.core.config import current
from control_plane.core.db import release_connections
from control_plane.core.http import egress
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

# Bytes of a refusal that are read for its error code.
_REFUSAL_BYTES = 4096
# Bytes received before they are written, and pieces written at once.
WRITE_BYTES, MAX_PIECES = 1 << 20, 256
# Seconds that an import may take, and bytes for each further second; the larger value applies while others wait.
PATIENCE_S, LEAST_BYTES_PER_S, LEAST_BYTES_PER_S_IF_OTHERS_WAIT = 30.0, 10_000, 1_000_000
# Seconds between two checks if other imports wait.
CHECK_EVERY_S = 5.0


class FetchStoppedError(Exception):
    """The fetch ended early: this worker is stopping, or another worker has taken the upload."""


def fetch(upload: Upload, stopped: Callable[[], bool], others_wait: Callable[[], bool]) -> None:
    """Fetch every file. Raises SourceProblemError, StoredLimitError, FetchStoppedError, OSError."""
    folder = Path(upload.folder)
    if upload.source is None or upload.source.get("fetched"):
        return
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + current().import_wall_s
    text = unseal(upload.source["sealed"])
    if text is None:
        raise SourceProblemError(
            "source_sealed", "The import's address cannot be decrypted any more.", "Import it again."
        )
    try:
        bound = upload_bound(upload.tenant, upload.adapter_name, upload.base_digest)
        wanted, headers = _wanted(upload, text)
        _drop_files_of_other_listing(folder, wanted)
        release_connections()
        left, pace = bound.bytes, _Pace(others_wait)
        for index, file in enumerate(wanted):
            transfer = _Transfer(folder, index, file, headers, left, pace)
            left -= transfer.run(lambda: stopped() or time.monotonic() > until)
        if wanted[0].of is Origin.BUCKET and _listed(_wanted(upload, text)[0]) != _listed(wanted):
            raise unavailable("The folder of the bucket changed while it was read.")
    except _TooLargeError:
        raise _too_large(bound) from None
    except FetchStoppedError:
        if stopped():
            raise
        raise unavailable("The transfer takes too long, or another worker is still busy with it.") from None
    except egress.EgressError as error:
        raise unavailable(str(error)) from error
    except egress.UrlRefusedError as error:
        raise SourceProblemError("source_refused", error.message, error.fix) from error
    if stopped():
        raise FetchStoppedError
    sizes = [(file.name, (folder / str(index)).stat().st_size) for index, file in enumerate(wanted)]
    _note(upload, files=[{"name": name, "bytes": size} for name, size in sizes], fetched=True)


def _listed(files: list[RemoteFile]) -> str:
    return json.dumps([[file.name, file.bytes, file.tag] for file in files])


def _drop_files_of_other_listing(folder: Path, wanted: list[RemoteFile]) -> None:
    """Delete what an earlier attempt fetched if the source's files have changed since: files of two states of a source
    would make an adapter that never was.
    """
    known, listed = folder / "listing", _listed(wanted)
    if not known.exists() or known.read_text() != listed:
        for left in folder.iterdir():
            if left.is_file():
                left.unlink(missing_ok=True)
        known.write_text(listed)


def _wanted(upload: Upload, text: str) -> tuple[list[RemoteFile], Mapping[str, str]]:
    source = parse_source(text)
    if isinstance(source, UrlSource):
        return [RemoteFile(source.file_name, source.url, None)], {}
    if isinstance(source, S3Source):
        return _in_bucket(upload, source), {}
    return _on_hub(upload, source)


def _in_bucket(upload: Upload, source: S3Source) -> list[RemoteFile]:
    kept = BucketCredentials.objects.for_tenant(upload.tenant).filter(bucket=source.bucket).first()
    if kept is None:
        raise SourceProblemError(*no_credentials(source.bucket))
    files = bucket.list_adapter(bucket.open_bucket(kept), source)
    _require_room(upload, files)
    return files


def _on_hub(upload: Upload, source: HubSource) -> tuple[list[RemoteFile], Mapping[str, str]]:
    assert upload.source is not None
    headers = authorization(upload.tenant)
    # Once its commit is known, the import is unaffected by a branch that moves.
    revision = upload.source.get("commit") or source.revision
    listing = hub.list_adapter(source.repository, revision, headers, source.folder)
    _require_room(upload, listing.files)
    if "commit" not in upload.source:
        _note(upload, files=[{"name": f.name, "bytes": f.bytes or 0} for f in listing.files], commit=listing.commit)
    return listing.files, headers


def _require_room(upload: Upload, files: list[RemoteFile]) -> None:
    total = sum(file.bytes or 0 for file in files)
    bound = upload_bound(upload.tenant, upload.adapter_name, upload.base_digest)
    if total > bound.bytes:
        raise _too_large(bound)
    require_room(upload.tenant, upload.adapter_name, total)
    spool.require_room(total)


def authorization(tenant: Tenant) -> dict[str, str]:
    """Return the headers for the tenant's private repositories; empty if it has no token."""
    token = HubToken.objects.for_tenant(tenant).first()
    secret = unseal(token.sealed) if token else None
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def _note(upload: Upload, *, files: list[dict[str, object]], commit: str = "", fetched: bool = False) -> None:
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is None:
            raise FetchStoppedError
        locked.source = {**(locked.source or {}), **({"commit": commit} if commit else {}), "fetched": fetched}
        locked.files, locked.bytes = files, sum(int(str(file["bytes"])) for file in files)
        locked.save(update_fields=["source", "files", "bytes"])
        audit.record(
            SYSTEM,
            "upload.fetch" if fetched else "upload.pin",
            locked,
            tenant=locked.tenant,
            label=locked.adapter_name,
            bytes=locked.bytes,
            commit=locked.source.get("commit"),
        )
        upload.source, upload.files, upload.bytes = locked.source, locked.files, locked.bytes


class _Pace:
    """The minimum rate of an import's files together. Slow imports make room for others and continue later."""

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._until = self._until_beside_others = time.monotonic() + PATIENCE_S

    def received(self, num_bytes: int) -> None:
        """Count received bytes. Raises SourceProblemError if the source is too slow."""
        self._until += num_bytes / LEAST_BYTES_PER_S
        self._until_beside_others += num_bytes / LEAST_BYTES_PER_S_IF_OTHERS_WAIT
        now = time.monotonic()
        if now > self._until:
            raise unavailable(f"The source sends less than {LEAST_BYTES_PER_S // 1000} KB a second.")
        if now > self._until_beside_others:
            if self._others_wait():
                least = LEAST_BYTES_PER_S_IF_OTHERS_WAIT // 1000
                raise unavailable(f"The source sends less than {least} KB a second, and other uploads wait.")
            self._until_beside_others = now + CHECK_EVERY_S


class _Transfer:
    """The transfer of one file, continued where an earlier attempt stopped."""

    def __init__(
        self, folder: Path, index: int, file: RemoteFile, headers: Mapping[str, str], most: int, pace: _Pace
    ) -> None:
        self._pace = pace
        self._whole, self._part, self._tag = (folder / f"{index}{end}" for end in ("", ".part", ".etag"))
        self._file, self._headers, self._most = file, headers, most

    def run(self, stopped: Callable[[], bool]) -> int:
        """Fetch the file and return its size in bytes."""
        if self._whole.exists():
            return self._whole.stat().st_size
        with self._part.open("ab") as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FetchStoppedError from None
            self._receive(out.fileno(), stopped)
            place = os.fstat(out.fileno())
            size = place.st_size
            # Another worker has the import now, and has begun or ended this file.
            if not (self._part.exists() and os.path.samestat(place, self._part.stat())):
                raise FetchStoppedError
        if self._file.bytes is not None and size != self._file.bytes:
            self._part.unlink()
            raise unavailable(f"{self._file.name} arrived with {size} bytes instead of {self._file.bytes}.")
        self._part.rename(self._whole)
        self._tag.unlink(missing_ok=True)
        return size

    def _receive(self, out: int, stopped: Callable[[], bool]) -> None:
        at, tag = os.fstat(out).st_size, self._tag.read_text() if self._tag.exists() else ""
        if self._file.bytes is not None and at == self._file.bytes:
            return
        resume = {"Range": f"bytes={at}-", "If-Range": tag} if at and tag else {}
        allow = current().import_allow_private
        with egress.get(self._file.url, {**self._headers, **resume}, allow_private=allow) as answer:
            if answer.status_code not in (200, 206):
                begins = next(answer.iter_raw(_REFUSAL_BYTES), b"")
                check_answer(answer.status_code, self._file.of, answer.headers, begins)
            if answer.status_code == 200 or not resume:
                os.ftruncate(out, 0)
                at = 0
            elif not answer.headers.get("content-range", "").startswith(f"bytes {at}-"):
                raise unavailable("The source continued at another position than requested.")
            self._remember(answer)
            with _Writer(out) as writer:
                for piece in answer.iter_raw():  # write each piece: bytes received before a break count
                    at += len(piece)
                    if at > self._most:
                        raise _TooLargeError
                    writer.write(piece)
                    if stopped():
                        raise FetchStoppedError
                    self._pace.received(len(piece))
        expected = _whole_size(answer)
        if expected.isdecimal() and at != int(expected):
            raise unavailable("The source ended the connection early.")

    def _remember(self, answer: httpx.Response) -> None:
        """Store the entity tag. Only a strong tag guarantees that the bytes are the same."""
        tag = answer.headers.get("etag", "")
        if tag.startswith('"'):
            self._tag.write_text(tag)
        else:
            self._tag.unlink(missing_ok=True)


def _whole_size(answer: httpx.Response) -> str:
    """Return the size of the whole file as the answer names it. A part may be shorter than what was requested."""
    if answer.status_code == 206:
        return str(answer.headers.get("content-range", "")).rpartition("/")[2]
    return str(answer.headers.get("content-length", ""))


class _Writer:
    """A writer of pieces on a thread, while more are received. All are written at the end of the block, also after an
    error."""

    def __init__(self, out: int) -> None:
        self._out, self._thread = out, ThreadPoolExecutor(1, "write-import")
        self._pieces, self._size = list[bytes](), 0
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """Write the remaining pieces. Raises OSError."""
        with self._thread:
            self._hand_over()
            self._wait()

    def write(self, piece: bytes) -> None:
        """Queue a piece. Raises OSError, also for an earlier piece."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= WRITE_BYTES or len(self._pieces) >= MAX_PIECES:
            self._hand_over()

    def _hand_over(self) -> None:
        self._wait()
        self._running = self._thread.submit(_write, self._out, b"".join(self._pieces))
        self._pieces, self._size = [], 0

    def _wait(self) -> None:
        if self._running is not None:
            self._running.result()


def _write(out: int, pieces: bytes) -> None:
    view = memoryview(pieces)
    while view:
        view = view[os.write(out, view) :]


class _TooLargeError(Exception):
    """The source sends more bytes than the largest adapter has."""


def _too_large(bound: UploadBound) -> SourceProblemError:
    fix = f"Import an adapter, not a whole model. {bound.fix}"
    return SourceProblemError("upload_too_large", bound.message, fix)
