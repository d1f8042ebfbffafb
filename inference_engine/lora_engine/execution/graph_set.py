"""The captured graphs: which one a batch runs in, and when the next is captured."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from lora_engine.model.batch import LoraSpan
from lora_engine.model.graph_shapes import GraphShape, first_graphs, nearest_cover, usual_graphs

log = logging.getLogger(__name__)
G = TypeVar("G")

STEPS_BETWEEN = 16  # captures under load, if they are deferred: one takes about as long as two or three steps


class GraphSet(Generic[G]):
    """Graphs by what they were captured for.

    All usual ones are captured before the first request; what else a batch asks for, when it asks. If ``deferred``,
    only ``first_graphs`` are captured before, the others while nothing runs, and the one that a batch asks for every
    few steps. The nearest that covers one does its work until then; for good, if there is no memory for it.

    A capture that fails otherwise can leave torch and CUDA in a state that nobody knows: none is tried after it, and
    ``failure`` says so to whoever can end the process.
    """

    def __init__(
        self,
        max_running: int,
        capture: Callable[[GraphShape], G],
        free_bytes: Callable[[], int],
        budget: float = float("inf"),
        deferred: bool = False,
        invariant: bool = False,
        mixed: Sequence[GraphShape] = (),
    ) -> None:
        """``budget``: bytes of the device that graphs may keep. ``invariant``: as in ``usual_graphs``. ``mixed``: those
        of mixed steps, which come before decode graphs that others cover."""
        self.failure = ""
        self.kept_bytes = 0
        self.steps_between = STEPS_BETWEEN if deferred else 0
        self._capture = capture
        self._free_bytes = free_bytes
        self._budget = budget
        self._captured: dict[GraphShape, G] = {}
        self._first = first_graphs(max_running, invariant)
        usual = usual_graphs(max_running, invariant=invariant)
        self._others = deque([*mixed, *(shape for shape in usual if shape not in set(self._first))])
        self._deferred = deferred
        self._without: set[GraphShape] = set()  # those that there is no memory for
        self._steps = 0  # since the last capture

    def __len__(self) -> int:
        return len(self._captured)

    def __getitem__(self, shape: GraphShape) -> G:
        return self._captured[shape]

    def capture_first(self, progress: Callable[[float], None] = lambda share: None) -> float:
        """What is captured before the first request; returns the seconds that it took.

        Raises ``torch.OutOfMemoryError`` if there is not even room for graphs that cover every usual batch.
        """
        started, free = time.perf_counter(), self._free_bytes()
        others = [] if self._deferred else [self._others.popleft() for _ in range(len(self._others))]
        for done, shape in enumerate([*self._first, *others], start=1):
            if shape in self._first:
                self._captured[shape] = self._capture(shape)
                self.kept_bytes = free - self._free_bytes()
            else:
                self._add(shape)
            progress(done / (len(self._first) + len(others)))
        _give_back_caches()
        self.kept_bytes = free - self._free_bytes()
        seconds = time.perf_counter() - started
        log.info(
            "captured %d decode graphs in %.1f s; they keep %.0f MiB; %d more follow while nothing runs",
            len(self), seconds, self.kept_bytes / 2**20, len(self._others),
        )  # fmt: skip
        return seconds

    def capture_next(self) -> bool:
        """Capture one of those that were deferred; False once all are there."""
        if not self._others or self.failure:
            return False
        shape = self._others.popleft()
        if shape not in self._captured:
            self._add_between(shape)
        if not self._others:
            log.info("captured all %d decode graphs; they keep %.0f MiB", len(self), self.kept_bytes / 2**20)
        return True

    def add(self, shape: GraphShape) -> None:
        """Capture it now, whatever the budget."""
        self._captured[shape] = self._capture(shape)

    def choose(self, wanted: GraphShape, spans: Sequence[LoraSpan]) -> GraphShape | None:
        """The graph for a step that asks for ``wanted``, or one that covers it. None: it has to run without."""
        self._steps += 1
        if wanted in self._captured:
            return wanted
        cover = nearest_cover(self._captured, wanted, spans)
        due = self._steps > self.steps_between
        return wanted if (due or cover is None) and self._add_between(wanted) else cover

    def choose_mixed(self, fitting: Sequence[GraphShape]) -> GraphShape | None:
        """The first of ``fitting`` that is there, or that is captured for it. None: the step has to run without."""
        self._steps += 1
        there = next((shape for shape in fitting if shape in self._captured), None)
        if fitting and there is not fitting[0] and self._deferred and self._steps > self.steps_between:
            return fitting[0] if self._add_between(fitting[0]) else there
        return there

    def _add_between(self, shape: GraphShape) -> bool:
        """Between steps: whether the graph is there now."""
        if self.failure:
            return False
        try:
            return self._add(shape)
        except Exception as error:
            self.failure = f"the capture of a decode graph failed ({error})"
            log.exception("no decode graph is captured any more after that of %s failed", shape)
            return False

    def _add(self, shape: GraphShape) -> bool:
        """Capture it, if there is memory."""
        if shape in self._without:
            return False
        free, self._steps = self._free_bytes(), 0
        try:
            if self.kept_bytes + self.kept_bytes // max(len(self), 1) > self._budget:
                raise torch.OutOfMemoryError(f"graphs keep {self.kept_bytes / 2**20:.0f} MiB, all that they may")
            self._captured[shape] = self._capture(shape)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            if not self._without:
                log.warning("no graph is captured for %s and others, those that cover them serve: %s", shape, error)
            self._without.add(shape)
            return False
        self.kept_bytes += max(free - self._free_bytes(), 0)
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
