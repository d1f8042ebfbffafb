"""Device time of the parts of a decode step with drafts, and of its kernels, while a benchmark runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.runner import Runner
from lora_engine.model.head_passes import HeadPasses


class DeviceTimeline:
    """The time between marks in the device's stream: events before and after each part of a step.

    A mark ends the part that it names. What lies before the first mark of a part is "wait for …": the device had
    nothing to do, since the host had not launched that part yet.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[str, Any]] = []
        self._kept: list[tuple[Any, str, Any]] = []

    def start(self) -> None:
        """Begin to mark."""
        self._around(GraphRunner, "_load", "wait for the step", "inputs")
        self._around(GraphRunner, "_logits_of", "step", "")
        self._around(Runner, "sample", "hidden states", "sampling")
        self._around(HeadPasses, "follow", "wait for the head", "")
        self._around(HeadPasses, "_launch", "", "head, {kind}")

    def stop(self) -> None:
        """Stop to mark."""
        for owner, name, method in self._kept:
            setattr(owner, name, method)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def per_step(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of each part, divided by the number of steps."""
        total = Counter[str]()
        for (_, before), (name, after) in zip(self._marks, self._marks[1:], strict=False):
            total[name] += before.elapsed_time(after) if torch.cuda.is_available() else 1e3 * (after - before)
        return {name: value / steps for name, value in total.items()}

    def report(self, case: str, steps: int) -> None:
        """Print the parts of a step."""
        parts = self.per_step(steps)
        text = ", ".join(f"{name} {value:.3f}" for name, value in parts.items())
        print(f"{case}: ms a step: {text}; together {sum(parts.values()):.3f}", flush=True)

    def _around(self, owner: Any, name: str, before: str, after: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def marked(*args: Any, **named: Any) -> Any:
            if before:
                self._mark(before)
            result = method(*args, **named)
            if after:
                self._mark(after.format(kind=args[1]) if "{" in after else after)
            return result

        self._kept.append((owner, name, method))
        setattr(owner, name, marked)

    def _mark(self, name: str) -> None:
        if not torch.cuda.is_available():
            self._marks.append((name, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((name, event))


class KernelProfile:
    """The device time of each kernel, by torch's profiler."""

    def __init__(self, kernels: int = 16) -> None:
        self._kernels = kernels
        kind = torch.profiler.ProfilerActivity
        self._profile = torch.profiler.profile(activities=[kind.CUDA if torch.cuda.is_available() else kind.CPU])

    def start(self) -> None:
        """Begin to record."""
        self._profile.start()

    def stop(self) -> None:
        """Stop to record."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profile.stop()

    def report(self, case: str, steps: int) -> None:
        """Print the kernels that take the most time, with their microseconds and launches a step."""
        rows = sorted(self._profile.key_averages(), key=lambda row: -row.self_device_time_total)
        total = sum(row.self_device_time_total for row in rows) / steps
        print(f"{case}: {total:.0f} us of kernels a step", flush=True)
        for row in rows[: self._kernels]:
            each = row.self_device_time_total / steps
            print(f"    {each:8.1f} us {row.count / steps:7.1f} x  {row.key[:90]}", flush=True)
