"""The set of captured graphs: the choice of a batch's graph, and the schedule of captures."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch

from lora_engine.model.batch import LoraSpan
from lora_engine.model.graph_shapes import GraphShape, first_graphs, nearest_cover, usual_graphs

log = logging.getLogger(__name__)

# The id of the allocator's own memory, which is no graph's.
_NO_POOL = (0, 0)
G = TypeVar("G")

# Least number of steps between captures while requests run, if they are deferred, and the largest share of time that
# the captures may take: a capture takes about as long as two or three steps, for which all requests wait.
STEPS_BETWEEN = 16
_CAPTURE_SHARE = 0.01
# Share of the memory for graphs that those take which no step has needed yet; the rest is for the ones that steps need.
# With 0.75, graphs of a model with 32 layers kept 537 MiB once nothing ran.
_UNASKED_SHARE = 0.6


class GraphSet(Generic[G]):
    """A set of captured graphs by their shapes.

    All usual graphs are captured before the first request, other ones when a batch first needs them. If ``deferred``,
    only ``first_graphs`` are captured before the first request. The others follow while nothing runs, first those that
    most steps needed; while requests run, only those, and in a small share of the time. Until then the nearest covering
    graph is used; also permanently, if memory for the exact one is lacking. A graph that nothing covers is captured at
    once.

    Any other failure of a capture can leave torch and CUDA in an undefined state: no capture follows, and ``failure``
    reports it, so that the process can be restarted.
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
        drafted: Sequence[GraphShape] = (),
    ) -> None:
        """Create an empty set.

        ``budget``: device memory in bytes for graphs. For ``invariant`` see ``usual_graphs``. ``mixed``: graphs of
        mixed steps, which are captured before decode graphs that others cover; ``drafted``: of decode steps with
        drafts on recurrent layers, which are captured before the first request.
        """
        self.failure = ""
        self.kept_bytes = 0
        self.captured_under_load = 0  # graphs that were captured while requests ran
        self.seconds_under_load = 0.0  # time that these captures took
        self.steps_between = STEPS_BETWEEN if deferred else 0
        self._capture = capture
        self._free_bytes = free_bytes
        self._budget = budget
        self._captured: dict[GraphShape, G] = {}
        self._first = [*first_graphs(max_running, invariant), *drafted]
        usual = usual_graphs(max_running, invariant=invariant)
        self._others = deque([*mixed, *(shape for shape in usual if shape not in set(self._first))])
        self._deferred = deferred
        self._without: set[GraphShape] = set()  # shapes for which there is no memory
        self._wanted: Counter[GraphShape] = Counter()  # steps that ran in a covering graph instead
        self._steps = 0  # steps since the last capture
        self._seconds = 0.0  # duration of the last capture after the start
        self._captured_at = 0.0  # its end

    def __len__(self) -> int:
        return len(self._captured)

    def __getitem__(self, shape: GraphShape) -> G:
        return self._captured[shape]

    def defer_smaller(self) -> None:
        """Leave only the graphs with the most rows for the start, which cover every usual batch alone, if any wait.

        For a start that streams wait for, whose steps soon show which others they need.
        """
        if self._deferred:
            most = max(shape.size for shape in self._first)
            self._others.extendleft(reversed([shape for shape in self._first if shape.size < most]))
            self._first = [shape for shape in self._first if shape.size == most]

    def capture_first(self, progress: Callable[[float], None] = lambda share: None) -> float:
        """Capture the graphs needed before the first request; returns the seconds that it took.

        Raises ``torch.OutOfMemoryError`` if there is no room for graphs that cover every usual batch.
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
        _release_caches()
        self.kept_bytes = free - self._free_bytes()
        seconds = time.perf_counter() - started
        log.info(
            "captured %d decode graphs in %.1f s; they keep %.0f MiB; %d more follow while nothing runs",
            len(self), seconds, self.kept_bytes / 2**20, len(self._others),
        )  # fmt: skip
        return seconds

    def capture_next(self) -> bool:
        """Capture one deferred graph while nothing runs; returns False once all are captured."""
        if self.failure or not (self._wanted or self._others):
            return False
        if self._wanted:
            self._add_between(self._most_wanted())
        elif self._takes(_UNASKED_SHARE):
            shape = self._others.popleft()
            if shape not in self._captured:
                self._add_between(shape)
        else:
            log.info("%d decode graphs are left out until a step needs them", len(self._others))
            self._others.clear()
        if not (self._wanted or self._others):
            log.info("captured all %d decode graphs; they keep %.0f MiB", len(self), self.kept_bytes / 2**20)
        return True

    def add(self, shape: GraphShape) -> None:
        """Capture a graph now, regardless of the budget."""
        self._captured[shape] = self._capture(shape)

    def choose(self, wanted: GraphShape, spans: Sequence[LoraSpan]) -> GraphShape | None:
        """Return the graph for a step that needs ``wanted``, or one that covers it; None: run without a graph."""
        self._steps += 1
        if wanted in self._captured:
            return wanted
        cover = nearest_cover(self._captured, wanted, spans)
        if cover is None:
            return wanted if self._add_under_load(wanted) else None
        self._want(wanted)
        return wanted if wanted in self._captured else cover

    def choose_mixed(self, fitting: Sequence[GraphShape]) -> GraphShape | None:
        """Return the first captured graph of ``fitting``, or capture one; None: run without a graph."""
        self._steps += 1
        there = next((shape for shape in fitting if shape in self._captured), None)
        if fitting and there is not fitting[0] and self._deferred:
            self._want(fitting[0])
            return fitting[0] if fitting[0] in self._captured else there
        return there

    def _want(self, shape: GraphShape) -> None:
        """Count a step that needed a graph, and capture the one that most steps needed, if a capture is due."""
        if shape not in self._without:
            self._wanted[shape] += 1
        if self._wanted and self._is_due():
            self._add_under_load(self._most_wanted())

    def _is_due(self) -> bool:
        if not self.steps_between:
            return True
        rested = (time.perf_counter() - self._captured_at) * _CAPTURE_SHARE >= self._seconds
        return self._steps > self.steps_between and rested

    def _most_wanted(self) -> GraphShape:
        return self._wanted.most_common(1)[0][0]

    def _add_under_load(self, shape: GraphShape) -> bool:
        captured, began = len(self), time.perf_counter()
        added = self._add_between(shape)
        if len(self) > captured:
            self.captured_under_load += 1
            self.seconds_under_load += time.perf_counter() - began
        return added

    def _takes(self, share: float = 1.0) -> bool:
        """Return whether a share of the budget has room for another graph, as large as those so far."""
        return self.kept_bytes + self.kept_bytes // max(len(self), 1) <= share * self._budget

    def _add_between(self, shape: GraphShape) -> bool:
        """Capture a graph between steps, if one is due; returns whether the graph is captured."""
        self._wanted.pop(shape, None)
        if self.failure:
            return False
        began = time.perf_counter()
        try:
            return self._add(shape)
        except Exception as error:
            self.failure = f"the capture of a decode graph failed ({error})"
            log.exception("the capture of %s failed; no graphs are captured until the process is restarted", shape)
            return False
        finally:
            self._captured_at = time.perf_counter()
            self._seconds = self._captured_at - began

    def _add(self, shape: GraphShape) -> bool:
        """Capture a graph if there is memory; returns whether it was captured."""
        if shape in self._without:
            return False
        free, self._steps = self._free_bytes(), 0
        try:
            if not self._takes():
                raise torch.OutOfMemoryError(f"graphs keep {self.kept_bytes / 2**20:.0f} MiB, their whole budget")
            self._captured[shape] = self._capture(shape)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            if not self._without:
                log.warning("no memory for the graph of %s; graphs that cover it are used instead: %s", shape, error)
            self._without.add(shape)
            return False
        self.kept_bytes += max(free - self._free_bytes(), 0)
        return True


def _out_of_memory(error: RuntimeError) -> bool:
    """Return whether torch's allocator or the driver, whose errors have no separate class, ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def free_and_cached(free: int, device: int, segments: Iterable[Mapping[str, Any]]) -> int:
    """Return a device's ``free`` memory with the memory that torch's allocator caches for tensors outside of graphs.

    ``segments`` are those of ``torch.cuda.memory_snapshot()``. The run of a model before its capture leaves such
    memory, which later steps use again: no graph keeps it.
    """
    cached: int = sum(
        segment["total_size"] - segment["active_size"]
        for segment in segments
        if segment["device"] == device and tuple(segment.get("segment_pool_id", _NO_POOL)) == _NO_POOL
    )
    return free + cached


def _release_caches() -> None:
    """Release cached memory: of runs before captures, and page-locked memory of the loading of weights."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        if hasattr(torch._C, "_host_emptyCache"):  # not in every build of torch
            torch._C._host_emptyCache()
