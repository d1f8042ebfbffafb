"""How much memory this process may use: the machine's, or less where a container is given less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_V2, _V1 = "memory.max", "memory/memory.limit_in_bytes"


def memory_bytes(root: Path = Path("/")) -> int:
    """The least of the machine's memory and the limits of the control groups that this process is in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    groups = root / "sys/fs/cgroup"
    own = groups / _own_group(root).lstrip("/")
    for folder in (own, *own.parents):
        yield from _limit(folder / _V2)
        if folder == groups:
            break
    yield from _limit(groups / _V1)


def _own_group(root: Path) -> str:
    """Of the unified hierarchy; in a container that is often the root, as it sees it."""
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
