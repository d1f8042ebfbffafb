"""Reads the checksums that an uploader announces, in the format of `sha256sum`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from control_plane.core.errors import LorikeetError

HEX = re.compile(r"[0-9a-fA-F]{64}\Z")
_LINE = re.compile(r"(?P<hex>[0-9a-fA-F]{64}) [ *](?P<path>.+)")
_FIX = 'Send what "sha256sum adapter_config.json adapter_model.safetensors" prints, or leave the field out.'


def read_announced(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 in hex by file name. Raises LorikeetError (400)."""
    announced = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        match = _LINE.fullmatch(line)
        if match is None:
            raise _bad("The field sha256 contains a line that is not a digest with a file name.")
        name = PurePosixPath(match["path"]).name
        if name not in names:
            raise _bad(f'The field sha256 names "{name[:160]}", which is not one of the files.')
        announced[name] = match["hex"].lower()
    return announced


def _bad(message: str) -> LorikeetError:
    return LorikeetError("bad_digest", message, _FIX, param="sha256")
