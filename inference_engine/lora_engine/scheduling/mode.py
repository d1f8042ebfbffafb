"""Mode policies: whether a step runs on the base's pristine weights or on a copy with one adapter merged in.

Tokens of the merged adapter need no LoRA kernels. Everybody else in the batch pays twice, for the own delta and for
taking the merged one back out: ``B_i A_i - B_m A_m``. So nobody is kept out of a batch for the mode's sake, and
dLoRA's credits, which guard those whom a merged batch leaves behind, have nobody to guard.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from .registry import Registry

PRISTINE = ""


class Mode(Protocol):
    """Decides, step by step, how adapters are applied."""

    name: str

    def choose(self, tokens: Counter[str], merged: str) -> str:
        """The digest to have merged in a step with so many tokens of each adapter ("" is the base), or PRISTINE.

        ``merged`` is what the last step had. Switching costs time.
        """

    def ran(self, merged: bool, tokens: int, seconds: float) -> None:
        """A step processed ``tokens`` in ``seconds``, a switch before it included."""


modes: Registry[Mode] = Registry("mode")


@modes.register("unmerged")
class Unmerged:
    """Base weights stay pristine; every adapter runs as its low-rank delta."""

    name = "unmerged"

    def choose(self, tokens: Counter[str], merged: str) -> str:
        return PRISTINE

    def ran(self, merged: bool, tokens: int, seconds: float) -> None:
        pass


@modes.register("merged")
class Merged:
    """The batch's most used adapter is merged; it stays while anybody uses it."""

    name = "merged"

    def choose(self, tokens: Counter[str], merged: str) -> str:
        return merged if merged and tokens[merged] else dominant(tokens)

    def ran(self, merged: bool, tokens: int, seconds: float) -> None:
        pass


@modes.register("auto")
class Auto:
    """dLoRA's thresholds (Wu et al., OSDI 2024, algorithm 1): merge what is nearly the whole batch until it is not.

    Both thresholds are tuned at each switch back: if tokens per second were higher merged, with the switches counted
    in, than without before, merging begins sooner and lasts longer; else the opposite.
    """

    name = "auto"

    ENTER, LEAVE = 1.0, 15 / 27  # shares of the batch, as published
    STEP, FACTOR = 0.05, 1.1
    PATIENCE = 4  # steps in a row that must agree before weights are merged

    def __init__(self) -> None:
        self.enter, self.leave = self.ENTER, self.LEAVE
        self._agreed = 0
        self._candidate = PRISTINE
        self._merged = False
        self._rates = {False: _Rate(), True: _Rate()}

    def choose(self, tokens: Counter[str], merged: str) -> str:
        wanted = self._wanted(tokens, merged)
        if merged and wanted != merged:
            self._tune()
        if bool(wanted) != self._merged:
            self._merged = bool(wanted)
            self._rates[self._merged] = _Rate()
        return wanted

    def ran(self, merged: bool, tokens: int, seconds: float) -> None:
        self._rates[merged].add(tokens, seconds)

    def _wanted(self, tokens: Counter[str], merged: str) -> str:
        total = tokens.total()
        if merged and tokens[merged] >= self.leave * total:
            return merged
        candidate = dominant(tokens)
        if not candidate or tokens[candidate] < self.enter * total:
            candidate = PRISTINE
        self._agreed = self._agreed + 1 if candidate == self._candidate else 1
        self._candidate = candidate
        return candidate if self._agreed >= self.PATIENCE else PRISTINE

    def _tune(self) -> None:
        merged, pristine = self._rates[True].per_second, self._rates[False].per_second
        if not merged or not pristine:
            return
        if merged > pristine:
            self.enter = max(self.leave, self.enter - self.STEP)
            self.leave = max(0.1, self.leave / self.FACTOR)
        else:
            self.enter = min(1.0, self.enter * self.FACTOR)
            self.leave = min(self.enter, self.leave + self.STEP)


class _Rate:
    def __init__(self) -> None:
        self._tokens = 0
        self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self._tokens += tokens
        self._seconds += seconds

    @property
    def per_second(self) -> float:
        return self._tokens / self._seconds if self._seconds else 0.0


def dominant(tokens: Counter[str]) -> str:
    """The adapter with the most tokens, the first of equals by digest; PRISTINE if there is none."""
    counted = [(count, digest) for digest, count in tokens.items() if digest and count]
    return min(counted, key=lambda item: (-item[0], item[1]))[1] if counted else PRISTINE
