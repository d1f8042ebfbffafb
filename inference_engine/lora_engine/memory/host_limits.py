"""The memory limit of this process: the machine's memory, or the limit of its container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_V2, _V1 = "memory.max", "memory/memory.limit_in_bytes"


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the minimum of the machine's memory and the limits of the process's control groups, in bytes."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    groups = root / "sys/fs/cgroup"
    current = groups / _process_group(root).lstrip("/")
    for folder in (current, *current.parents):
        yield from _limit(folder / _V2)
        if folder == groups:
            break
    yield from _limit(groups / _V1)


def _process_group(root: Path) -> str:
    """Return the process's group in the unified hierarchy; inside a container it is often the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")


def _limit(path: Path) -> Iterator[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return
    if text.isdecimal():  # "max" is none
        yield int(text)
