"""Matching of base model names. Without Django, because the child process that opens uploads imports it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Suffixes of copies in another type, or by a trainer: these are the same model.
_COPY = re.compile(r"(-unsloth)?(-(bnb-)?[48]bit|-gptq.*|-awq.*|-fp8.*|-bf16|-hf)$", re.ASCII)

# A Windows drive before a path.
_DRIVE = re.compile(r"^[a-z]:", re.ASCII)

# Names that identify no model: `demo/model`, a trainer's output, a snapshot of the Hub's cache, a drive's root.
_NO_NAME = re.compile(r"(base[-_]?)?model|base|weights|output|final|checkpoint(-\d+)?|[0-9a-f]{40}|\.*", re.ASCII)


def is_one_of(named: str, names: Iterable[str]) -> bool:
    return _plain(named) in {_plain(name) for name in names}


def says_nothing(named: str) -> bool:
    return _NO_NAME.fullmatch(_plain(named)) is not None


def choose_base(named: str, names: Mapping[str, list[str]]) -> str | None:
    """Return the digest of the single base model that the name fits, from names by digest; None if none or several."""
    if says_nothing(named):
        return None
    fitting = [digest for digest, known in names.items() if is_one_of(named, known)]
    return fitting[0] if len(fitting) == 1 else None


def _plain(name: str) -> str:
    """Return the last part of a Hub name or path; a Windows path may begin with a drive."""
    path = _DRIVE.sub("", name.strip().lower()).replace("\\", "/")
    return _COPY.sub("", path.rstrip("/").rpartition("/")[2])
