"""The artifact store in a bucket of Amazon S3 or a compatible server.

Objects are `<prefix>/sha256/<hex[:2]>/<hex>/<file>`. A single object appears whole or not at all; of the two files the
configuration is written last and removed first, so a digest with a configuration is complete. Address, region and
credentials come from the variables and files of all S3 clients (`AWS_…`), including those of the machine's role.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store as Bucket

from control_plane.adapters.artifacts.store import FILES, KnownDigests, require_digests
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest

# Bytes of one part, and parts sent at once: at most 32 MiB of an upload are in memory.
PART_BYTES, PARTS_AT_ONCE = 8 << 20, 4


class BucketError(OSError):
    """The bucket does not answer or refuses, which is handled like a failing disk."""

    def __init__(self, cause: BaseError) -> None:
        super().__init__(str(cause).partition("\n")[0])  # the other lines are for debugging the client


class S3Store:
    """A store in the bucket at `url`, `s3://bucket/prefix`.

    Signed addresses for hosts are valid for `signed_s` seconds.
    """

    def __init__(self, url: str, signed_s: int) -> None:
        self._url = url.rstrip("/")
        self._signed = timedelta(seconds=signed_s)
        self._bucket = bucket_client(self._url)

    def put(self, folder: Path, file_digests: dict[str, str], known: KnownDigests | None = None) -> None:
        """Store a folder's files. Raises ArtifactDamagedError if they are not the validated ones, BucketError."""
        require_digests(folder, file_digests, known)
        digest = adapter_digest(file_digests)
        if not self.has(digest):
            for name in (WEIGHTS_FILE, CONFIG_FILE):
                self._send(folder / name, self._path(digest, name))

    def has(self, digest: str) -> bool:
        try:
            return all(obstore.head(self._bucket, self._path(digest, name)) for name in FILES)
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise BucketError(error) from error

    def uri(self, digest: str) -> str:
        return f"{self._url}/{self._folder(digest)}"

    def file_uris(self, digest: str) -> dict[str, str]:
        """Return signed addresses of the files, so that hosts need no credentials."""
        paths = [self._path(digest, name) for name in FILES]
        try:
            return dict(zip(FILES, obstore.sign(self._bucket, "GET", paths, self._signed), strict=True))
        except BaseError as error:
            raise BucketError(error) from error

    def remove(self, digest: str) -> None:
        """Remove the files of a digest. Raises BucketError."""
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            try:
                obstore.delete(self._bucket, self._path(digest, name))
            except FileNotFoundError:
                continue
            except BaseError as error:
                raise BucketError(error) from error

    def digests(self) -> Iterator[str]:
        """Yield the digests in the bucket, incomplete ones included. Raises BucketError."""
        before = ""
        try:
            for page in obstore.list(self._bucket, "sha256"):
                for entry in page:
                    digest = f"sha256:{entry['path'].split('/')[-2]}"
                    if digest != before:
                        before = digest
                        yield digest
        except BaseError as error:
            raise BucketError(error) from error

    def _send(self, file: Path, path: str) -> None:
        """Upload a file. Each request carries a SHA-256, against which the service checks the bytes."""
        try:
            obstore.put(self._bucket, path, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        except BaseError as error:
            raise BucketError(error) from error

    def _path(self, digest: str, name: str) -> str:
        return f"{self._folder(digest)}/{name}"

    @staticmethod
    def _folder(digest: str) -> str:
        hexadecimal = digest.removeprefix("sha256:")
        return f"sha256/{hexadecimal[:2]}/{hexadecimal}"


@lru_cache(maxsize=4)
def bucket_client(url: str) -> Bucket:
    """Return the process's client of a bucket, which keeps its connections."""
    in_the_clear = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return Bucket.from_url(
        url,
        config={"checksum_algorithm": "SHA256"},
        client_options={
            "allow_http": in_the_clear,
            "connect_timeout": timedelta(seconds=10),
            "timeout": timedelta(seconds=300),
        },
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=60)},
    )
