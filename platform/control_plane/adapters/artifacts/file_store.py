"""Plain files in the artifact store, by name: archives of old rows. They lie beside the adapters' `sha256` folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import obstore
from obstore.exceptions import BaseError

from control_plane.adapters.artifacts.s3 import PART_BYTES, PARTS_AT_ONCE, BucketError, bucket_client
from control_plane.adapters.artifacts.store import flush, sync_folder


class FileStore(Protocol):
    """A store of files by names such as "archives/ledger/2026-05/001.parquet".

    `put` is atomic: a name is absent, or its file is complete. All methods raise OSError if the store is unavailable.
    """

    def put(self, source: Path, name: str) -> None: ...

    def local(self, name: str, work: Path) -> Path:
        """Return the path of a local copy, in the folder `work` unless the store is local. Raises FileNotFoundError."""
        ...

    def names(self, prefix: str) -> Iterator[str]: ...

    def remove(self, name: str) -> None: ...

    def address(self, name: str) -> str: ...


class FolderFiles:
    """Files in a folder of a local or shared file system, readable by the platform's account only."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, source: Path, name: str) -> None:
        """Copy a file, flushed to the disk before it has its name. Raises OSError, such as for a full disk."""
        target = self.root / name
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            shutil.copyfile(source, partial)
            partial.chmod(0o600)
            flush([partial])
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)

    def local(self, name: str, work: Path) -> Path:
        path = self.root / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        return path

    def names(self, prefix: str) -> Iterator[str]:
        folder = self.root / prefix
        return (path.relative_to(self.root).as_posix() for path in folder.rglob("*") if path.is_file())

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def address(self, name: str) -> str:
        return str(self.root / name)


class BucketFiles:
    """Files in the bucket at `url`, `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._bucket = bucket_client(self._url)

    def put(self, source: Path, name: str) -> None:
        try:
            obstore.put(self._bucket, name, source, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        except BaseError as error:
            raise BucketError(error) from error

    def local(self, name: str, work: Path) -> Path:
        target = work / name.rpartition("/")[2]
        try:
            with target.open("wb") as file:
                for piece in obstore.get(self._bucket, name):
                    file.write(piece)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.address(name)} does not exist") from error
        except BaseError as error:
            raise BucketError(error) from error
        return target

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for page in obstore.list(self._bucket, prefix):
                yield from (entry["path"] for entry in page)
        except BaseError as error:
            raise BucketError(error) from error

    def remove(self, name: str) -> None:
        try:
            obstore.delete(self._bucket, name)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise BucketError(error) from error

    def address(self, name: str) -> str:
        return f"{self._url}/{name}"
