"""The forms in which commands print: JSON, tables, money, sizes, files and a progress bar."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from lorikeet_cli.errors import CliError

# Characters of the progress bar.
BAR_WIDTH = 28
# Seconds between two drawings of the progress bar.
REDRAW_S = 0.1
# A cell with a number, and possibly one word of a unit.
_NUMBER = re.compile(r"-?[\d.,]+( [A-Za-z%]+)?|–|")


@dataclass(frozen=True)
class Output:
    """The result of a command: the API's own response, which `--json` prints, and the text for a person."""

    body: Any = None
    text: str = ""


def say(text: str) -> None:
    """Print a note for the person at the terminal, on standard error."""
    print(text, file=sys.stderr, flush=True)


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as aligned columns; columns of numbers, also with a unit, are aligned to the right."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else plain(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in [list(heading), *texts]) for index in range(len(heading))]
    numeric = [bool(rows) and all(_NUMBER.fullmatch(line[index]) for line in texts) for index in range(len(heading))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(list(heading)), *map(line, texts)])


def plain(text: str, keep: str = "") -> str:
    """Return the text without line breaks and terminal escapes, except for the characters of `keep`."""
    return "".join(character if character.isprintable() or character in keep else " " for character in text)


def part_note(rows: Sequence[object], total: int, order: str = "the newest first") -> None:
    """Say that a list is longer than what is printed."""
    if len(rows) < total:
        say(f"{len(rows):,} of {total:,}, {order}; --limit N or --all shows more.")


def money(micros: int | None, currency: str | None) -> str:
    """Return an amount with its currency: with two decimals, or as many as an amount below one needs; "–" if it is not
    known.
    """
    if not currency or micros is None:
        return "–"
    decimals = f"{micros / 1e6:,.6f}".rstrip("0")
    if abs(micros) < 1_000_000 and len(decimals.partition(".")[2]) > 2:
        return f"{decimals} {currency}"
    return f"{micros / 1e6:,.2f} {currency}"


def moment(at: str) -> str:
    """Return a time of the API, which is in UTC, to the second and with its zone: 2026-05-04T10:00:00Z."""
    return at[:19] + "Z"


def duration(seconds: float) -> str:
    """Return a time in milliseconds, seconds, minutes or hours."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length in (("s", 60), ("min", 60)):
        if seconds < 2 * length:
            return f"{seconds:.1f} {unit}"
        seconds /= length
    return f"{seconds:,.1f} h"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def write(chunks: Iterable[bytes], path: str) -> None:
    """Write a download to a file, or to standard output if `path` is "-".

    The file appears when it is complete: a download that fails leaves what was there. Raises CliError.
    """
    if path == "-":
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        return
    first = next(iterator := iter(chunks), b"")  # a refused request touches no file
    target = Path(path)
    partial = target.with_name(f"{target.name}.part") if target.is_file() or not target.exists() else target
    try:
        with partial.open("wb") as file:
            for chunk in chain([first], iterator):
                file.write(chunk)
        if partial != target:
            partial.replace(target)
    except BaseException as error:
        if partial != target:
            with suppress(OSError):
                partial.unlink()
        if isinstance(error, OSError):
            raise CliError(f"{path} cannot be written: {error.strerror or error}.", code="not_written") from None
        raise


class ProgressBar:
    """A bar on standard error, drawn only if that is a terminal."""

    def __init__(self, label: str) -> None:
        self._label = plain(label)
        self._began = time.monotonic()
        self._drawn = 0.0
        self._visible = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._visible or (now - self._drawn < REDRAW_S and done < total):
            return
        self._drawn = now
        filled = int(BAR_WIDTH * done / total)
        rate = done / max(now - self._began, 1e-3)
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        figures = f"{done * 100 // total:3d}%  {size(done)} of {size(total)}  {size(rate)}/s "
        sys.stderr.write(f"\r{self._label} {bar} {figures}")
        if done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()
