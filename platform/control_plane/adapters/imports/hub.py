"""What the Hugging Face Hub says of a repository, by its HTTP protocol. No client library: its connections are its own,
and must be ours, which go to public addresses only (ADR 0010)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from control_plane.adapters.imports.listing import RemoteFile, adapter_of
from control_plane.adapters.imports.problems import Origin, SourceProblemError, check_answer
from control_plane.core.config import current
from control_plane.core.http import egress

MOST_BYTES = 4 << 20
LONGEST_FILE_NAME = 1024
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True)
class HubListing:
    """A repository's adapter at one commit, which does not change any more."""

    commit: str
    files: list[RemoteFile]


def commit_at(repository: str, revision: str, headers: Mapping[str, str]) -> str:
    """The commit that a revision means now. Raises as `list_adapter` does."""
    commit = _json(_address(repository, revision), headers).get("sha")
    if not isinstance(commit, str) or not is_commit(commit):
        raise SourceProblemError("hub_answer", "The Hub's answer names no commit.", "Try again later.")
    return commit


def is_commit(revision: str) -> bool:
    return _COMMIT.fullmatch(revision) is not None


def _address(repository: str, revision: str) -> str:
    return f"{current().hub_url.rstrip('/')}/api/models/{repository}/revision/{quote(revision, safe='')}"


def list_adapter(repository: str, revision: str, headers: Mapping[str, str], folder: str = "") -> HubListing:
    """The adapter at the top of the repository, or in a folder of it.

    Raises SourceProblemError, EgressError, UrlRefusedError.
    """
    base = current().hub_url.rstrip("/")
    said = _json(f"{_address(repository, revision)}?blobs=true", headers)
    commit, siblings = said.get("sha"), said.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise SourceProblemError("hub_answer", "The Hub's answer names no commit and no files.", "Try again later.")
    sizes = {entry["rfilename"]: _size(entry) for entry in siblings if isinstance(entry, dict) and _named(entry)}
    top, place = f"{base}/{repository}/resolve/{commit}/", f"hub:{repository}"
    if folder:
        sizes = {name.removeprefix(f"{folder}/"): size for name, size in sizes.items() if name.startswith(f"{folder}/")}
        top, place = f"{top}{quote(folder)}/", f"{place}/{folder}"
    return HubListing(commit, adapter_of(sizes, lambda name: top + quote(name), place, Origin.HUB))


def _named(entry: Mapping[str, Any]) -> bool:
    """What cannot be shown or stored (NUL, halves of surrogate pairs) is no name of a file."""
    name = entry.get("rfilename")
    return isinstance(name, str) and name.isprintable() and len(name) <= LONGEST_FILE_NAME


def _size(entry: Mapping[str, Any]) -> int:
    size = entry.get("size")
    return size if type(size) is int and 0 <= size < 1 << 48 else 0


def _json(address: str, headers: Mapping[str, str]) -> dict[str, Any]:
    allow_private = current().import_allow_private
    answer = egress.get_document(address, headers, MOST_BYTES, allow_private=allow_private)
    check_answer(answer.status, Origin.HUB, answer.headers)
    try:
        said = json.loads(answer.body) if answer.body is not None else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise SourceProblemError("hub_answer", "The Hub's answer is not what its protocol says.", "Try again later.")
    return said
