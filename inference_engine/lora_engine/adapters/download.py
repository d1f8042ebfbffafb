"""An adapter's two files are fetched from a folder or a web server and accepted only by their digest."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from lora_engine.errors import StageError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest
from lora_engine.wire import engine_pb2 as pb

from .peers import PeerError, open_at_peer

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


def _require_consistent(request: pb.StageAdapterRequest) -> None:
    """Raise ``StageError`` unless the parts of the request agree with each other."""
    try:
        actual = adapter_digest(request.file_digests)
    except ValueError as error:
        raise StageError("invalid_artifact", f"The file digests cannot be used: {error}.", _STAGE_AGAIN) from None
    if actual != request.digest:
        message = f"The file digests make {actual}, but {request.digest} was requested."
        raise StageError("digest_mismatch", message, _STAGE_AGAIN)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if _address(request, name).scheme not in ("file", "http", "https"):
            message = f"{request.source_uri!r} is no address to fetch from."
            raise StageError("invalid_artifact", message, "Use a file:// folder or an http(s):// address.")


def fetch(request: pb.StageAdapterRequest, into: Path, max_bytes: int, progress: Progress) -> None:
    """Fetch both files, checked, into ``into``. Raises ``StageError``.

    ``progress`` is called with bytes done and total bytes (0 while unknown). Peers are tried before a web server, and
    after a folder, which hosts share or do not have. If a peer fails or sends wrong bytes, the next source is tried.
    """
    _require_consistent(request)
    store: Source = partial(_open_at_store, request)
    sources: list[Source] = [partial(open_at_peer, peer, request.digest) for peer in request.peers]
    sources.insert(0 if urllib.parse.urlsplit(request.source_uri).scheme == "file" else len(sources), store)
    failure: StageError | None = None
    for source in sources:
        try:
            _copy_from(source, request, into, max_bytes, progress)
            return
        except (StageError, PeerError) as error:
            if source is store and isinstance(error, StageError):
                failure = error
            else:
                log.info("%s is fetched from the next source: %s", request.digest, error)
            for name in (CONFIG_FILE, WEIGHTS_FILE):
                (into / name).unlink(missing_ok=True)
    assert failure is not None, "the store is among the sources"
    raise failure


def _copy_from(source: Source, request: pb.StageAdapterRequest, into: Path, max_bytes: int, progress: Progress) -> None:
    """Copy both files from one source, while a thread beside hashes them."""
    done = 0
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        digest, start = hashlib.sha256(), done
        hashed: Future[None] | None = None
        with (
            source(name) as (stream, length),
            (into / name).open("xb") as file,
            ThreadPoolExecutor(1, "hash") as hasher,
        ):
            while block := stream.read(_BLOCK_BYTES):
                done += len(block)
                if done > max_bytes:
                    message = f"The adapter is larger than {max_bytes} bytes."
                    raise StageError("artifact_too_large", message, "Train with a lower rank or fewer targets.")
                if hashed is not None:
                    hashed.result()
                hashed = hasher.submit(digest.update, block)
                file.write(block)
                progress(done, start + length if length else 0)
            if done - start < length:
                raise ConnectionError(f"it ended {length - (done - start)} bytes early")
        actual, expected = digest.hexdigest(), request.file_digests[name].removeprefix("sha256:")
        if actual != expected:
            raise StageError(
                "digest_mismatch",
                f"{name} has digest sha256:{actual}, but sha256:{expected} was expected: it was damaged or replaced.",
                "Upload the adapter again.",
            )


def _address(request: pb.StageAdapterRequest, name: str) -> urllib.parse.SplitResult:
    if name in request.file_uris:
        return urllib.parse.urlsplit(request.file_uris[name])
    parts = urllib.parse.urlsplit(request.source_uri)
    return parts._replace(path=parts.path.rstrip("/") + "/" + name)


@contextmanager
def _open_at_store(request: pb.StageAdapterRequest, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Return a context with the file's stream and its length (0 if unknown). Any failure becomes a ``StageError``."""
    parts = _address(request, name)
    try:
        if parts.scheme == "file":
            with Path(urllib.parse.unquote(parts.path)).open("rb") as file:
                yield file, os.fstat(file.fileno()).st_size
        else:
            http_request = urllib.request.Request(parts.geturl(), headers=dict(request.source_headers))
            with _opener.open(http_request, timeout=_TIMEOUT_S) as response:
                yield response, int(response.headers.get("Content-Length") or 0)
    except FileNotFoundError:
        raise StageError("artifact_not_found", f"There is no {name} at {request.source_uri}.", _UPLOAD_AGAIN) from None
    except urllib.error.HTTPError as error:
        raise _http_refusal(error, name) from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        message = f"The artifact store at {parts.netloc} does not answer: {getattr(error, 'reason', error)}."
        raise StageError("artifact_unavailable", message, _CHECK_STORE, passes=True) from None
    except OSError as error:
        message = f"{name} cannot be copied: {error.strerror or error}."
        raise StageError("disk_error", message, "Check the engine host's disk.", passes=True) from None


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
