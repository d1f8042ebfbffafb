"""Result rows: one figure a line, in the form that README.md describes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import torch

BANDWIDTH = 4.2e12  # bytes a second of a device copy, read and written, measured on an H200
MATRIX_RATE = 784e12  # bf16 operations a second of a product of 8192 cubed, measured on an H200


class Rows:
    """Appends figures to a file as they are measured; prints them only, without one."""

    def __init__(self, path: Path | None, workload: str, model: str, *, gpus: int = 1, **settings: Any) -> None:
        self._path = path
        self._workload = workload
        self._model = model
        self._gpus = gpus
        self._settings = settings
        self._commit = os.environ.get("LORIKEET_COMMIT") or commit()

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
        row = {
            "workload": self._workload,
            "model": self._model,
            "system": system,
            "case": case,
            "metric": metric,
            "value": round(value, 3),
            "unit": unit,
            "floor": None if floor is None else round(floor, 3),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "gpus": min(torch.cuda.device_count(), self._gpus),
            "commit": self._commit,
            "date": date.today().isoformat(),
            "settings": {**self._settings, **(settings or {})},
        }
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def traffic(num_bytes: float, us: float) -> dict[str, float]:
    """Settings of a kernel's row: the bytes that it must move, and the rate that its time comes to."""
    return {"bytes": num_bytes, "gb_per_s": round(num_bytes / us / 1e3, 1)}


@cache
def commit() -> str:
    """Of the working tree; empty where there is no git."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()
