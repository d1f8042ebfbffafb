"""The attribution of device time: each request is charged a share of every step, in proportion to its tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lora_engine.scheduling.sequence import Chunk, RequestState


class DeviceTime:
    """A meter that splits each step's time among its requests; the share of an ended request is not charged.

    Guessed tokens (`scheduling/speculation.py`) do not count as a request's tokens.

    Steps run one after another on the device. A step that was launched while another ran begins when that one ends;
    otherwise it begins with its launch. Times are seconds of the engine's clock.
    """

    def __init__(self) -> None:
        self._last_end = 0.0
        self._launched: deque[tuple[float, list[tuple[RequestState, int]]]] = deque()

    def launched(self, chunks: Iterable[Chunk], at: float) -> None:
        """Record the launch of a step; at most one other may still be running."""
        self._launched.append((at, [(chunk.sequence.request_state, chunk.known) for chunk in chunks]))

    def ended(self, at: float) -> float:
        """Record the end of the oldest launched step, and return the seconds that it kept the device busy.

        Call it before the requests that the step completes are closed.
        """
        launched, shares = self._launched.popleft()
        busy = max(0.0, at - max(launched, self._last_end))
        self._last_end = at
        tokens = sum(count for _, count in shares)
        for request_state, count in shares:
            if not request_state.ended:
                request_state.device_s += busy * count / tokens
        return busy
