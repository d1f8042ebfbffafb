"""Attributes device time to requests: each is charged a share of every step, by the tokens processed for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lora_engine.scheduling.sequence import Chunk, RequestState


class DeviceTime:
    """Splits each step's time among its requests. The share of a request that has ended is charged to none.

    Steps follow one another on the device. One that was launched while another ran begins when that
    one ends; otherwise it begins with its launch. Times are seconds of the engine's clock.
    """

    def __init__(self) -> None:
        self._last_end = 0.0
        self._launched: deque[tuple[float, list[tuple[RequestState, int]]]] = deque()

    def launched(self, chunks: Iterable[Chunk], at: float) -> None:
        """A step was given to the device. At most one other may still be running there."""
        self._launched.append((at, [(chunk.sequence.parent, chunk.tokens) for chunk in chunks]))

    def ended(self, at: float) -> float:
        """The oldest launched step is done; how long it kept the device busy.

        Called before the requests that it completes are closed.
        """
        launched, shares = self._launched.popleft()
        busy = max(0.0, at - max(launched, self._last_end))
        self._last_end = at
        tokens = sum(count for _, count in shares)
        for state, count in shares:
            if not state.ended:
                state.device_s += busy * count / tokens
        return busy
