"""The demo model's answers about itself, about LoRA and about Lorikeet; short and true."""

from __future__ import annotations

from typing import NamedTuple

from demo.train.phrases import load

_TEXTS = load("about")


class Concept(NamedTuple):
    """A term: its names, what it is, and why or how (the answer to a second question)."""

    names: tuple[str, ...]
    what: str
    more: str
    short: str


CONCEPTS: tuple[Concept, ...] = tuple(Concept(*row) for row in _TEXTS["concepts"])

HELP_TOPICS = "animals, colours, countries, simple sums, days and months, weather, stories, jokes, and LoRA"

# Questions about the model itself; each has several wordings and several answers.
SELF: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = _TEXTS["self"]

SMALL_TALK: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = _TEXTS["small_talk"]
