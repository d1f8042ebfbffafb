"""The captured graphs: which one a batch runs in, and when the next is captured."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from .model.batch import LoraSpan
from .model.graph_shapes import GraphShape, first_graphs, nearest_cover, usual_graphs

log = logging.getLogger(__name__)
G = TypeVar("G")


class GraphSet(Generic[G]):
    """Graphs by what they were captured for.

    ``first_graphs`` are captured before the first request. Of the others, one is captured whenever nothing runs, and
    the one that a batch asks for every ``steps_between`` steps. Meanwhile the nearest that covers it does its work; for
    good, if the device has no memory left for graphs.
    """

    def __init__(
        self,
        max_running: int,
        capture: Callable[[GraphShape], G],
        free_bytes: Callable[[], int],
        budget: float = float("inf"),
        steps_between: int = 16,
    ) -> None:
        """``budget``: bytes of the device that graphs may keep. A capture takes about as long as two or three steps."""
        self.kept_bytes = 0
        self.steps_between = steps_between
        self._max_running = max_running
        self._capture = capture
        self._free_bytes = free_bytes
        self._budget = budget
        self._captured: dict[GraphShape, G] = {}
        self._later = deque(usual_graphs(max_running))
        self._without: set[GraphShape] = set()  # those that there is no memory for
        self._largest = 0  # bytes that the capture of one graph took
        self._steps = 0  # since the last capture

    def __len__(self) -> int:
        return len(self._captured)

    def __getitem__(self, shape: GraphShape) -> G:
        return self._captured[shape]

    def capture_first(self, progress: Callable[[float], None] = lambda share: None) -> float:
        """Capture what covers every usual batch; returns the seconds. Raises ``torch.OutOfMemoryError``."""
        started, free = time.perf_counter(), self._free_bytes()
        first = first_graphs(self._max_running)
        for done, shape in enumerate(first, start=1):
            self._captured[shape] = self._capture(shape)
            progress(done / len(first))
        _give_back_caches()
        self.kept_bytes = free - self._free_bytes()
        self._largest = self.kept_bytes // len(first)
        seconds = time.perf_counter() - started
        log.info(
            "captured %d decode graphs in %.1f s; they keep %.0f MiB; the others are captured while nothing runs",
            len(first), seconds, self.kept_bytes / 2**20,
        )  # fmt: skip
        return seconds

    def capture_next(self) -> bool:
        """Capture one more usual graph; False once all are there."""
        while self._later:
            shape = self._later.popleft()
            if shape not in self._captured:
                self._try(shape)
                if not self._later:
                    log.info("captured all %d decode graphs; they keep %.0f MiB", len(self), self.kept_bytes / 2**20)
                return True
        return False

    def choose(self, wanted: GraphShape, spans: Sequence[LoraSpan]) -> GraphShape | None:
        """The graph for a step that asks for ``wanted``, or one that covers it. None: it has to run without."""
        self._steps += 1
        if wanted in self._captured:
            return wanted
        cover = nearest_cover(self._captured, wanted, spans)
        due = self._steps > self.steps_between
        return wanted if (due or cover is None) and self._try(wanted) else cover

    def _try(self, shape: GraphShape) -> bool:
        """Capture it, if there is memory."""
        if shape in self._without:
            return False
        free, self._steps = self._free_bytes(), 0
        try:
            if self.kept_bytes + self._largest > self._budget:
                raise torch.OutOfMemoryError(f"graphs keep {self.kept_bytes / 2**20:.0f} MiB, all that they may")
            self._captured[shape] = self._capture(shape)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            log.warning("no graph is captured for %s, one that covers it does its work: %s", shape, error)
            self._without.add(shape)
            return False
        taken = max(free - self._free_bytes(), 0)
        self._largest = max(self._largest, taken)
        self.kept_bytes += taken
        return True


def _out_of_memory(error: RuntimeError) -> bool:
    """Of torch's allocator, or of the driver, whose errors have no class of their own."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def _give_back_caches() -> None:
    """What the runs before each capture needed; and page-locked memory, of which reading the weights takes some."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        if hasattr(torch._C, "_host_emptyCache"):  # not in every build of torch
            torch._C._host_emptyCache()
