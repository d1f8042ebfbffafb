"""A tar reader for untrusted archives: forward only, bounded memory, ordinary files only.

Python's ``tarfile`` reads extended headers and sparse maps of any size into memory, and takes minutes for some archives
of a kilobyte (ADR 0010). This reader knows ustar, the PAX ``path`` record and GNU long names, which is all that tar
programs write for plain files, and refuses the rest by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

BLOCK = 512
# Bytes that an extended header may have.
_MAX_EXTENDED_BYTES = 256 << 10
# Extended headers that may precede one member.
_MAX_EXTENDED_HEADERS = 4
_MAGIC = (b"ustar\0", b"ustar ", bytes(6))  # POSIX, GNU, and older than both
_OCTAL = re.compile(rb"[0-7]{0,12}")
_BLOCK_BYTES = 1 << 20


class TarError(Exception):
    """The stream is no tar archive, or one with members that are refused; the message says which."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def skip(self, size: int, /) -> None:
        """Skip ``size`` bytes, or fewer at the end. The stream bounds the cost of that."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an archive. ``kind`` is "file", "folder", "link" or "special"."""

    name: str
    kind: str


_KINDS = {b"0": "file", b"\0": "file", b"7": "file", b"5": "folder", b"1": "link", b"2": "link"}


class TarReader:
    """An iterator over members; ``blocks()`` yields the current one's bytes, unread ones are skipped."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[ArchiveMember]:
        name, extended = None, 0
        while header := self._next_header():
            kind = header[156:157]
            size = _number(header[124:136])
            if kind in (b"x", b"g", b"L"):
                extended += 1
                name = _extended_name(kind, self._extended(size)) or name
                if extended > _MAX_EXTENDED_HEADERS:
                    raise TarError(f"a member has more than {_MAX_EXTENDED_HEADERS} extended headers")
                continue
            member = ArchiveMember(name or _plain_name(header), _KINDS.get(kind, "special"))
            name, extended = None, 0
            self._begin(size if member.kind == "file" else 0)
            yield member

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest of the current member."""
        while self._left:
            block = self._stream.read(min(self._left, _BLOCK_BYTES))
            if not block:
                raise TarError("it ends in the middle of a file")
            self._left -= len(block)
            yield block

    def _begin(self, size: int) -> None:
        self._left = size
        self._padding = -size % BLOCK

    def _next_header(self) -> bytes:
        """Return the next member's header, or empty bytes at the end of the archive."""
        self._stream.skip(self._left + self._padding)
        self._left = self._padding = 0
        header = self._stream.read(BLOCK)
        if header == bytes(BLOCK):
            return b""
        if not header:
            raise TarError("it ends without the mark of an archive's end: it was cut off")
        # The checksum is a sum, so swapped bytes keep it; the magic is checked too.
        if len(header) < BLOCK or not _checksum_fits(header) or header[257:263] not in _MAGIC:
            raise TarError("a member's header is damaged")
        return header

    def _extended(self, size: int) -> bytes:
        if size > _MAX_EXTENDED_BYTES:
            raise TarError(f"an extended header has {size} bytes")
        data = self._exactly(size)
        self._exactly(-size % BLOCK)
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._stream.read(size - len(data))
            if not more:
                raise TarError("it ends in the middle of a header")
            data += more
        return data


def _checksum_fits(header: bytes) -> bool:
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    return total == _number(header[148:156])


def _number(field: bytes) -> int:
    digits = field.replace(b"\0", b" ").strip()
    if not _OCTAL.fullmatch(digits):
        raise TarError("a member's header holds a size that is no octal number")
    return int(digits or b"0", 8)


def _plain_name(header: bytes) -> str:
    name = _text(header[0:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _extended_name(kind: bytes, data: bytes) -> str | None:
    if kind == b"L":
        return _text(data)
    if kind == b"g":
        return None
    records = dict(_pax_records(data))
    if any(key.startswith("GNU.sparse") for key in records) or "size" in records:
        raise TarError("it holds sparse or oversized members")
    return records.get("path")


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield key and value of PAX records, ``"<length> <key>=<value>\\n"``, whose length counts the whole record."""
    while data:
        length_text, space, _ = data.partition(b" ")
        if not space or not length_text.isdigit() or len(length_text) > 6:
            raise TarError("an extended header is damaged")
        length = int(length_text)
        record = data[len(length_text) + 1 : length]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or length > len(data):
            raise TarError("an extended header is damaged")
        yield _text(key), _text(value[:-1])
        data = data[length:]


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")
