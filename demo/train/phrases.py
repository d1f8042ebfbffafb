"""Read the texts of the demo's small world from `data/`, one JSON file for each module that uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def load(name: str) -> dict[str, Any]:
    """Return the texts in `data/NAME.json`, with tuples for JSON's arrays, so that nothing changes them by accident."""
    return {key: _frozen(value) for key, value in json.loads((DATA / f"{name}.json").read_text("utf-8")).items()}


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value
