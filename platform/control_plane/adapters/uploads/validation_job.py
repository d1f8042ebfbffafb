"""Validates one upload in a child process and records the result."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.artifacts.configured import artifact_store
from control_plane.adapters.artifacts.store import FILES, ArtifactDamagedError, KnownDigests, read_digests
from control_plane.adapters.imports.fetching import FetchStoppedError, fetch
from control_plane.adapters.imports.problems import SourceProblemError
from control_plane.adapters.registry.base_of_adapter import base_of_named, choices, names_of, other_base
from control_plane.adapters.registry.storage_limits import StoredLimitError
from control_plane.adapters.registry.upload_bounds import limits_for
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.actions import CheckedAdapter
from control_plane.adapters.uploads.models import Upload
from control_plane.adapters.uploads.validation_child import CheckCancelledError, Child, start_child
from control_plane.core import db
from control_plane.core.config import current
from control_plane.core.jobs import claims
from control_plane.core.storable import storable
from control_plane.core.storage_errors import StorageError, StorageFullError, as_storage_error
from control_plane.fleet.base_models.base_model import ServedBases

logger = logging.getLogger(__name__)
# Niceness of a tenant's only check, and of one among several, added to `validation_sandbox.NICE`: on a single machine
# tokens come before checks, and a tenant's only check before those of a tenant with many. A short check keeps its
# priority.
NICE, FURTHER_NICE = 0, 10
READ_BYTES = 1 << 20


class RefusedError(Exception):
    """The files cannot become an adapter. `problem` is `{code, message, fix}`."""

    def __init__(self, problem: dict[str, Any], report: dict[str, Any] | None = None) -> None:
        super().__init__(problem)
        self.problem, self.report = problem, report


def validate_next() -> bool:
    """Decide one upload, by fair order of tenants. Returns False if there is none to decide now.

    Raises ValidationCancelledError if this process is stopping, or another worker has taken the upload.
    """
    claimed = uploads.claim_next()
    if claimed is None:
        return False
    (upload, bases), thread, report = claimed, threading.get_ident(), None
    with claims.keep(upload, on_lost=partial(_cancel, thread)):
        _busy.add(thread)
        try:
            fetch(upload, partial(_stopped.__contains__, thread), partial(uploads.others_wait, upload))
            spool.require_room(upload.bytes)
            checked = inspect(upload, bases)
            report = checked.report
            if artifact_gc.reserve_content(upload, checked.digest):
                artifact_store().put(checked.folder, checked.file_digests, checked.known)
                if not uploads.accept_upload(upload, checked):
                    # Another worker decided it while this one was paused: content that it stored too late must be
                    # collected.
                    artifact_gc.touch_content(checked.digest)
        except RefusedError as refused:
            uploads.refuse_upload(upload, refused.problem, refused.report)
        except StoredLimitError as full:
            uploads.refuse_upload(upload, full.body(), report)
        except (ValidationCancelledError, FetchStoppedError):
            uploads.return_upload(upload)
            raise ValidationCancelledError from None
        except SourceProblemError as error:
            if error.passes:
                uploads.put_off_upload(upload, error.problem)
            else:
                uploads.refuse_upload(upload, error.problem, None)
        except (OSError, StorageError, ArtifactDamagedError) as error:
            # Files of an upload that is cancelled meanwhile are missing.
            if uploads.put_off_upload(upload, waiting_for_storage(error)):
                logger.exception("Upload %s waits: the disk or the artifact store failed.", upload.pk)
        finally:
            _busy.discard(thread)
            _stopped.discard(thread)
    return True


def _origin(source: dict[str, Any]) -> str:
    commit = f" at commit {source['commit']}" if source.get("commit") else ""
    return f"imported from {source['name']}{commit}"


def inspect(upload: Upload, bases: ServedBases) -> CheckedAdapter:
    """Run the child on the upload's files. Of several base models it uses the one that the files name.

    Raises RefusedError, and ValidationCancelledError.
    """
    if upload.base_digest and bases.for_adapters_of(upload.base_digest) is None:
        raise RefusedError(
            {
                "code": "base_model_not_found",
                "message": "The base model that this upload was sent for is not served any more.",
                "fix": f"Upload again for one of {choices(bases)}.",
            }
        )
    folder = Path(upload.folder)
    # A folder of this attempt alone: the child of a killed worker may still write into its folder. Folders of later
    # attempts are in use: this worker may have been paused since it claimed the upload.
    for left in folder.glob("unpacked-*"):
        if int(left.name.removeprefix("unpacked-")) <= upload.attempts:
            shutil.rmtree(left, ignore_errors=True)
    settings, thread, ended = current(), threading.get_ident(), threading.Event()
    unpacked = folder / f"unpacked-{upload.attempts}"
    request = {
        "files": {file["name"]: str(folder / str(index)) for index, file in enumerate(upload.files)},
        "sha256": {file["name"]: file["sha256"] for file in upload.files if "sha256" in file},
        "into": str(unpacked),
        **_candidates(upload, bases),
        "cpu_s": settings.validate_cpu_s,
        "memory_bytes": settings.validate_memory_bytes,
        "nice": FURTHER_NICE if uploads.has_others_undecided(upload) else NICE,
    }
    db.release_connections()
    with ThreadPoolExecutor(1, "read-upload") as beside:
        try:
            reading = beside.submit(_read_beside, upload, ended)
            child = _children[thread] = start_child()
            answer = _answer(child.ask(json.dumps(request), settings.validate_wall_s), upload)
            known = reading.result()
        except subprocess.TimeoutExpired:
            raise RefusedError(_too_slow(settings.validate_wall_s)) from None
        except CheckCancelledError:
            raise ValidationCancelledError from None
        finally:
            _children.pop(thread, None)
            ended.set()
    report, base = answer["report"], bases.for_adapters_of(answer["base"])
    if base is None:
        raise RefusedError(_crashed(""), report)
    if named := other_base(report["manifest"]["base_model_name"], base):
        report["notes"].append(
            f"it names {named} as its base model, but {base.name} is served: equal shapes do not prove "
            "that these are the same, so a member must confirm it before it is live"
        )
    return CheckedAdapter(
        unpacked,
        read_digests(unpacked, known),
        known,
        sum((unpacked / name).stat().st_size for name in FILES),
        report,
        base,
        answer["chat_template"],
        answer["chat_template_digest"],
    )


def _read_beside(upload: Upload, ended: threading.Event) -> KnownDigests:
    """Read, while the child checks the upload, those of its files that may be stored unchanged. Raises OSError."""
    digests = {}
    for index, file in enumerate(upload.files):
        if Path(file["name"].replace("\\", "/")).name not in FILES:
            continue
        with (Path(upload.folder) / str(index)).open("rb") as opened:
            digest, place = hashlib.sha256(), os.fstat(opened.fileno())
            while not ended.is_set() and (piece := opened.read(READ_BYTES)):
                digest.update(piece)
        digests[place.st_dev, place.st_ino] = f"sha256:{digest.hexdigest()}"
    return digests


def _answer(child: subprocess.CompletedProcess[str], upload: Upload) -> dict[str, Any]:
    """Return the child's answer about a valid adapter. Raises RefusedError, and OSError if the disk failed."""
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL) or "MemoryError" in child.stderr[-2000:]:
        raise RefusedError(_too_costly())
    if child.returncode != 0:
        logger.error("Validation of upload %s crashed: %s", upload.pk, child.stderr[-4000:])
        raise RefusedError(_crashed(str(upload.pk)))
    answer: dict[str, Any] = storable(json.loads(child.stdout))
    if answer.get("disk") == errno.ENOMEM:  # the child reached its memory limit within a system call
        raise RefusedError(_too_costly())
    if "disk" in answer:
        raise OSError(answer["disk"], os.strerror(answer["disk"]))
    if "problem" in answer:
        raise RefusedError(answer["problem"])
    report = answer["report"]
    if upload.source is not None:
        report["notes"].insert(0, _origin(upload.source))
    if not report["ok"]:
        raise RefusedError(_summary(report), report)
    return answer


