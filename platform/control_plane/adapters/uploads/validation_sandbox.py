"""The child process that opens uploaded files: `python -m control_plane.adapters.uploads.validation_sandbox`.

It has no Django, no database, no secrets and hard limits on processor time, memory and file size, so that hostile bytes
can do no harm. The process that is started loads the modules, and is forked for each socket that comes over its
standard input; so each check begins in the same state. A supervisor between the two reports how the check ended, and
kills it when the worker no longer waits for its answer.

A socket receives one line, a JSON request, and returns one JSON answer and after a NUL `{returncode, stderr}`.
Request: `{files: {name: path}, sha256: {name: hex}, into, bases: [{names, geometry, limits, chat_template_digest,
added_tokens}], adapter_base, cpu_s, memory_bytes}`: the base models that the adapter may belong to, and the digest of
the base of the adapter's other versions.
Answer: `{"report": ..., "base": digest, "chat_template": null or {source, tool_source, special_tokens},
"chat_template_digest": ...}`, with the adapter in `into`, or `{"problem": {code, message, fix}}`;
`{"disk": errno}` if the disk failed, which is not a fault of the files.
"""

import contextlib
import errno
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from control_plane.core.processor import wait_for_others

# Niceness of every check that takes long; the request's `nice` is added.
NICE = 5
# Seconds of processor time for which a tenant's only check keeps its worker's priority: a small adapter's check takes
# 15 ms, which became a quarter of a second where all processors were busy.
QUICK_S = 0.1
# Bytes of the end of stderr that are reported.
STDERR_BYTES = 4000


def main() -> None:
    """Fork a check for each socket, until the worker that started this process ends."""
    wait_for_others()
    # Before the limits: while OpenBLAS loads, it retries for ever to allocate memory that the limits refuse.
    import_module("lora_engine.peft_format")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors leave no zombies
    with socket.socket(fileno=sys.stdin.fileno()) as control:
        while True:
            _, files, _, _ = socket.recv_fds(control, 1, 1)
            if not files:
                return
            with socket.socket(fileno=files[0]) as job:
                if not os.fork():
                    try:
                        keep(job)
                    finally:
                        os._exit(0)


def keep(job: socket.socket) -> None:
    """Fork the check and report how it ended. The check is killed when the other side closes the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    errors, into = os.pipe()
    child = os.fork()
    if not child:
        check(job, into)
    os.close(into)
    waiting, stderr = select.poll(), b""
    waiting.register(errors, select.POLLIN)
    waiting.register(job, 0)  # poll reports a hang-up without being requested
    while True:
        ready = {file for file, _ in waiting.poll()}
        piece = os.read(errors, STDERR_BYTES) if errors in ready else b""
        stderr = (stderr + piece)[-STDERR_BYTES:]
        if job.fileno() in ready or not piece:  # the worker has closed the socket, or the check ended
            break
    os.kill(child, signal.SIGKILL)  # has no effect if it has ended
    returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ending = {"returncode": returncode, "stderr": stderr.decode(errors="replace")}
    with contextlib.suppress(OSError):
        job.sendall(b"\0" + json.dumps(ending).encode())


def check(job: socket.socket, errors: int) -> NoReturn:
    """Run one request, with the socket as standard input and output."""
    returncode = 1
    try:
        os.setsid()
        for file, standard in ((job.fileno(), 0), (job.fileno(), 1), (errors, 2)):
            os.dup2(file, standard)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if text := open(0, closefd=False).readline():  # noqa: SIM115
            request = json.loads(text)
            give_way(request["nice"])
            limit_resources(request["cpu_s"], request["memory_bytes"], largest_limits(request)["max_bytes"])
            with open(1, "w", closefd=False) as answer:
                json.dump(validate(request), answer)
        returncode = 0
    except MemoryError:
        os.write(2, b"MemoryError")
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(returncode)


def give_way(nice: int) -> None:
    """Lower the priority at once if other uploads of the tenant wait, else only if the check takes long."""
    if nice:
        lower_priority(NICE + nice)
    else:
        signal.signal(signal.SIGPROF, lambda *_: lower_priority(NICE))
        signal.setitimer(signal.ITIMER_PROF, QUICK_S)


def lower_priority(nice: int) -> None:
    """Lower the priority of this process and of its session, as Linux shares the processor among sessions first."""
    lowered = os.nice(nice)
    wait_for_others()
    with contextlib.suppress(OSError):  # without autogroups, `nice` alone counts
        Path("/proc/self/autogroup").write_text(str(lowered))


def limit_resources(cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    """Lower this process's limits permanently."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def validate(request: dict[str, Any]) -> dict[str, Any]:
    """Unpack and inspect the files. Faults of the files or the disk are in the answer; an exception is a bug."""
    from control_plane.adapters.registry.base_names import says_nothing
    from lora_engine.peft_format import (
        CONFIG_FILE,
        AdapterLimits,
        BaseGeometry,
        FormatError,
        UploadError,
        file_digest,
        inspect_adapter,
        read_adapter_template,
        resolve_patterns,
        to_peft_form,
        try_template,
        unpack_upload,
    )

    limits, notes = AdapterLimits(**largest_limits(request)), list[str]()
    files = {name: Path(path) for name, path in request["files"].items()}
    try:
        for name, announced in request.get("sha256", {}).items():
            if (actual := file_digest(files[name]).removeprefix("sha256:")) != announced:
                raise UploadError(
                    "digest_mismatch",
                    f"{name} arrived with the SHA-256 {actual}, but {announced} was announced.",
                    "It was damaged on the way, or changed after the digest was taken: upload it again.",
                )
        folder = unpack_upload(files, Path(request["into"]), limits, notes=notes)
        template = read_adapter_template(folder)
        form = to_peft_form(folder, limits)
        notes += form.notes
        named = named_in(folder / CONFIG_FILE)
        chosen = choose(request, named)
        if chosen is None and says_nothing(named):
            chosen = only_fitting(request["bases"], folder, form.root)
            if chosen is not None:
                notes.append(f"the configuration names no base model; by its shapes it fits only {chosen['names'][0]}")
        if chosen is None:
            names = ", ".join(base["names"][0] for base in request["bases"])
            raise UploadError(
                "base_model_required",
                "Several base models are served, and the adapter's configuration names none of them.",
                f"Upload it again and name the base model that it was trained for: {names}.",
            )
        if template is not None and template.source_digest == chosen.get("chat_template_digest"):
            template = None  # the usual case: it was saved with the base's tokenizer
        if template is not None:
            tried = try_template(template)
            notes.append(
                f"chats are rendered by the adapter's own template ({template.file}), which accepts {tried.takes}"
            )
            notes += unknown_ends(tried.ends, chosen)
        base = BaseGeometry(**chosen["geometry"])
        report = inspect_adapter(folder, base, AdapterLimits(**chosen["limits"]), root=form.root)
        if report.manifest is not None:
            notes += [layer.note(base.vocab_size) for layer in report.manifest.embedding_layers]
            if resolve_patterns(folder, report.manifest, base, form.root):
                notes.append(f"{CONFIG_FILE} is kept with the modules that its patterns stand for")
        notes += report.notes
        return {
            "report": {**report.to_json(), "notes": notes},
            "base": base.digest,
            "chat_template": template.to_json() if template else None,
            "chat_template_digest": template.digest if template else "",
        }
    except (UploadError, FormatError) as error:
        shutil.rmtree(request["into"], ignore_errors=True)
        return {"problem": {"code": error.code, "message": error.message, "fix": error.fix}}
    except OSError as error:
        return {"disk": error.errno or errno.EIO}


