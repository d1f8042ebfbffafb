"""Tables, money and a progress bar for a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

WIDTH = 28


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as what is in them; numbers to the right."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in [list(heading), *texts]) for index in range(len(heading))]
    numeric = [bool(rows) and all(isinstance(row[index], int) for row in rows) for index in range(len(heading))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(list(heading)), *map(line, texts)])


def money(micros: int, currency: str | None) -> str:
    return f"{micros / 1e6:,.2f} {currency}" if currency else "–"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def write(pages: Iterable[bytes], path: str) -> None:
    """To a file; "-" is standard output."""
    if path == "-":
        for page in pages:
            sys.stdout.buffer.write(page)
        sys.stdout.flush()
        return
    first = next(iterator := iter(pages), b"")  # a refusal leaves no empty file behind
    with Path(path).open("wb") as file:
        for page in chain([first], iterator):
            file.write(page)


class ProgressBar:
    """On standard error, and only when a person looks at it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._shown = 0.0
        self._visible = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._visible or (now - self._shown < 0.1 and done < total):
            return
        self._shown = now
        filled = int(WIDTH * done / total)
        rate = done / max(now - self._began, 1e-3)
        bar = "█" * filled + "░" * (WIDTH - filled)
        figures = f"{done * 100 // total:3d}%  {size(done)} of {size(total)}  {size(rate)}/s "
        sys.stderr.write(f"\r{self._label} {bar} {figures}")
        if done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()
