"""Copies to the device run beside the batch: on a side stream, with an event that guards the first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Arrival(Protocol):
    """A copy to the device that has been started."""

    def done(self) -> bool:
        """Return whether it is complete; never waits."""

    def join(self) -> None:
        """Make everything that is launched from now on wait for the copy on the device. The host does not wait."""

    def seconds(self) -> float:
        """Return the duration of the copy; valid only once ``done``."""


class DeviceCopies(Protocol):
    """A starter of copies to the device."""

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        """Run ``copy``; return None if it is complete when this returns."""

    def mark(self) -> Arrival | None:
        """Return when everything that was launched so far has run; None: it has."""


class InlineCopies:
    """A starter for a CPU, where a copy is complete before the call returns."""

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        copy()
        return None

    def mark(self) -> Arrival | None:
        return None


class StreamCopies:
    """A starter for a GPU with one side stream, so that copies use the bus one after another at its full rate."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def start(self, copy: Callable[[], None]) -> Arrival | None:
        # The pages may have belonged to data that the running step still reads.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            began = torch.cuda.Event(enable_timing=True)
            began.record()
            copy()
            ended = torch.cuda.Event(enable_timing=True)
            ended.record()
        return _StreamArrival(began, ended)

    def mark(self) -> Arrival | None:
        passed = torch.cuda.Event(enable_timing=True)
        passed.record()
        return _StreamArrival(passed, passed)


class _StreamArrival:
    def __init__(self, began: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._began, self._ended = began, ended

    def done(self) -> bool:
        return bool(self._ended.query())

    def join(self) -> None:
        torch.cuda.current_stream().wait_event(self._ended)

    def seconds(self) -> float:
        return float(self._began.elapsed_time(self._ended)) / 1e3
