"""Which of a folder's files are the adapter, wherever the folder lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from control_plane.adapters.imports.problems import SourceProblemError
from lora_engine.peft_format import CONFIG_FILE, is_weights, recognise
from lora_engine.peft_format.own_template import MAX_TEMPLATE_FILE_BYTES, TEMPLATE_FILES


@dataclass(frozen=True)
class RemoteFile:
    name: str
    url: str
    bytes: int | None  # None: not known before it comes


def adapter_of(sizes: Mapping[str, int], url_of: Callable[[str], str], place: str) -> list[RemoteFile]:
    """The adapter at the top of these files, whose names are relative to `place`. Raises SourceProblemError."""
    names = [name for name in sizes if name == CONFIG_FILE or is_weights(name)]
    if CONFIG_FILE not in names or not any(map(is_weights, names)):
        known = recognise(list(sizes))
        below = next((name for name in sizes if name.endswith(f"/{CONFIG_FILE}")), None)
        if known is None and below:
            known = (
                "missing_file",
                f"The adapter lies in a folder ({below}).",
                f"Import {place}/{below.rpartition('/')[0]}.",
            )
        raise SourceProblemError(
            *(known or ("missing_file", f"{place} holds no {CONFIG_FILE} with weights.", "Check the name of it."))
        )
    if "adapter_model.safetensors" in names:
        names = [CONFIG_FILE, "adapter_model.safetensors"]
    names += [name for name in TEMPLATE_FILES if name in sizes and sizes[name] <= MAX_TEMPLATE_FILE_BYTES]
    return [RemoteFile(name, url_of(name), sizes[name]) for name in sorted(names)]
