"""Reads and writes the headers of tus 1.0.0 (https://tus.io/protocols/resumable-upload)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from control_plane.adapters.registry.models import NAME, NAME_FORM
from control_plane.adapters.uploads.announced_digests import HEX
from control_plane.core.errors import LorikeetError

VERSION = "1.0.0"
EXTENSIONS = "creation,creation-with-upload,checksum,expiration,termination"
ALGORITHMS = ("sha256", "sha1")
BODY_TYPE = "application/offset+octet-stream"
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_LONGEST = {"filename": 255, "description": 500, "base_model": 200}


class TusError(LorikeetError):
    """A request that violates the protocol."""


@dataclass(frozen=True)
class Checksum:
    """The checksum that the bytes of one request must have."""

    algorithm: str
    digest: bytes

    def hasher(self) -> Any:
        return hashlib.new(self.algorithm, usedforsecurity=False)

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> Self | None:
        """Return the checksum of the headers, None without one. Raises TusError (400)."""
        if "upload-checksum" not in headers:
            return None
        algorithm, _, value = headers["upload-checksum"].partition(" ")
        try:
            digest = base64.b64decode(value, validate=True)
        except binascii.Error:
            digest = b""
        if algorithm not in ALGORITHMS or len(digest) != hashlib.new(algorithm, usedforsecurity=False).digest_size:
            raise TusError(
                "bad_checksum_header",
                "The Upload-Checksum header names no known algorithm or has a digest of the wrong length.",
                f"Send one of {', '.join(ALGORITHMS)}, a space, and the digest in base64.",
            )
        return cls(algorithm, digest)


@dataclass(frozen=True)
class Metadata:
    """The metadata of a new upload."""

    adapter: str
    description: str
    filename: str
    sha256: str | None
    base_model: str

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> Self:
        """Return the metadata of the headers. Raises TusError (400)."""
        pairs = _pairs(headers.get("upload-metadata", ""))
        adapter, filename = pairs.get("adapter", ""), pairs.get("filename", "")
        if not NAME_FORM.match(adapter):
            raise _bad_metadata("adapter", str(NAME.message))
        if not filename.lower().endswith(ARCHIVES):
            raise _bad_metadata("filename", f"Send one archive whose name ends with {', '.join(ARCHIVES)}.")
        for name, longest in _LONGEST.items():
            if len(pairs.get(name, "")) > longest:
                raise _bad_metadata(name, f"Send at most {longest} characters.")
        sha256 = pairs.get("sha256")
        if sha256 is not None and not HEX.match(sha256):
            raise _bad_metadata("sha256", "Send the SHA-256 of the whole archive as 64 hex digits, or leave it out.")
        base_model = pairs.get("base_model", "")
        return cls(adapter, pairs.get("description", ""), filename, sha256.lower() if sha256 else None, base_model)


def number(headers: Mapping[str, str], name: str) -> int:
    """Return a header that must be a whole number. Raises TusError (400)."""
    text = headers.get(name.lower(), "")
    if not _NUMBER.match(text):
        raise TusError("bad_header", f"The header {name} must be a whole number.", "Send it in decimal digits.")
    return int(text)


_UNSERVED = {
    "upload-concat": ("concatenation", "Send the archive as one upload; it may be sent in any number of pieces."),
    "upload-defer-length": ("creation-defer-length", "Send the archive's size in Upload-Length."),
}


def refuse_unserved(headers: Mapping[str, str]) -> None:
    """Raise TusError (400) for the header of an unsupported extension that would change the meaning of the upload."""
    for name, (extension, fix) in _UNSERVED.items():
        if name in headers:
            title = name.title()
            raise TusError(
                "extension_not_served",
                f"{title} belongs to tus's extension {extension}, which is not served here.",
                fix,
                param=title,
            )


def require_version(headers: Mapping[str, str]) -> None:
    """Raise TusError (412) for another version of the protocol."""
    if headers.get("tus-resumable") != VERSION:
        raise TusError(
            "tus_version",
            f"The header Tus-Resumable must be {VERSION}.",
            "Use a tus 1.0 client, or send the header yourself.",
            status=412,
        )


def require_body_type(headers: Mapping[str, str]) -> None:
    """Raise TusError (415) for a body of another type."""
    if headers.get("content-type", "").partition(";")[0].strip() != BODY_TYPE:
        raise TusError(
            "unsupported_media_type", f"The body must have the type {BODY_TYPE}.", "Set Content-Type.", status=415
        )


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = pair.partition(" ")
        try:
            pairs[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _bad_metadata(key[:64], "Send each value as UTF-8 in base64.") from None
        if "\0" in pairs[key]:
            raise _bad_metadata(key[:64], "Leave out NUL characters.")
    return pairs


def _bad_metadata(name: str, fix: str) -> TusError:
    return TusError("bad_metadata", f'"{name}" in Upload-Metadata is missing or cannot be used.', fix, param=name)
