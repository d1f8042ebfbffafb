"""Combinations, `a+b:0.5`: several adapters of a tenant as one model, the weighted sum of their deltas.

No adapter name contains `+` or `:`. A base model's name may: the whole name then means the base model.
"""

from __future__ import annotations

import re

from control_plane.core.errors import LorikeetError
from lora_engine.peft_format import LARGEST_WEIGHT, MAX_PARTS

_WEIGHT = re.compile(r"-?[0-9]{1,2}(?:\.[0-9]{1,4})?", re.ASCII)


class CombinationError(LorikeetError):
    """A combination that is not valid."""

    def __init__(self, message: str, fix: str, *, code: str = "invalid_value") -> None:
        super().__init__(code, message, fix, param="model", status=400)


def is_combination(name: str) -> bool:
    return "+" in name or ":" in name


def read_combination(name: str) -> list[tuple[str, float]]:
    """Return each adapter's name and weight. Raises ``CombinationError``."""
    parts = [_read(part) for part in name.split("+")]
    if len(parts) > MAX_PARTS:
        raise CombinationError(
            f"The model combines {len(parts)} adapters.", f"Combine at most {MAX_PARTS} adapters in one request."
        )
    names = [name for name, _ in parts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise CombinationError(f'The model names "{twice}" twice.', "Name each adapter once, with its weight.")
    return parts


def _read(part: str) -> tuple[str, float]:
    name, colon, text = part.partition(":")
    weight = float(text) if _WEIGHT.fullmatch(text) else 0.0 if colon else 1.0
    if not name or not 0 < abs(weight) <= LARGEST_WEIGHT:
        raise CombinationError(
            f'"{part}" is not an adapter with a weight.',
            'Write "name" or "name:0.5", with a weight other than 0 between '
            f"-{LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, with at most 4 decimals; join them by +.",
        )
    return name, weight
