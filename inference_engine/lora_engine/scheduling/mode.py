"""Mode policies: how a batch's adapters are applied."""

from __future__ import annotations

from typing import Protocol

from .registry import Registry


class Mode(Protocol):
    """Decides, step by step, how adapters are applied."""

    name: str


modes: Registry[Mode] = Registry("mode")


@modes.register("unmerged")
class Unmerged:
    """Base weights stay pristine; every adapter runs as its low-rank delta."""

    name = "unmerged"