def largest_limits(request: dict[str, Any]) -> dict[str, Any]:
    """Return the largest limits of the possible base models, before the adapter's one is known."""
    largest: dict[str, Any] = max((base["limits"] for base in request["bases"]), key=lambda limits: limits["max_rank"])
    return {**largest, "max_bytes": max(base["limits"]["max_bytes"] for base in request["bases"])}


def choose(request: dict[str, Any], named: str) -> dict[str, Any] | None:
    """Return the adapter's base: the only one, the one it names, or that of the adapter's other versions."""
    from control_plane.adapters.registry.base_names import choose_base

    bases: dict[str, dict[str, Any]] = {base["geometry"]["digest"]: base for base in request["bases"]}
    if len(bases) == 1:
        return next(iter(bases.values()))
    digest = choose_base(named, {digest: base["names"] for digest, base in bases.items()})
    return bases.get(digest or request["adapter_base"])


def only_fitting(bases: list[dict[str, Any]], folder: Path, root: str) -> dict[str, Any] | None:
    """Return the only base model to which the adapter's tensors fit, None if there are none or several."""
    from lora_engine.peft_format import AdapterLimits, BaseGeometry, inspect_adapter

    by_shape: dict[BaseGeometry, list[dict[str, Any]]] = {}
    for base in bases:
        shape = BaseGeometry(**{**base["geometry"], "name": "", "digest": ""})
        by_shape.setdefault(shape, []).append(base)
    fitting: list[dict[str, Any]] = []
    for shape, alike in by_shape.items():
        if inspect_adapter(folder, shape, AdapterLimits(**alike[0]["limits"]), root=root).ok:
            fitting += alike
    return fitting[0] if len(fitting) == 1 else None


def named_in(config: Path) -> str:
    """Return the base model that a configuration names; "" if none, or if it is damaged, which the report states."""
    try:
        named = json.loads(config.read_bytes()).get("base_model_name_or_path")
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""
    return named if isinstance(named, str) else ""


def unknown_ends(ends: tuple[str, ...], base: dict[str, Any]) -> list[str]:
    """Return a note about the template's end tokens that the base model's tokenizer does not have."""
    known = base.get("added_tokens") or ends  # an empty list means unknown
    unknown = [end for end in ends if end not in known]
    if not unknown:
        return []
    ends_with = f"the template ends answers with {' and '.join(unknown)}, which is no token of {base['names'][0]}"
    stop = f"stop={json.dumps(unknown)}"
    return [f"{ends_with}: send {stop} in requests, or train with the base model's template; else answers may not end"]


if __name__ == "__main__":
    main()
