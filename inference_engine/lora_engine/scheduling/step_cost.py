"""How long a step takes, learned from the steps that ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MEMORY = 0.998  # weight that an observation keeps with each newer one
_REFIT_EVERY = 8
_OUTLIER = 4.0  # a step this many times as long as predicted did something else too (a graph capture, a page fault)
_RIDGE = 0.1  # lower, and rates that change together (a constant, a steady batch) wander with the noise
# Sizes of a usual step, so that the four coefficients are of like size.
_SCALE = np.array([1.0, 64.0, 512.0, 65536.0])
_FIRST = np.array([5e-3, 1e-3, 1e-2, 1e-3])


@dataclass(slots=True)
class Work:
    """What a step does: sequences that decode, prompt tokens, and cached tokens that the decoding ones read."""

    decoding: float = 0.0
    prompt_tokens: float = 0.0
    context_tokens: float = 0.0

    def add(self, tokens: int, computed: int, times: int = 1) -> None:
        """A sequence's ``tokens`` after ``computed`` cached ones; ``times=-1`` subtracts them."""
        if tokens > 1:
            self.prompt_tokens += times * tokens
        else:
            self.decoding += times
            self.context_tokens += times * computed


class LinearCost:
    """Seconds as a sum of rates times features: least squares that forgets slowly.

    Each fit is pulled a little towards the one before, so that a rate which recent steps say nothing about stays.
    """

    def __init__(self, first: np.ndarray, scale: np.ndarray) -> None:
        """``scale``: sizes of usual features; ``first``: the seconds thought to be due to each at that size."""
        self.observed = 0
        self._scale = scale
        self._rates = first
        self._squares = np.zeros((len(scale), len(scale)))
        self._products = np.zeros(len(scale))
        self._new: list[tuple[float, ...]] = []  # since the last fit: features, and seconds

    @property
    def calibrated(self) -> bool:
        return self.observed >= 4 * _REFIT_EVERY

    @property
    def rates(self) -> np.ndarray:
        """Seconds for one unit of each feature."""
        rates: np.ndarray = self._rates / self._scale
        return rates

    def predict(self, features: tuple[float, ...]) -> float:
        return float(self._rates @ (np.array(features) / self._scale))

    def observe(self, features: tuple[float, ...], seconds: float) -> None:
        self._new.append((*features, seconds))
        self.observed += 1
        if self.observed % _REFIT_EVERY == 0:
            self._take_in()
            self._refit()

    def _take_in(self) -> None:
        observed = np.array(self._new)
        features, seconds = observed[:, :-1] / self._scale, observed[:, -1]
        if self.calibrated:
            seconds = np.minimum(seconds, _OUTLIER * features @ self._rates)
        age = np.arange(len(observed))[::-1]
        # In relative terms: a millisecond matters more to a short step.
        weighted = features * (_MEMORY**age / np.maximum(seconds, 1e-5) ** 2)[:, None]
        self._squares = _MEMORY ** len(observed) * self._squares + weighted.T @ features
        self._products = _MEMORY ** len(observed) * self._products + weighted.T @ seconds
        self._new.clear()

    def _refit(self) -> None:
        ridge = _RIDGE * np.maximum(np.diag(self._squares), 1.0)
        fitted = np.linalg.solve(self._squares + np.diag(ridge), self._products + ridge * self._rates)
        self._rates = np.maximum(fitted, 0.0)


class StepCost:
    """Seconds of a step as a constant plus a rate for each kind of work."""

    def __init__(self) -> None:
        self._cost = LinearCost(_FIRST, _SCALE)

    @property
    def calibrated(self) -> bool:
        return self._cost.calibrated

    @property
    def prompt_token(self) -> float:
        """Seconds that one prompt token adds."""
        return float(self._cost.rates[2])

    def seconds(self, work: Work) -> float:
        return self._cost.predict((1.0, work.decoding, work.prompt_tokens, work.context_tokens))

    def sequences_within(self, seconds: float, context_each: float) -> float:
        """How many sequences a step of nothing but decoding may have, of so many cached tokens each."""
        constant, sequence, _prompt, context = self._cost.rates
        return float((seconds - constant) / max(sequence + context * context_each, 1e-9))

    def observe(self, work: Work, seconds: float) -> None:
        self._cost.observe((1.0, work.decoding, work.prompt_tokens, work.context_tokens), seconds)
