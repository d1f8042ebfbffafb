"""Rank 0's side: it starts the other ranks, tells them what it does, and ends with them."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler, send_handle
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.config import EngineConfig
from lora_engine.execution.step_inputs import StepInputs
from lora_engine.model.batch import LoraSpan
from lora_engine.model.loading import LoadedModel, load_model
from lora_engine.model.merging import MergedLayers
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer

from . import group
from .follower import run_rank, tell_nobody
from .meeting_folder import MeetingFolder
from .messages import (
    Answer,
    Capture,
    Command,
    Copied,
    Drop,
    DropSlab,
    Failed,
    JudgeMerge,
    Load,
    Merge,
    Replay,
    Slab,
    SpanOf,
    Step,
    Stop,
    WeightNorms,
)
from .shared_slabs import SharedSlabs
from .step_changes import Told
from .stillness import (
    BEAT_S,
    SILENT_BEATS,
    SILENT_BEATS_ON_GPUS,
    Counts,
    DeviceStillness,
    Progress,
    Still,
    Stillness,
    device_beats,
)

if TYPE_CHECKING:
    from lora_engine.model.graph_shapes import GraphShape  # needs triton

log = logging.getLogger(__name__)

EXIT_STATUS = 70
"""Of a process that ended because another rank did; EX_SOFTWARE of sysexits.h. 2 if that was at the start."""
_STOP_S = 5.0
_SAID_WITHIN_S = 1.0


class Rank:
    """One other process, as rank 0 sees it."""

    def __init__(self, number: int, process: BaseProcess, commands: Connection, pulse: Connection) -> None:
        self.number = number
        self.process = process
        self.commands = commands
        self.pulse = pulse
        self.counts: Counts | None = None  # of its exchanges; until its first answer it may be importing
        self.unanswered = 0  # beats


class Leader:
    """A ``Mirror`` of the engine. Commands come from the step thread, but for shared memory, which any may share."""

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[EngineConfig, Parallel], LoadedModel] = load_model,
        *,
        one_device: bool = False,
        on_end: Callable[[str], None] = tell_nobody,
    ) -> None:
        """Start the other ranks of ``config``, each of which calls ``load``. ``one_device``: as in ``Meeting``.

        ``on_end``, which is pickled, is told why this process is about to end: from any thread, or by the rank that
        ends it.
        """
        self._on_end = on_end
        self._folder = MeetingFolder()
        self._meeting = group.Meeting(self._folder.path / "meet", one_device)
        self.config = group.config_of(config, 0, self._meeting)
        self._sending = threading.Lock()
        self._copying: dict[int, set[int]] = {}  # generation -> ranks that still read its host memory
        self._closing = False
        self._told = Told()
        self._progress = Progress.on(config.device)
        self._on_cpu = self._progress.steps is None
        self._serves = False  # while ranks load, one may wait long for another
        context = get_context("spawn")  # a fork would have this one's threads' locks
        self._ranks = []
        for number in range(1, config.tensor_parallel):
            (commands, theirs), (pulse, their_pulse) = context.Pipe(), context.Pipe()
            arguments = (config, number, self._meeting, theirs, their_pulse, load, on_end)
            process = context.Process(target=run_rank, args=arguments, name=f"rank-{number}", daemon=True)
            process.start()
            theirs.close()
            their_pulse.close()
            self._ranks.append(Rank(number, process, commands, pulse))
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._watcher.start()
        atexit.register(self.close)  # else the interpreter would wait for ranks, which no signal of its own ends

    def join(self) -> Parallel:
        """Wait for all ranks."""
        return self._progress.of(group.join(self.config, 0, self._meeting, self._progress.exchanges))

    def close(self) -> None:
        """End the other ranks; nothing of them stays on their devices. On GPUs, this process has had its only ones."""
        atexit.unregister(self.close)
        self._closing = True
        self._tell(Stop(), best_effort=True)
        until = time.monotonic() + _STOP_S
        for rank in self._ranks:
            rank.process.join(max(0.0, until - time.monotonic()))
            if rank.process.is_alive():
                rank.process.kill()
        if dist.is_initialized() and self._on_cpu:  # NCCL would wait for the last graph that has a sum of its own
            dist.destroy_process_group()
        self._folder.remove()

    def host_memory(self, *, pinned: bool) -> SharedSlabs:
        """Where adapters are to be packed, so that every rank can copy its part."""
        self._memory = SharedSlabs(self._share, self._drop_slab, pinned=pinned)
        return self._memory

    # What the engine does to its device.

    def load(self, slot: AdapterSlot, packed: PackedAdapter) -> OthersCopies:
        assert packed.of_ranks is not None, "it was not packed for all ranks"
        slab, start = self._memory.place(packed.of_ranks)
        self._copying[slot.generation] = {rank.number for rank in self._ranks}
        self._tell(
            Load(
                slot.generation,
                packed.digest,
                packed.rank,
                packed.layout,
                tuple(slot.pages),
                slot.table_index,
                slab,
                start,
            )
        )
        return OthersCopies(self._copying, slot.generation)

    def drop(self, slot: AdapterSlot) -> None:
        self._tell(Drop(slot.generation))

    def step(self, inputs: StepInputs, spans: Iterable[LoraSpan]) -> None:
        self._serves = True
        self._tell(Step(inputs, tuple(map(SpanOf.of, spans))))

    def capture(self, shape: GraphShape) -> None:
        self._tell(Capture(shape))

    def replay(
        self,
        shape: GraphShape,
        contents: npt.NDArray[np.int32],
        rows: int,
        spans: Iterable[LoraSpan],
        *,
        greedy: bool,
    ) -> None:
        changes = self._told.changes(shape, contents)
        self._tell(Replay(shape, changes, rows, tuple(span.slot.generation for span in spans), greedy))

    def weight_norms(self, layer: int) -> None:
        self._tell(WeightNorms(layer))

    def mergeable(self, model: Transformer) -> MergedOnAll:
        assert model.merged is not None
        return MergedOnAll(model, model.merged, self._tell)

    def diverged(self, error: Exception) -> NoReturn:
        # An exchange fails at once where another rank is gone: then that is the reason, and the watcher is about to say
        # so, which ends this process.
        self._watcher.join(_SAID_WITHIN_S)
        if self._closing:
            self._watcher.join()
        log.critical("rank 0 failed in a step that the other ranks began", exc_info=error)
        self._end(f"rank 0 failed in a step that the other ranks began: {error}", EXIT_STATUS)
        raise error

    # Messages.

    def _tell(self, command: Command, *, best_effort: bool = False) -> None:
        message = ForkingPickler.dumps(command)  # as ``Connection.send`` does, once for all
        with self._sending:
            for rank in self._ranks:
                try:
                    rank.commands.send_bytes(message)
                except OSError:
                    if not best_effort:
                        self._await_end()

    def _share(self, index: int, num_bytes: int, descriptor: int) -> None:
        with self._sending:
            for rank in self._ranks:
                rank.commands.send(Slab(index, num_bytes))
                send_handle(rank.commands, descriptor, rank.process.pid)

    def _drop_slab(self, index: int) -> None:
        self._tell(DropSlab(index), best_effort=True)

    def _await_end(self) -> None:
        """A rank is gone: the watcher is about to say so, and to end this process."""
        if not self._closing:
            self._watcher.join()

    # In the watcher's thread.

    def _watch(self) -> None:
        """Notice within seconds that another rank failed, ended or stopped."""
        beat_at = 0.0
        stillness = Stillness() if self._on_cpu else DeviceStillness(device_beats(self.config.step_timeout_s))
        while not self._closing:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_S
                self._beat()
                self._judge(stillness)
            try:
                self._hear()
            except (EOFError, OSError):
                gone = [rank for rank in self._ranks if not rank.process.is_alive()]
                self._lost((gone or self._ranks)[0])

    def _judge(self, stillness: Stillness) -> None:
        """Whether the ranks go on."""
        most = SILENT_BEATS if self._on_cpu else SILENT_BEATS_ON_GPUS
        for rank in self._ranks:
            if rank.unanswered > most:
                self._fail(f"{_named(rank)} has not answered for {most * BEAT_S:.0f} s")
        counts = [rank.counts for rank in self._ranks]
        if None in counts or (not self._serves if self._on_cpu else any(rank.unanswered > 1 for rank in self._ranks)):
            return  # what was said before the last beat says nothing of a device
        still = stillness.beat([self._progress.counts, *(own for own in counts if own is not None)])
        if still is not None:
            self._fail(self._stuck(still, f"for {stillness.most_beats * BEAT_S:.0f} s"))

    def _stuck(self, still: Still, for_s: str) -> str:
        name = _named(self._ranks[still.rank - 1]) if still.rank else f"rank 0 (process {os.getpid()})"
        if self._on_cpu:
            stands = "an exchange between all ranks has not ended" if still.all_wait else f"{name} has stood still"
            return f"{stands} {for_s} within a step"
        works = "all devices have worked" if still.all_wait else f"the device of {name} has worked"
        return (
            f"{works} {for_s} on a step that each rank had given to its own, so one hangs; steps that are rightly so "
            "long need a higher --step-timeout-s"
        )

    def _hear(self) -> None:
        """Whatever any of them says, or that it ended; for a beat at most."""
        ready = set(wait([item for r in self._ranks for item in (r.commands, r.pulse, r.process.sentinel)], BEAT_S))
        for rank in self._ranks:
            if rank.pulse in ready:
                rank.counts, rank.unanswered = rank.pulse.recv(), 0
            if rank.commands in ready:
                self._answered(rank, rank.commands.recv())
            if rank.process.sentinel in ready:
                self._lost(rank)

    def _beat(self) -> None:
        for rank in self._ranks:
            rank.unanswered += rank.counts is not None
            try:
                rank.pulse.send(None)
            except OSError:
                """Its end is noticed by its process."""

    def _answered(self, rank: Rank, answer: Answer) -> None:
        match answer:
            case Copied(generation):
                self._copying[generation].discard(rank.number)
            case Failed(reason, starting):
                self._fail(f"rank {rank.number} failed: {reason}", 2 if starting else EXIT_STATUS)

    def _lost(self, rank: Rank) -> None:
        while rank.commands.poll():  # what it said last
            try:
                self._answered(rank, rank.commands.recv())
            except (EOFError, OSError):
                break
        rank.process.join(1)
        self._fail(f"{_named(rank)} ended with status {rank.process.exitcode}")

    def _fail(self, reason: str, status: int = EXIT_STATUS) -> None:
        if self._closing:
            return
        self._closing = True
        for rank in self._ranks:
            rank.process.kill()
        self._end(reason, status)

    def _end(self, reason: str, status: int) -> None:
        """The supervisor starts the replica anew; what it did for its requests lies in its journal."""
        self._on_end(reason)
        self._folder.remove()
        if status == EXIT_STATUS:
            log.critical(
                "%s. The engine ends itself (status %d), for no rank can go on without another.", reason, status
            )
        else:
            print(f"lora_engine: {reason}", file=sys.stderr)
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)


class OthersCopies:
    """An adapter's copies to the devices of the other ranks, as an ``Arrival``."""

    def __init__(self, copying: dict[int, set[int]], generation: int) -> None:
        self._copying, self._generation = copying, generation
        self._began, self._seconds = time.monotonic(), 0.0

    def done(self) -> bool:
        if not self._seconds and not self._copying[self._generation]:
            del self._copying[self._generation]
            self._seconds = max(time.monotonic() - self._began, 1e-9)
        return self._seconds > 0

    def join(self) -> None:
        """Nothing: they do what they are told in order."""

    def seconds(self) -> float:
        return self._seconds


class MergedOnAll:
    """The merged weights of all ranks, as ``MergeableWeights``."""

    def __init__(self, model: Transformer, own: MergedLayers, tell: Callable[[Command], None]) -> None:
        self._model, self._own, self._tell = model, own, tell

    def harmless(self, slot: AdapterSlot) -> bool:
        self._tell(JudgeMerge(slot.generation))
        return bool(self._model.parallel.smallest(self._own.harmless(slot), self._model.device))

    def merge(self, slot: AdapterSlot) -> None:
        self._tell(Merge(slot.generation, slot.delta_correction_index))
        self._own.merge(slot)


def _named(rank: Rank) -> str:
    return f"rank {rank.number} (process {rank.process.pid})"
