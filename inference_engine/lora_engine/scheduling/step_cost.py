"""The cost of a step in seconds is learned from the steps that ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MEMORY = 0.998  # factor on the weight of an observation with each newer one
# Steps between two fits of the cost model.
_REFIT_EVERY = 8
_OUTLIER = 4.0  # a step this many times longer than predicted included other work (a graph capture, a page fault)
_RIDGE = 0.1  # lower values let rates that change together (the constant, a steady batch) drift with the noise
# Usual sizes of the features, so that the four coefficients have similar sizes.
_SCALE = np.array([1.0, 64.0, 512.0, 65536.0])
# Seconds assumed for each feature at its usual size.
_FIRST = np.array([5e-3, 1e-3, 1e-2, 1e-3])


@dataclass(slots=True)
class Work:
    """The work of a step: decoding sequences, prompt tokens, and cached tokens that decoding sequences read."""

    decoding: float = 0.0
    prompt_tokens: float = 0.0
    context_tokens: float = 0.0

    def add(self, tokens: int, computed: int, times: int = 1) -> None:
        """Add a sequence's ``tokens`` after ``computed`` cached ones; ``times=-1`` subtracts them."""
        if tokens > 1:
            self.prompt_tokens += times * tokens
        else:
            self.decoding += times
            self.context_tokens += times * computed


class LinearCost:
    """A model of seconds as a sum of rates times features: least squares with slow forgetting.

    Each fit is pulled a little towards the last one, so that a rate without information in recent steps stays.
    """

    def __init__(self, first: np.ndarray, scale: np.ndarray) -> None:
        """Create the model. ``scale``: sizes of usual features; ``first``: seconds assumed for each at that size."""
        self.observed = 0
        self._scale = scale
        self._rates = first
        self._squares = np.zeros((len(scale), len(scale)))
        self._products = np.zeros(len(scale))
        self._new: list[tuple[float, ...]] = []  # features and seconds since the last fit

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
        # Weigh relative errors: a millisecond matters more in a short step.
        weighted = features * (_MEMORY**age / np.maximum(seconds, 1e-5) ** 2)[:, None]
        self._squares = _MEMORY ** len(observed) * self._squares + weighted.T @ features
        self._products = _MEMORY ** len(observed) * self._products + weighted.T @ seconds
        self._new.clear()

    def _refit(self) -> None:
        ridge = _RIDGE * np.maximum(np.diag(self._squares), 1.0)
        fitted = np.linalg.solve(self._squares + np.diag(ridge), self._products + ridge * self._rates)
        self._rates = np.maximum(fitted, 0.0)


class StepCost:
    """A model of a step's seconds: a constant plus a rate for each kind of work."""

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
        """Return how many sequences a pure decode step may have within ``seconds``, of ``context_each`` cached tokens
        each.
        """
        constant, sequence, _prompt, context = self._cost.rates
        return float((seconds - constant) / max(sequence + context * context_each, 1e-9))

    def observe(self, work: Work, seconds: float) -> None:
        self._cost.observe((1.0, work.decoding, work.prompt_tokens, work.context_tokens), seconds)
