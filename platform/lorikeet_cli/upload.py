"""Sending an adapter, with progress, and following what becomes of it."""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client, parsed
from lorikeet_cli.errors import CliError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What the server converts: shards with their index, torch.save's file, mlx-lm's.
OTHER_WEIGHTS = (
    "adapter_model-*-of-*.safetensors",
    f"{WEIGHTS}.index.json",
    "adapter_model.bin",
    "adapters.safetensors",
)
# In which the adapter's own chat template may lie.
TEMPLATES = ("chat_template.jinja", "tokenizer_config.json", "chat_template.json")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_DEPTH = 4  # folders above an adapter, as in archives
CHUNK = 1 << 20
POLL_S = 0.5
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Part:
    header: bytes
    file: Path
    size: int


def files_of(path: Path) -> list[Path]:
    """An adapter's config and weights in a folder, with its chat template if it has one, or an archive of them.

    Of a folder without them those of the only folder within that has them, such as a training's checkpoint.
    """
    if path.is_file() and path.name.endswith(ARCHIVES):
        return [path]
    if path.is_dir():
        folder = path if _weights_in(path) and (path / CONFIG).is_file() else _adapter_within(path)
        return [folder / CONFIG, *_weights_in(folder), *(folder / n for n in TEMPLATES if (folder / n).is_file())]
    raise CliError(
        f"{path} is neither a folder nor an archive.", "Give the folder of a PEFT adapter, or a .zip or .tar.gz of it."
    )


def _weights_in(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    return sorted(file for pattern in OTHER_WEIGHTS for file in folder.glob(pattern))


def _adapter_within(path: Path) -> Path:
    """The only folder with an adapter among those that lie highest below ``path``. Raises ``CliError``."""
    for depth in range(1, MAX_DEPTH + 1):
        configs = path.glob("/".join(["*"] * depth + [CONFIG]))
        folders = [config.parent for config in configs if config.is_file() and _weights_in(config.parent)]
        if len(folders) == 1:
            note = f"Sending the adapter of {folders[0].relative_to(path)}: there is none beside or above it in {path}."
            print(note, file=sys.stderr, flush=True)
            return folders[0]
        if folders:
            listed = ", ".join(sorted(str(folder.relative_to(path)) for folder in folders))
            raise CliError(
                f"{path} holds more than one adapter: {listed}.",
                "Give one of these folders; of a training's checkpoints usually the one with the highest number.",
            )
    missing = [CONFIG] * (not (path / CONFIG).is_file()) + [WEIGHTS] * (not _weights_in(path))
    raise CliError(f"{path} lacks {' and '.join(missing)}.", "Save the adapter with PEFT's save_pretrained.")


def send(client: Client, path: Path, name: str, description: str, base: str, progress: Progress) -> Any:
    """The upload as the server recorded it. ``base``: the name of the base model; "" lets the server find it."""
    files = files_of(path)
    form = {"name": name, "description": description, "base_model": base, "sha256": _digests(files)}
    return send_form(client, "uploads", form, "files", files, progress)


def send_form(
    client: Client, address: str, form: Mapping[str, str], field: str, files: Sequence[Path], progress: Progress
) -> Any:
    """POST the form with the files below the tenant's address."""
    boundary = uuid.uuid4().hex
    fields = b"".join(_field(boundary, key, value) for key, value in form.items())
    parts = [_part(boundary, field, file) for file in files]
    end = f"--{boundary}--\r\n".encode()
    length = len(fields) + sum(len(part.header) + part.size + 2 for part in parts) + len(end)
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    body = _body(fields, parts, end, length, progress)
    with client.send("POST", client.tenant_path(address), headers, body, length) as answer:
        return parsed(answer)


def _digests(files: list[Path]) -> str:
    """As `sha256sum` prints them: the server refuses what arrives damaged."""
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}")
    return "\n".join(lines)


def _field(boundary: str, name: str, value: str) -> bytes:
    return f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


def _part(boundary: str, field: str, file: Path) -> Part:
    disposition = f'Content-Disposition: form-data; name="{field}"; filename="{file.name}"'
    header = f"--{boundary}\r\n{disposition}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return Part(header.encode(), file, file.stat().st_size)


def _body(fields: bytes, parts: list[Part], end: bytes, length: int, progress: Progress) -> Iterator[bytes]:
    sent = 0
    for piece in _pieces(fields, parts, end):
        yield piece
        sent += len(piece)
        progress(sent, length)


def _pieces(fields: bytes, parts: list[Part], end: bytes) -> Iterator[bytes]:
    yield fields
    for part in parts:
        yield part.header
        with part.file.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
        yield b"\r\n"
    yield end


def decided(client: Client, upload: Any, say: Callable[[str], None]) -> Any:
    """Wait until the server has validated it. Raises CliError with every problem found."""
    said = ""
    while upload["state"] in ("received", "validating"):
        now = _doing(upload)
        if now != said:
            said = now
            say(now)
        time.sleep(POLL_S)
        upload = client.tenant("GET", f"uploads/{upload['id']}")
    if upload["state"] == "cancelled":
        raise CliError(upload["reason"]["message"], upload["reason"]["fix"])
    if upload["state"] == "refused":
        raise CliError(*_refusal(upload))
    return upload


def _doing(upload: Any) -> str:
    if upload["state"] == "validating":
        fetched = upload.get("fetched_bytes")
        if fetched is None:
            return "validating"
        # In tenths, as each is a line.
        return f"fetching, {10 * fetched // upload['bytes']}0 %" if upload["bytes"] else "fetching"
    return f"waiting: {upload['reason']['message']}" if upload["reason"] else "waiting for validation"


def _refusal(upload: Any) -> tuple[str, str]:
    problems = (upload["report"] or {}).get("problems") or [upload["reason"]]
    lines = [f"  - {problem['message']}\n    {problem['fix']}" for problem in problems]
    return "The adapter was refused:\n" + "\n".join(lines), ""


def ready(client: Client, adapter: str, number: int, say: Callable[[str], None]) -> Any:
    """Wait until a host has it."""
    said = ""
    while True:
        version = client.tenant("GET", f"adapters/{adapter}/versions/{number}")
        if version["state"] == "ready":
            return version
        if version["state"] == "failed":
            error = version["error"] or {}
            raise CliError(error.get("message", "It could not be staged."), error.get("fix", ""))
        phases = ", ".join(sorted(f"{place['phase']} on {place['host']}" for place in version["placements"]))
        if phases and phases != said:
            said = phases
            say(phases)
        time.sleep(POLL_S)
