"""Reads repositories of the Hugging Face Hub over its HTTP API. Without its client library, which opens its
own connections: these must go through `egress`, to public addresses only (ADR 0010)."""

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

# Maximum bytes of one answer of the Hub.
MAX_BYTES = 4 << 20
# Maximum number of characters of a file's name.
LONGEST_FILE_NAME = 1024
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True)
class HubListing:
    """A repository's adapter at one commit, which never changes."""

    commit: str
    files: list[RemoteFile]


def commit_at(repository: str, revision: str, headers: Mapping[str, str]) -> str:
    """Return the commit that a revision means now. Raises as `list_adapter` does."""
    commit = _json(_address(repository, revision), headers).get("sha")
    if not isinstance(commit, str) or not is_commit(commit):
        raise SourceProblemError("hub_answer", "The Hub's answer names no commit.", "Try again later.")
    return commit


def is_commit(revision: str) -> bool:
    return _COMMIT.fullmatch(revision) is not None


def _address(repository: str, revision: str) -> str:
    return f"{current().hub_url.rstrip('/')}/api/models/{repository}/revision/{quote(revision, safe='')}"


def list_adapter(repository: str, revision: str, headers: Mapping[str, str], folder: str = "") -> HubListing:
    """Return the adapter at the top of the repository, or in a folder of it.

    Raises SourceProblemError, EgressError, UrlRefusedError.
    """
    base = current().hub_url.rstrip("/")
    document = _json(f"{_address(repository, revision)}?blobs=true", headers)
    commit, siblings = document.get("sha"), document.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise SourceProblemError("hub_answer", "The Hub's answer names no commit and no files.", "Try again later.")
    if is_commit(revision) and commit != revision:
        raise SourceProblemError("hub_answer", "The Hub's answer is about another commit.", "Try again later.")
    sizes = {entry["rfilename"]: _size(entry) for entry in siblings if isinstance(entry, dict) and _named(entry)}
    top, place = f"{base}/{repository}/resolve/{commit}/", f"hub:{repository}"
    if folder:
        sizes = {name.removeprefix(f"{folder}/"): size for name, size in sizes.items() if name.startswith(f"{folder}/")}
        top, place = f"{top}{quote(folder)}/", f"{place}/{folder}"
    return HubListing(commit, adapter_of(sizes, lambda name: top + quote(name), place, Origin.HUB))


def _named(entry: Mapping[str, Any]) -> bool:
    """Return True for a name that can be shown and stored: without NUL and halves of surrogate pairs."""
    name = entry.get("rfilename")
    return isinstance(name, str) and name.isprintable() and len(name) <= LONGEST_FILE_NAME


def _size(entry: Mapping[str, Any]) -> int | None:
    size = entry.get("size")
    return size if type(size) is int and 0 <= size < 1 << 48 else None


def _json(address: str, headers: Mapping[str, str]) -> dict[str, Any]:
    allow_private = current().import_allow_private
    answer = egress.get_document(address, headers, MAX_BYTES, allow_private=allow_private)
    check_answer(answer.status, Origin.HUB, answer.headers)
    try:
        document = json.loads(answer.body) if answer.body is not None else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SourceProblemError("hub_answer", "The Hub's answer is not as documented.", "Try again later.")
    return document
