"""An adapter's two files are fetched from a folder or a web server and accepted only by their digest."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from lora_engine.errors import StageError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest

from .peers import Peer, PeerError

log = logging.getLogger(__name__)

# Bytes that are read at a time.
_BLOCK_BYTES = 1 << 20
# Seconds without an answer after which a download fails.
_TIMEOUT_S = 30.0
_STAGE_AGAIN = "Stage the adapter again with the digests from validation."
_UPLOAD_AGAIN = "Check that the artifact store still has this version; if not, upload the adapter again."
_CHECK_STORE = "Check the artifact store and the engine host's connection to it; then stage the adapter again."

Progress = Callable[[int, int], None]
Source = Callable[[str], AbstractContextManager[tuple[IO[bytes], int]]]


@dataclass(frozen=True, slots=True)
class Artifact:
    """An adapter to fetch. ``uri`` is a ``file://`` folder or an ``http(s)://`` prefix of the two files.

    ``file_digests`` maps both file names to ``sha256:<hex>``; ``headers`` are sent with HTTP requests. ``file_uris``
    has files with other addresses, such as signed ones, which take precedence over ``uri``. ``peers`` are hosts that
    have the adapter: they are tried before a web server, and after a folder, which hosts share or do not have.
    """

    digest: str
    uri: str
    file_digests: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    file_uris: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()

    def check(self) -> None:
        """Raise ``StageError`` unless the parts agree with each other."""
        try:
            actual = adapter_digest(self.file_digests)
        except ValueError as error:
            raise StageError("invalid_artifact", f"The file digests cannot be used: {error}.", _STAGE_AGAIN) from None
        if actual != self.digest:
            message = f"The file digests make {actual}, but {self.digest} was requested."
            raise StageError("digest_mismatch", message, _STAGE_AGAIN)
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if self._place(name).scheme not in ("file", "http", "https"):
                message = f"{self.uri!r} is no address to fetch from."
                raise StageError("invalid_artifact", message, "Use a file:// folder or an http(s):// address.")

    def _place(self, name: str) -> urllib.parse.SplitResult:
        if name in self.file_uris:
            return urllib.parse.urlsplit(self.file_uris[name])
        parts = urllib.parse.urlsplit(self.uri)
        return parts._replace(path=parts.path.rstrip("/") + "/" + name)

    def fetch(self, into: Path, max_bytes: int, progress: Progress) -> int:
        """Fetch both files into ``into``, checked, and return their bytes. Raises ``StageError``.

        ``progress`` is called with bytes done and total bytes (0 while unknown). If a peer fails or sends wrong bytes,
        the next source is tried.
        """
        peers: list[Source] = [partial(peer.open, self.digest) for peer in self.peers]
        sources: list[Source] = (
            [self._open, *peers] if urllib.parse.urlsplit(self.uri).scheme == "file" else [*peers, self._open]
        )
        failure: StageError | None = None
        for source in sources:
            try:
                return self._fetch(source, into, max_bytes, progress)
            except (StageError, PeerError) as error:
                if source == self._open and isinstance(error, StageError):
                    failure = error
                else:
                    log.info("%s is fetched from the next source: %s", self.digest, error)
                for name in (CONFIG_FILE, WEIGHTS_FILE):
                    (into / name).unlink(missing_ok=True)
        assert failure is not None, "the store is among the sources"
        raise failure

    def _fetch(self, source: Source, into: Path, max_bytes: int, progress: Progress) -> int:
        transfer = _Transfer(max_bytes, progress)
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            with source(name) as (stream, length):
                actual = transfer.copy(stream, length, into / name)
            expected = self.file_digests[name].removeprefix("sha256:")
            if actual != expected:
                raise StageError(
                    "digest_mismatch",
                    f"{name} has digest sha256:{actual}, but sha256:{expected} was expected: "
                    "it was damaged or replaced.",
                    "Upload the adapter again.",
                )
        return transfer.done

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Return a context with the file's stream and its length (0 if unknown). Any failure becomes a
        ``StageError``.
        """
        parts = self._place(name)
        try:
            if parts.scheme == "file":
                with Path(urllib.parse.unquote(parts.path)).open("rb") as file:
                    yield file, os.fstat(file.fileno()).st_size
            else:
                request = urllib.request.Request(parts.geturl(), headers=dict(self.headers))
                with _opener.open(request, timeout=_TIMEOUT_S) as response:
                    yield response, int(response.headers.get("Content-Length") or 0)
        except FileNotFoundError:
            raise StageError("artifact_not_found", f"There is no {name} at {self.uri}.", _UPLOAD_AGAIN) from None
        except urllib.error.HTTPError as error:
            raise _http_refusal(error, name) from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            message = f"The artifact store at {parts.netloc} does not answer: {getattr(error, 'reason', error)}."
            raise StageError("artifact_unavailable", message, _CHECK_STORE, passes=True) from None
        except OSError as error:
            message = f"{name} cannot be copied: {error.strerror or error}."
            raise StageError("disk_error", message, "Check the engine host's disk.", passes=True) from None


class _Transfer:
    """A copy of streams to disk that counts and hashes the bytes."""

    def __init__(self, max_bytes: int, progress: Progress) -> None:
        self.done = 0
        self._max_bytes = max_bytes
        self._progress = progress

    def copy(self, stream: IO[bytes], length: int, path: Path) -> str:
        """Write the stream to ``path``; return its SHA-256 in hex."""
        digest, start = hashlib.sha256(), self.done
        hashed: Future[None] | None = None
        with path.open("xb") as file, ThreadPoolExecutor(1, "hash") as hasher:
            while block := stream.read(_BLOCK_BYTES):
                self.done += len(block)
                if self.done > self._max_bytes:
                    message = f"The adapter is larger than {self._max_bytes} bytes."
                    raise StageError("artifact_too_large", message, "Train with a lower rank or fewer targets.")
                if hashed is not None:
                    hashed.result()
                hashed = hasher.submit(digest.update, block)
                file.write(block)
                self._progress(self.done, start + length if length else 0)
        if self.done - start < length:
            raise ConnectionError(f"it ended {length - (self.done - start)} bytes early")
        return digest.hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: it would send the store's credentials to another server."""

    def redirect_request(self, *_arguments: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _http_refusal(error: urllib.error.HTTPError, name: str) -> StageError:
    message = f"The artifact store answered {error.code} {error.reason} for {name}."
    if error.code in (404, 410):
        return StageError("artifact_not_found", message, _UPLOAD_AGAIN)
    return StageError("artifact_unavailable", message, _CHECK_STORE, passes=True)
