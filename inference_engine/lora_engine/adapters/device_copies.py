"""Copies to the device beside the running batch: on a side stream, with an event that guards the first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Arrival(Protocol):
    """A copy under way."""

    def done(self) -> bool:
        """Whether it is complete; never waits."""

    def join(self) -> None:
        """What is launched from now on comes after it. The host does not wait."""

    def seconds(self) -> float:
        """How long the copy took; only once ``done``."""


class DeviceCopies(Protocol):
    """Where copies are started."""

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        """Run ``copy``; None if it is already complete when this returns."""


class InlineCopies:
    """On a CPU a copy is a copy: done before the call returns."""

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        copy()
        return None


class StreamCopies:
    """On a GPU: one side stream, so that copies share the bus one after another at its full rate."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        # The pages may have belonged to something that the step now running still reads.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            began = torch.cuda.Event(enable_timing=True)
            began.record()
            copy()
            ended = torch.cuda.Event(enable_timing=True)
            ended.record()
        return _StreamArrival(began, ended)


class _StreamArrival:
    def __init__(self, began: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._began, self._ended = began, ended

    def done(self) -> bool:
        return bool(self._ended.query())

    def join(self) -> None:
        torch.cuda.current_stream().wait_event(self._ended)

    def seconds(self) -> float:
        return float(self._began.elapsed_time(self._ended)) / 1e3
