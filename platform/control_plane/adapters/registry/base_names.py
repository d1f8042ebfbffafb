"""Which base model a name means, as far as a name says. Without Django: the child that opens uploads asks it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Copies in another type or under a trainer's name are the same model.
_COPY = re.compile(r"(-unsloth)?(-(bnb-)?[48]bit|-gptq.*|-awq.*|-fp8.*|-bf16|-hf)$", re.ASCII)

# A drive of Windows, before a path on it.
_DRIVE = re.compile(r"^[a-z]:", re.ASCII)

# A folder that names no model: `demo/model`, a trainer's output, a snapshot of the Hub's cache, a drive's root.
_NO_NAME = re.compile(r"(base[-_]?)?model|base|weights|output|final|checkpoint(-\d+)?|[0-9a-f]{40}|\.*", re.ASCII)


def is_one_of(named: str, names: Iterable[str]) -> bool:
    return _plain(named) in {_plain(name) for name in names}


def says_nothing(named: str) -> bool:
    return _NO_NAME.fullmatch(_plain(named)) is not None


def choose_base(named: str, names: Mapping[str, list[str]]) -> str | None:
    """The digest of the one base model that the name fits, of the digests and names of all; None if none or several."""
    if says_nothing(named):
        return None
    fitting = [digest for digest, known in names.items() if is_one_of(named, known)]
    return fitting[0] if len(fitting) == 1 else None


def _plain(name: str) -> str:
    """The last part of a Hub name or of a path, also of one of Windows, which may begin with a drive."""
    path = _DRIVE.sub("", name.strip().lower()).replace("\\", "/")
    return _COPY.sub("", path.rstrip("/").rpartition("/")[2])
