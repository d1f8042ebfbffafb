"""Multipart forms with files, sent without holding a file in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.errors import CliError

CHUNK_BYTES = 1 << 20
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Part:
    """A file of a form: its name, its bytes, and a function that reads it from the beginning."""

    name: str
    size: int
    read: Callable[[], Iterator[bytes]]


def file_part(path: Path) -> Part:
    name = path.name.encode(errors="replace").decode()
    for character, escaped in (('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):  # as browsers write a file's name
        name = name.replace(character, escaped)
    size = path.stat().st_size
    return Part(name, size, lambda: read_file(path, size))


def read_file(path: Path, size: int) -> Iterator[bytes]:
    """Yield the `size` bytes of a file. Raises CliError if it cannot be read or became shorter."""
    try:
        with path.open("rb") as file:
            while size and (chunk := file.read(min(size, CHUNK_BYTES))):
                yield chunk
                size -= len(chunk)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror or error}.", code="not_read") from error
    if size:
        raise CliError(f"{path} became shorter while it was sent.", "Send it when nothing writes to it.")


def send_form(
    client: Client, address: str, fields: Mapping[str, str], files: str, parts: Sequence[Part], progress: Progress
) -> Any:
    """POST a form below the tenant's address and return the JSON of its response.

    `files` is the name of the field that holds the parts.
    """
    boundary = uuid.uuid4().hex
    texts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items()]
    start = "".join(texts).encode(errors="replace")
    files_of_form = [(_header(boundary, files, part), part) for part in parts]
    end = f"--{boundary}--\r\n".encode()
    length = len(start) + sum(len(header) + part.size + 2 for header, part in files_of_form) + len(end)

    def body() -> Iterator[bytes]:
        yield start
        for header, part in files_of_form:
            yield header
            yield from part.read()
            yield b"\r\n"
        yield end

    def counted() -> Iterator[bytes]:
        sent = 0
        for chunk in body():
            yield chunk
            sent += len(chunk)
            progress(sent, length)

    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    with client.send("POST", client.tenant_path(address), kind, counted(), length) as response:
        return client.parse(response)


def _header(boundary: str, field: str, part: Part) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{field}"; filename="{part.name}"'
    return f"--{boundary}\r\n{disposition}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()
