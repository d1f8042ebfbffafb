"""The artifact store: adapters by content digest. A digest that is present is complete and never changes."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from control_plane.core.errors import LorikeetError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, file_digest, folder_digests

FILES = (CONFIG_FILE, WEIGHTS_FILE)


class ArtifactDamagedError(LorikeetError):
    """Bytes in the store, or on their way to it, do not match their digest."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            "artifact_damaged",
            f"The stored files have the digest {actual}, not {expected}.",
            "Upload the adapter again; if it persists, check the disk of the artifact folder.",
            status=500,
        )


# SHA-256 of files that were read already, under any of their names: by device and inode.
KnownDigests = dict[tuple[int, int], str]


def read_digests(folder: Path, known: KnownDigests) -> dict[str, str]:
    """Return the digests of a folder's files. Files with known digests are not read again; the others become known."""
    digests = {}
    for name in FILES:
        status = (folder / name).stat()
        place = status.st_dev, status.st_ino
        digests[name] = known[place] = known.get(place) or file_digest(folder / name)
    return digests


def require_digests(folder: Path, file_digests: dict[str, str], known: KnownDigests | None) -> None:
    """Raise ArtifactDamagedError unless a folder's files have these digests, read again unless they are `known`."""
    actual = read_digests(folder, {} if known is None else known)
    if actual != file_digests:
        raise ArtifactDamagedError(adapter_digest(file_digests), adapter_digest(actual))


class ArtifactStore(Protocol):
    """A store of adapter files. `put` and `remove` are atomic and idempotent. All raise OSError if it is unavailable.
    `uri` names the content; `file_uris` returns each file's address for hosts, if it is not below that.
    """

    def put(self, folder: Path, file_digests: dict[str, str], known: KnownDigests | None = None) -> None: ...

    def has(self, digest: str) -> bool: ...

    def uri(self, digest: str) -> str: ...

    def file_uris(self, digest: str) -> dict[str, str]: ...

    def remove(self, digest: str) -> None: ...

    def digests(self) -> Iterator[str]: ...


class FolderStore:
    """A store on a local or shared file system: `<root>/sha256/<hex[:2]>/<hex>/` with the two files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, folder: Path, file_digests: dict[str, str], known: KnownDigests | None = None) -> None:
        """Add the two files of `folder`, which must not change any more: on one file system they are linked. They are
        flushed to the disk, and read again unless they are `known`, before they become visible. Raises
        ArtifactDamagedError if they are not the validated ones.
        """
        temporary = self.root / "incoming" / f"put-{uuid.uuid4().hex}"
        temporary.mkdir(parents=True)
        try:
            for name in FILES:
                _bring(folder / name, temporary / name)
            with ThreadPoolExecutor(1) as beside:
                on_disk = beside.submit(flush, [temporary / name for name in FILES])
                require_digests(temporary, file_digests, known)
                on_disk.result()
            sync_folder(temporary)
            digest = adapter_digest(file_digests)
            final = self._folder(digest)
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.rename(final)
            except OSError:
                if not final.exists():
                    raise  # for example a full disk
                if not _is_right(final, digest):  # the disk damaged the stored files: replace them
                    self.remove(digest)
                    temporary.rename(final)
            sync_folder(final.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def has(self, digest: str) -> bool:
        return all((self._folder(digest) / name).is_file() for name in FILES)

    def uri(self, digest: str) -> str:
        return self._folder(digest).absolute().as_uri()

    def file_uris(self, digest: str) -> dict[str, str]:
        """Return no addresses: hosts use the same folder."""
        return {}

    def remove(self, digest: str) -> None:
        """Remove the files of a digest. A host that is reading them reads them to their end."""
        gone = self.root / "incoming" / f"gone-{uuid.uuid4().hex}"
        gone.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._folder(digest).rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)  # the sweep of leftovers removes the rest

    def digests(self) -> Iterator[str]:
        return (f"sha256:{path.name}" for path in self.root.glob("sha256/*/*"))

    def _folder(self, digest: str) -> Path:
        hexadecimal = digest.removeprefix("sha256:")
        return self.root / "sha256" / hexadecimal[:2] / hexadecimal


def _is_right(folder: Path, digest: str) -> bool:
    try:
        return adapter_digest(folder_digests(folder)) == digest
    except OSError:
        return False


def _bring(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        with source.open("rb") as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
    target.chmod(0o444)


def flush(files: Iterable[Path]) -> None:
    """Wait until the files are on the disk. Raises OSError."""
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
