"""Result rows of the benchmarks, one figure a line in the form that README.md describes, and their shared arguments."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
H200_BANDWIDTH = 4.2e12  # bytes a second, read and written, of a copy in its memory
H200_MATRIX_RATE = 784e12  # bf16 operations a second of a product of 8192 cubed, measured on an H200
Row = dict[str, Any]


def parser_of(description: str | None, *, out: bool = False, dry: bool = False) -> argparse.ArgumentParser:
    """Return a parser whose help is the script's docstring.

    Args:
        description: the script's `__doc__`.
        out: add `--out`, for scripts that keep rows only on request.
        dry: add `--dry`, for scripts that always append to their file in `results`.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if out:
        made.add_argument("--out", type=Path, help="file that result rows are appended to; without it they are printed")
    if dry:
        made.add_argument("--dry", action="store_true", help="print only; write no result rows")
    return made


class Rows:
    """A writer that appends figures to a file as they are measured; without a file it only prints them."""

    def __init__(self, path: Path | None, workload: str, model: str, *, gpus: int = 1, **settings: Any) -> None:
        self._path = path
        self._workload = workload
        self._model = model
        self._gpus = gpus
        self._settings = settings

    def add(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        floor: float | None = None,
        system: str = "lorikeet",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        beside = f"  {value / floor:.2f} x floor {floor:.3g}" if floor else ""
        if settings and "gb_per_s" in settings:
            beside += f"  {settings['bytes'] / 1e6:.2f} MB, {settings['gb_per_s']:.0f} GB/s"
        print(f"{system:10} {case:28} {metric:18} {value:10.2f} {unit}{beside}", flush=True)
        if self._path is None:
            return
        import torch  # slow, and no benchmark of the platform needs it

        entry = row(
            self._workload,
            case,
            metric,
            value,
            unit,
            {**self._settings, **(settings or {})},
            model=self._model,
            system=system,
            floor=floor,
            digits=3,
        )
        entry["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        entry["gpus"] = min(torch.cuda.device_count(), self._gpus)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


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
    """Return the row of a figure that was measured without a GPU."""
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


def append(results: Path | None, rows: Iterable[Row], *, dry: bool = False) -> None:
    """Print the rows, and add them to the file, if there is one and it is not a dry run."""
    lines = [json.dumps(one) for one in rows]
    print(*lines, sep="\n", flush=True)
    if results is not None and not dry:
        with results.open("a") as file:
            file.writelines(line + "\n" for line in lines)


@cache
def bandwidth() -> float:
    """Return the bytes a second, read and written, of a copy on this GPU, measured; without one, an H200's."""
    import torch  # slow, and no benchmark of the platform needs it

    if not torch.cuda.is_available():
        return H200_BANDWIDTH
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _seconds_of(lambda: target.copy_(source))


@cache
def matrix_rate() -> float:
    """Return the bf16 operations a second of a product of 8192 cubed on this GPU, measured; without one, an H200's."""
    import torch  # slow, and no benchmark of the platform needs it

    if not torch.cuda.is_available():
        return H200_MATRIX_RATE
    left, right, product = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    return 2 * 8192**3 / _seconds_of(lambda: torch.mm(left, right, out=product))


def _seconds_of(launch: Callable[[], object]) -> float:
    """Return the seconds of one of twenty launches on the GPU, the quickest of five such series."""
    import torch  # slow, and no benchmark of the platform needs it

    series: list[float] = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            launch()
        end.record()
        end.synchronize()
        series.append(begin.elapsed_time(end) / 20 / 1000)
    torch.cuda.empty_cache()
    return min(series)


def traffic(num_bytes: float, us: float) -> dict[str, float]:
    """Return settings of a kernel's row: the bytes that it must move, and the rate that its time comes to."""
    return {"bytes": num_bytes, "gb_per_s": round(num_bytes / us / 1e3, 1)}


def machine() -> Row:
    """Return the settings of every row: the processor, its cores, and the machine's load."""
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 2)}


def cpu_name() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


@cache
def commit() -> str:
    """Return the measured commit: LORIKEET_COMMIT, else the checkout's, with `-dirty` if it has changes."""
    if known := os.environ.get("LORIKEET_COMMIT"):
        return known
    describe = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
