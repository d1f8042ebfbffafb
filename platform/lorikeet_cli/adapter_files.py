"""The files of an upload: those that were named, or an archive of the adapter in a folder.

The server decides what an adapter is. This module only avoids sending what the server would ignore, such as the
optimizer's state and the other checkpoints of a training. If a folder holds no adapter, or several, the archive holds
the names of its files without their contents, and the server's refusal explains what is wrong.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lorikeet_cli.errors import CliError
from lorikeet_cli.forms import Part, file_part, read_file
from lorikeet_cli.output import say

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Weights that the server converts: shards with their index, torch.save's file, mlx-lm's.
OTHER_WEIGHTS = (
    "adapter_model-*-of-*.safetensors",
    f"{WEIGHTS}.index.json",
    "adapter_model.bin",
    "adapters.safetensors",
)
# Files that can hold the adapter's chat template.
TEMPLATES = ("chat_template.jinja", "tokenizer_config.json", "chat_template.json")
# Folders of the weights before training (PiSSA, OLoRA …), which the server subtracts.
INITIAL = re.compile(r"(.*[._-])?(init|initial)", re.ASCII | re.IGNORECASE)
SUFFIX = re.compile(r"\.(zip|tar|tar\.gz|tgz)$", re.IGNORECASE)
# Folders above an adapter, as the server counts them in archives.
MAX_DEPTH = 4
# Names of files in an archive without contents; the server reads up to 1,000.
MAX_NAMES = 900


def parts_of(paths: Sequence[Path]) -> list[Part]:
    """Return the files to send. Raises CliError if a path does not exist."""
    if len(paths) == 1 and paths[0].is_dir():
        return [_archive(paths[0])]
    for path in paths:
        if path.is_dir():
            raise CliError(f"{path} is a folder among files.", "Give one folder, or files.", code="mixed_upload")
        if not path.is_file():
            raise CliError(f"{path} does not exist.", "Give the folder of an adapter, or its files.", code="no_file")
    return [file_part(path) for path in paths]


def default_name(path: Path) -> str:
    """Return the name of the adapter in a folder or archive, with hyphens for characters that no adapter's name has."""
    stem = SUFFIX.sub("", path.resolve().name).lower()
    return re.sub(r"[^a-z0-9._]+", "-", stem).strip("._-")


def digests(parts: Sequence[Part]) -> str:
    """Return the SHA-256 of each part as `sha256sum` prints them: the server refuses files that arrive damaged."""
    lines = []
    for part in parts:
        digest = hashlib.sha256()
        for chunk in part.read():
            digest.update(chunk)
        lines.append(f"{digest.hexdigest()}  {part.name}")
    return "\n".join(lines)


def _archive(folder: Path) -> Part:
    """Return a tar archive of the folder's adapter, which is packed while it is sent."""
    adapters, seen = _search(folder)
    if len(adapters) == 1:
        files = _adapter_files(adapters[0])
        if adapters[0] != folder:
            say(f"Sending {adapters[0].relative_to(folder)}: the only adapter in {folder}, none lies above it.")
        around = [adapters[0], *([adapters[0].parent] if adapters[0] != folder else [])]
        for initial in (path for parent in around for path in sorted(parent.iterdir()) if _is_initial(path)):
            files += _adapter_files(initial) if initial != adapters[0] else []
        entries = [(path, path.stat().st_size) for path in files]
    else:
        entries = [(path, 0) for path in seen[:MAX_NAMES]]
    if not entries:
        raise CliError(
            f"{folder} holds no files of an adapter.",
            "Give the folder that PEFT's save_pretrained wrote.",
            code="empty",
        )
    members = [(_tar_header(path.relative_to(folder).as_posix(), size), path, size) for path, size in entries]
    end = bytes(2 * tarfile.BLOCKSIZE)
    length = len(end) + sum(len(header) + size + -size % tarfile.BLOCKSIZE for header, _, size in members)

    def read() -> Iterator[bytes]:
        for header, path, size in members:
            yield header
            yield from read_file(path, size)
            yield bytes(-size % tarfile.BLOCKSIZE)
        yield end

    return Part(f"{default_name(folder) or 'adapter'}.tar", length, read)


def _search(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders with an adapter that lie highest, and the files that were seen until then."""
    level, seen, initial = [folder], list[Path](), list[Path]()
    for depth in range(MAX_DEPTH + 2):  # the server refuses an adapter on the last level by its own error
        entries = [path for each in level for path in sorted(each.iterdir())]
        seen += [path for path in entries if path.is_file()]
        complete = [each for each in level if _is_complete(each)]
        initial += [each for each in complete if INITIAL.fullmatch(each.name) and each != folder]
        adapters = [each for each in complete if each not in initial]
        if adapters:
            return adapters if depth <= MAX_DEPTH else [], seen
        level = [path for path in entries if path.is_dir() and not path.name.startswith(".")]
    return initial, seen


def _is_complete(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and bool(_weights(folder))


def _is_initial(path: Path) -> bool:
    return bool(INITIAL.fullmatch(path.name)) and path.is_dir() and _is_complete(path)


def _weights(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    return sorted(file for pattern in OTHER_WEIGHTS for file in folder.glob(pattern))


def _adapter_files(folder: Path) -> list[Path]:
    return [folder / CONFIG, *_weights(folder), *(folder / name for name in TEMPLATES if (folder / name).is_file())]


def _tar_header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT, errors="replace")
