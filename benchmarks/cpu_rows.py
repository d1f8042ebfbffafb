"""Result rows of benchmarks that need no GPU: one figure a line, in the form that README.md describes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


def machine() -> Row:
    """Settings that every row has: what it was measured on, and how busy that was."""
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 2)}


def row(
    workload: str,
    case: str,
    metric: str,
    value: float,
    unit: str,
    settings: Row,
    *,
    model: str | None = None,
    system: str = "lorikeet",
    floor: float | None = None,
    digits: int = 2,
) -> Row:
    return {
        "workload": workload,
        "model": model,
        "system": system,
        "case": case,
        "metric": metric,
        "value": round(value, digits),
        "unit": unit,
        "floor": None if floor is None else round(floor, digits),
        "gpu": None,
        "gpus": 0,
        "commit": commit(),
        "date": date.today().isoformat(),
        "settings": settings,
    }


def append(results: Path, rows: Iterable[Row], *, dry: bool = False) -> None:
    """Print the rows, and add them to the file unless it is a dry run."""
    lines = [json.dumps(one) for one in rows]
    print(*lines, sep="\n", flush=True)
    if not dry:
        with results.open("a") as file:
            file.writelines(line + "\n" for line in lines)


def commit() -> str:
    """The commit that is measured: LORIKEET_COMMIT, else the checkout's, with `-dirty` if it has changes."""
    if known := os.environ.get("LORIKEET_COMMIT"):
        return known
    describe = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