def _candidates(upload: Upload, bases: ServedBases) -> dict[str, Any]:
    """Return the base models that the adapter may belong to: the one named with the upload, or all."""
    chosen = bases.only or (bases.for_adapters_of(upload.base_digest) if upload.base_digest else None)
    adapter_base = base_of_named(upload.tenant, upload.adapter_name, bases)
    return {
        "bases": [
            {
                "names": names_of(base, first=index == 0),
                "geometry": asdict(base.geometry),
                "limits": asdict(limits_for(base, upload.tenant)),
                "chat_template_digest": base.chat_template_digest,
                "added_tokens": base.added_tokens,
            }
            for index, base in enumerate(bases)
            if chosen is None or base.digest == chosen.digest
        ],
        "adapter_base": adapter_base.digest if adapter_base else "",
    }


class ValidationCancelledError(RuntimeError):
    """The process is stopping: the upload stays undecided and is validated after the next start."""


_children: dict[int, Child] = {}  # by the thread that waits for it
_busy: set[int] = set()  # threads that decide an upload
_stopped: set[int] = set()  # those of them that must stop fetching


def cancel_running() -> None:
    """Stop the children of this process without deciding their uploads."""
    for thread in list(_busy):
        _cancel(thread)


def _cancel(thread: int) -> None:
    if thread in _busy:
        _stopped.add(thread)
    child = _children.get(thread)
    if child is not None:
        child.kill()


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    """Return the first problem, which is the one to fix first, with the number of the others."""
    first, more = report["problems"][0], report["problem_count"] - 1
    message = first["message"] if more < 1 else f"{first['message']} ({more} more in the report.)"
    return {"code": first["code"], "message": message, "fix": first["fix"]}


def _too_slow(wall_s: int) -> dict[str, Any]:
    return {
        "code": "validation_timeout",
        "message": f"Checking the files took longer than {wall_s} seconds.",
        "fix": "Upload the two PEFT files loose instead of in an archive, or ask the operator to raise the limit.",
    }


def _too_costly() -> dict[str, Any]:
    return {
        "code": "validation_too_costly",
        "message": "Checking the files used more memory or processor time than an adapter may need.",
        "fix": "Upload the two PEFT files loose, as save_pretrained writes them.",
    }


def waiting_for_storage(error: Exception) -> dict[str, Any]:
    """Return why an upload waits. The operating system's message is not included: it names folders and hosts."""
    if isinstance(as_storage_error(error), StorageFullError):
        return {
            "code": "storage_full",
            "message": "The server has no room to unpack and store this upload.",
            "fix": "It is checked automatically when there is room. The operator must free the artifact folder.",
        }
    return {
        "code": "storage_unavailable",
        "message": "The server's storage for adapters cannot be used now.",
        "fix": "It is checked automatically when the storage works again. The operator must check the artifact store.",
    }


def _crashed(upload_id: str) -> dict[str, Any]:
    return {
        "code": "validation_crashed",
        "message": "The files could not be checked: the check itself failed.",
        "fix": f"Upload the two PEFT files loose; if it persists, report upload {upload_id} to the operator.",
    }
