"""The child process that opens uploaded files: `python -m control_plane.adapters.uploads.validation_sandbox`.

Reads one JSON request from standard input and writes one JSON answer to standard output. It has no Django, no
database, no secrets and hard limits on processor time, memory and file size, so that hostile bytes meet nothing. It is
started before there is an upload, and checks one.

Request: `{files: {name: path}, sha256: {name: hex}, into, geometry, limits, cpu_s, memory_bytes}`.
Answer: `{"report": ..., "digest": ..., "folder": ...}` or `{"problem": {code, message, fix}}`; `{"disk": errno}` if
the disk refused, which says nothing of the files.
"""

import contextlib
import errno
import json
import os
import resource
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from control_plane.processor import wait_for_others

NICE = 5
"""While it starts, ahead of need; an upload's own is added."""


def main() -> None:
    lower_priority(NICE)
    # Before the limits: while OpenBLAS loads, it asks for ever for memory that it does not get.
    import_module("lora_engine.peft_format")
    text = sys.stdin.read()
    if not text:
        return  # its worker ended before there was an upload for it
    request = json.loads(text)
    if request["nice"]:
        lower_priority(request["nice"])
    limit_resources(request["cpu_s"], request["memory_bytes"], request["limits"]["max_bytes"])
    json.dump(validate(request), sys.stdout)


def lower_priority(nice: int) -> None:
    """This process is the only one of its session, and Linux shares the processor among sessions first."""
    lowered = os.nice(nice)
    wait_for_others()
    with contextlib.suppress(OSError):  # without autogroups, `nice` alone counts
        Path("/proc/self/autogroup").write_text(str(lowered))


def limit_resources(cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    """Lower this process's limits for good."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def validate(request: dict[str, Any]) -> dict[str, Any]:
    """Unpack and inspect. Every fault of the files or the disk is in the answer; an exception is a fault of ours."""
    try:
        return _validate(request)
    except OSError as error:
        return {"disk": error.errno or errno.EIO}


def _validate(request: dict[str, Any]) -> dict[str, Any]:
    from lora_engine.peft_format import (
        CONFIG_FILE,
        AdapterLimits,
        BaseGeometry,
        FormatError,
        UploadError,
        adapter_digest,
        file_digest,
        folder_digests,
        inspect_adapter,
        resolve_patterns,
        to_peft_form,
        unpack_upload,
    )

    limits, notes = AdapterLimits(**request["limits"]), list[str]()
    files = {name: Path(path) for name, path in request["files"].items()}
    for name, announced in request.get("sha256", {}).items():
        if (found := file_digest(files[name]).removeprefix("sha256:")) != announced:
            return {"problem": digest_problem(name, announced, found)}
    try:
        folder = unpack_upload(files, Path(request["into"]), limits, notes=notes)
        form = to_peft_form(folder, limits)
    except (UploadError, FormatError) as error:
        shutil.rmtree(request["into"], ignore_errors=True)
        return {"problem": {"code": error.code, "message": error.message, "fix": error.fix}}
    notes += form.notes
    report = inspect_adapter(folder, BaseGeometry(**request["geometry"]), limits, root=form.root)
    if report.manifest is not None and resolve_patterns(folder, report.manifest, form.root):
        notes.append(f"{CONFIG_FILE} is kept with the modules that its patterns stand for")
    answer: dict[str, Any] = {"report": {**report.to_json(), "notes": notes}, "folder": str(folder)}
    if report.ok:
        answer["digest"] = adapter_digest(folder_digests(folder))
    return answer


def digest_problem(name: str, announced: str, found: str) -> dict[str, str]:
    return {
        "code": "digest_mismatch",
        "message": f"{name} arrived with the SHA-256 {found}, but {announced} was announced.",
        "fix": "It was damaged on the way, or changed after the digest was taken: upload it again.",
    }


if __name__ == "__main__":
    main()
