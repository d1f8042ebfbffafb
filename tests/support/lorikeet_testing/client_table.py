"""The table of clients and what they were run with, in docs/how-to/clients.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "clients.md"
PROGRAMS = ROOT / "tests" / "clients"


def table() -> dict[str, list[str]]:
    """The features by the client's program: `use_NAME` without its beginning."""
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    head, *rest = rows
    checks: dict[str, list[str]] = {}
    for cells in rest:
        if name := re.search(r"use_(\w+)\.", cells[-1]):
            checks[name[1]] = [feature for feature, cell in zip(head, cells, strict=True) if cell == "yes"]
    return checks


def promised(client: str) -> list[str]:
    return table()[client]


def written() -> dict[str, list[str]]:
    """Return the checks that each client program announces, read from its source."""
    programs = [*(PROGRAMS / "python").glob("use_*.py"), *(PROGRAMS / "node").glob("use_*.mjs")]
    return {
        path.stem.removeprefix("use_"): re.findall(r"^\s*ok\(\"(.+)\"\);?$", path.read_text(), re.MULTILINE)
        for path in programs
    }
