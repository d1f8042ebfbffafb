"""The question and answer that every skill returns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from demo.train.phrases import load

_TEXTS = load("exchange")

Rng = random.Random


@dataclass(frozen=True)
class Exchange:
    """A question and its answer. `data` is the answer as JSON fields, `short` in a word or two."""

    topic: str
    question: str
    answer: str
    short: str
    data: dict[str, Any]
    subject: str = ""
    exact: bool = False
    again: Callable[[Rng], Exchange] | None = field(default=None, compare=False)


NUMBER_WORDS = _TEXTS["number_words"]
