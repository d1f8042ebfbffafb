"""An adapter's identity is its content: one digest over the digests of its two files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


def adapter_digest(file_digests: Mapping[str, str]) -> str:
    """Return ``"sha256:<hex>"`` over canonical JSON of the two files' SHA-256.

    Values may have the ``sha256:`` prefix. Raises ``ValueError`` if a file is missing or extra, or a value is no
    SHA-256.
    """
    if set(file_digests) != {CONFIG_FILE, WEIGHTS_FILE}:
        raise ValueError(f"an adapter is exactly {CONFIG_FILE} and {WEIGHTS_FILE}, not {sorted(file_digests)}")
    plain = {name: value.removeprefix("sha256:") for name, value in file_digests.items()}
    for name, value in plain.items():
        if not _HEX.fullmatch(value):
            raise ValueError(f"the digest of {name} must be 64 lower-case hex characters")
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return ``"sha256:<hex>"`` of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def folder_digests(folder: Path) -> dict[str, str]:
    """Return file name → digest of the two files in ``folder``."""
    return {name: file_digest(folder / name) for name in (CONFIG_FILE, WEIGHTS_FILE)}
