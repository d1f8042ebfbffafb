"""What the Hugging Face Hub says of a repository, by its HTTP protocol. No client library: its connections are its own,
and must be ours, which go to public addresses only (ADR 0072)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from control_plane.adapters.imports.problems import SourceProblemError, check_status
from control_plane.config import current
from control_plane.http import egress
from lora_engine.peft_format import CONFIG_FILE, is_weights, recognise

MOST_BYTES = 4 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


@dataclass(frozen=True)
class HubFile:
    name: str
    bytes: int
    url: str


@dataclass(frozen=True)
class HubListing:
    """A repository's adapter at one commit, which does not change any more."""

    commit: str
    files: list[HubFile]


def list_adapter(repository: str, revision: str, headers: Mapping[str, str], folder: str = "") -> HubListing:
    """The adapter at the top of the repository, or in a folder of it.

    Raises SourceProblemError, EgressError, UrlRefusedError.
    """
    base = current().hub_url.rstrip("/")
    address = f"{base}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
    said = _json(address, headers)
    commit, siblings = said.get("sha"), said.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise SourceProblemError("hub_answer", "The Hub's answer names no commit and no files.", "Try again later.")
    sizes = {entry["rfilename"]: _size(entry) for entry in siblings if isinstance(entry, dict) and _named(entry)}
    address = f"{base}/{repository}/resolve/{commit}"
    if folder:
        inside = {
            name.removeprefix(f"{folder}/"): size for name, size in sizes.items() if name.startswith(f"{folder}/")
        }
        return HubListing(commit, _chosen(inside, f"{address}/{quote(folder)}", f"{repository}/{folder}"))
    return HubListing(commit, _chosen(sizes, address, repository))


def _chosen(sizes: dict[str, int], base: str, place: str) -> list[HubFile]:
    """The adapter at the top of these files, which lie in ``place``."""
    names = [name for name in sizes if name == CONFIG_FILE or is_weights(name)]
    if CONFIG_FILE not in names or not any(map(is_weights, names)):
        known = recognise(list(sizes))
        below = next((name for name in sizes if name.endswith(f"/{CONFIG_FILE}")), None)
        if known is None and below:
            known = (
                "missing_file",
                f"The adapter lies in a folder ({below}).",
                f"Import hub:{place}/{below.rpartition('/')[0]}.",
            )
        raise SourceProblemError(
            *(known or ("missing_file", f"{place} holds no {CONFIG_FILE} with weights.", "Check the name of it."))
        )
    if "adapter_model.safetensors" in names:
        names = [CONFIG_FILE, "adapter_model.safetensors"]
    return [HubFile(name, sizes[name], f"{base}/{quote(name)}") for name in sorted(names)]


def _named(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("rfilename"), str)


def _size(entry: Mapping[str, Any]) -> int:
    size = entry.get("size")
    return size if type(size) is int and 0 <= size < 1 << 48 else 0


def _json(address: str, headers: Mapping[str, str]) -> dict[str, Any]:
    with egress.get(address, headers, allow_private=current().import_allow_private) as answer:
        check_status(answer.status_code)
        body = b""
        for piece in answer.iter_raw(1 << 16):
            body += piece
            if len(body) > MOST_BYTES:
                break
    try:
        said = json.loads(body) if len(body) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise SourceProblemError("hub_answer", "The Hub's answer is not what its protocol says.", "Try again later.")
    return said
