"""Selection of an adapter's files from a remote folder's listing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from control_plane.adapters.imports.problems import Origin, SourceProblemError
from lora_engine.peft_format import CONFIG_FILE, is_weights, recognise
from lora_engine.peft_format.adapter_template import MAX_TEMPLATE_FILE_BYTES, TEMPLATE_FILES

# Maximum number of folders that an error message names.
MAX_NAMED = 5
# Maximum number of files of one adapter; each is a request to its source.
MAX_FILES = 200


@dataclass(frozen=True)
class RemoteFile:
    name: str
    url: str
    bytes: int | None  # None if not known before the transfer
    of: Origin = Origin.ADDRESS
    tag: str = ""  # changes with the content; empty if the listing has none


def adapter_of(
    sizes: Mapping[str, int | None],
    url_of: Callable[[str], str],
    place: str,
    of: Origin,
    tags: Mapping[str, str] | None = None,
) -> list[RemoteFile]:
    """Return the adapter at the top of these files, whose names are relative to `place`. Raises SourceProblemError.

    `sizes`: in bytes, None if the listing has none.
    """
    names = [name for name in sizes if name == CONFIG_FILE or is_weights(name)]
    if CONFIG_FILE not in names or not any(map(is_weights, names)):
        known = recognise(list(sizes))
        below = sorted((name.rpartition("/")[0] for name in sizes if name.endswith(f"/{CONFIG_FILE}")), key=_in_order)
        # An archive beside a folder with an adapter is not why the import fails: name the folder.
        if below and (known is None or known[0] == "nested_archive"):
            known = _in_folders(below, place)
        raise SourceProblemError(
            *(known or ("missing_file", f"{place} holds no {CONFIG_FILE} with weights.", "Check the name of it."))
        )
    if "adapter_model.safetensors" in names:
        names = [CONFIG_FILE, "adapter_model.safetensors"]
    if len(names) > MAX_FILES:
        raise SourceProblemError(
            "too_many_files",
            f"The weights lie in {len(names) - 1} files.",
            f"Save the adapter in one file, or in at most {MAX_FILES - 1} (max_shard_size).",
        )
    names += [name for name in TEMPLATE_FILES if name in sizes and (sizes[name] or 0) <= MAX_TEMPLATE_FILE_BYTES]
    return [RemoteFile(name, url_of(name), sizes[name], of, (tags or {}).get(name, "")) for name in sorted(names)]


def _in_folders(folders: list[str], place: str) -> tuple[str, str, str]:
    """Return the error for adapters in subfolders. Of a training's checkpoints it suggests the last one."""
    fix = f"Import {place}/{folders[-1]}"
    if len(folders) == 1:
        return "missing_file", f"The adapter lies in the folder {folders[0]}.", f"{fix}."
    more = f" and {len(folders) - MAX_NAMED} more" if len(folders) > MAX_NAMED else ""
    named = ", ".join(folders[-MAX_NAMED:])
    return "missing_file", f"Adapters lie in the folders {named}{more}.", f"{fix}, or another of these."


def _in_order(folder: str) -> list[tuple[str, int]]:
    """Return a sort key that orders checkpoint-5 before checkpoint-50."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D+|^)([0-9]{0,18})", folder)]
