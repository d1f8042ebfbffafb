"""The leader, rank 0: it starts the other ranks, sends them its operations, and ends if one of them ends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler, send_handle
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.expert_residency import Change
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.config import EngineConfig
from lora_engine.execution.step_inputs import StepInputs
from lora_engine.model.batch import LoraSpan
from lora_engine.model.loading import LoadedModel, load_model
from lora_engine.model.merging import MergedLayers
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer

from . import group
from .follower import ignore_end, run_rank
from .meeting_folder import MeetingFolder
from .messages import (
    Answer,
    Capture,
    ChangeExperts,
    Command,
    Copied,
    CopyPages,
    Drop,
    DropSlab,
    Failed,
    JudgeMerge,
    Load,
    Merge,
    Replay,
    SettleExperts,
    Slab,
    SpanOf,
    Step,
    Stop,
    WeightNorms,
)
from .processes import is_stopped
from .shared_slabs import SharedSlabs
from .step_changes import LastContents
from .stillness import (
    BEAT_S,
    SILENT_BEATS,
    SILENT_BEATS_ON_GPUS,
    STOPPED_BEATS,
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

# Exit status of a process that ends because another rank ended (EX_SOFTWARE of sysexits.h); 2 during the start.
EXIT_STATUS = 70
# Seconds that ranks have to end after ``Stop`` before they are killed.
_STOP_S = 5.0
# Seconds in which the watcher reports a rank whose end made an exchange fail.
_REPORT_S = 1.0


class Rank:
    """A follower's process with its connections and the state of its beats."""

    def __init__(self, number: int, process: BaseProcess, commands: Connection, pulse: Connection) -> None:
        self.number = number
        self.process = process
        self.commands = commands
        self.pulse = pulse
        self.counts: Counts | None = None  # its progress; None until its first answer, while it may be importing
        self.unanswered = 0  # beats without an answer


class Leader:
    """The engine's ``Mirror``, which sends commands to all followers.

    Only the step thread sends commands; any thread may share memory.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[EngineConfig, Parallel], LoadedModel] = load_model,
        *,
        one_device: bool = False,
        on_end: Callable[[str], None] = ignore_end,
        forks: bool = False,
    ) -> None:
        """Start the other ranks of ``config``, each of which calls ``load``; for ``one_device`` see ``Meeting``.

        ``on_end`` is called with the reason before this process ends: from any thread, or by the rank that ends it.
        ``forks``: ranks are forks of this process, which saves them seconds of imports. It must have one thread then,
        and must not have used a device. Otherwise they are started anew, and ``load`` and ``on_end`` are pickled.
        """
        self._on_end = on_end
        self._folder = MeetingFolder()
        self._meeting = group.Meeting(self._folder.path / "meet", one_device)
        self._sending = threading.Lock()
        self._copying: dict[int, set[int]] = {}  # generation -> ranks that still read its host memory
        self._closing = False
        self._last_contents = LastContents()
        self._progress = Progress.on(config.device)
        self._on_cpu = self._progress.steps is None
        self._serves = False  # while ranks load, they may wait long for each other
        self._ranks: list[Rank] = []
        for number in range(1, config.tensor_parallel):
            self._ranks.append(self._start(config, number, load, forks=forks))
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        atexit.register(self.close)  # otherwise the interpreter would wait for ranks, which ignore signals
        self.config = group.config_of(config, 0, self._meeting)

    def _start(
        self,
        config: EngineConfig,
        number: int,
        load: Callable[[EngineConfig, Parallel], LoadedModel],
        *,
        forks: bool,
    ) -> Rank:
        context: ForkContext | SpawnContext = get_context("fork") if forks else get_context("spawn")
        (commands, their_commands), (pulse, their_pulse) = context.Pipe(), context.Pipe()
        arguments = (config, number, os.getpid(), self._meeting, their_commands, their_pulse, load, self._on_end)
        target: Callable[..., None] = run_rank
        if forks:
            # A fork has this process's ends of all pipes. The end of this process would not close them.
            ends = [end for rank in self._ranks for end in (rank.commands, rank.pulse)]
            target = partial(_run_forked_rank, [*ends, commands, pulse])
        process = context.Process(target=target, args=arguments, name=f"rank-{number}", daemon=True)
        process.start()
        their_commands.close()
        their_pulse.close()
        return Rank(number, process, commands, pulse)

    def join(self) -> Parallel:
        """Wait for all ranks, and watch them from now on."""
        self._watcher.start()
        return self._progress.of(group.join(self.config, 0, self._meeting, self._progress.exchanges))

    def begin_to_join(self) -> Parallel:
        """Watch the other ranks from now on, and wait for them in a thread: see ``Parallel.joined``."""
        self._watcher.start()
        return self._progress.of(group.begin_to_join(self.config, 0, self._meeting, self._progress.exchanges))

    def close(self) -> None:
        """End the other ranks and release their devices. On GPUs, a process can start followers only once."""
        atexit.unregister(self.close)
        self._closing = True
        self._tell(Stop(), best_effort=True)
        until = time.monotonic() + (_STOP_S if self._watcher.is_alive() else 0.0)  # before, they wait for each other
        for rank in self._ranks:
            rank.process.join(max(0.0, until - time.monotonic()))
            if rank.process.is_alive():
                rank.process.kill()
        if dist.is_initialized() and self._on_cpu:  # NCCL would wait for captured graphs
            dist.destroy_process_group()
        self._folder.remove()

    def host_memory(self, *, pinned: bool) -> SharedSlabs:
        """Return the memory into which adapters are packed, from which every rank copies its part."""
        self._memory = SharedSlabs(
            self._share, lambda index: self._tell(DropSlab(index), best_effort=True), pinned=pinned
        )
        return self._memory

    # Operations of the engine on its device.

    def load(self, slot: AdapterSlot, packed: PackedAdapter) -> OthersCopies:
        assert packed.of_ranks is not None, "the adapter was not packed for all ranks"
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
                -1 if slot.residency is None else slot.residency.row,
            )
        )
        return OthersCopies(self._copying, slot.generation)

    def drop(self, slot: AdapterSlot) -> None:
        self._tell(Drop(slot.generation))

    def change_experts(self, generation: int, change: Change) -> None:
        self._tell(ChangeExperts(generation, change))

    def settle_experts(self, generation: int) -> None:
        self._tell(SettleExperts(generation))

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        self._tell(CopyPages(tuple(source), tuple(target)))

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
        changes = self._last_contents.changes(shape, contents)
        self._tell(Replay(shape, changes, rows, tuple(span.slot.generation for span in spans), greedy))

    def weight_norms(self, layer: int) -> None:
        self._tell(WeightNorms(layer))

    def mergeable(self, model: Transformer) -> MergedOnAll:
        assert model.merged is not None
        return MergedOnAll(model, model.merged, self._tell)

    def diverged(self, error: Exception) -> NoReturn:
        # An exchange fails at once if another rank has ended. The watcher then reports that as the reason, and ends
        # this process.
        self._watcher.join(_REPORT_S)
        if self._closing:
            self._watcher.join()
        log.critical("rank 0 failed in a step that the other ranks began", exc_info=error)
        self._end(f"rank 0 failed in a step that the other ranks began: {error}", EXIT_STATUS)
        raise error

    # Messages.

    def _tell(self, command: Command, *, best_effort: bool = False) -> None:
        message = ForkingPickler.dumps(command)  # as ``Connection.send`` does, but once for all ranks
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

    def _await_end(self) -> None:
        """Wait for the watcher to report that a rank has ended, which ends this process."""
        if not self._closing:
            self._watcher.join()

    # In the watcher's thread.

    def _watch(self) -> None:
        """Detect within seconds that another rank failed, ended or hangs."""
        beat_at = 0.0
        stillness = Stillness() if self._on_cpu else DeviceStillness(device_beats(self.config.step_timeout_s))
        while not self._closing:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_S
                self._beat()
                self._judge(stillness)
            try:
                self._receive()
            except (EOFError, OSError):
                gone = [rank for rank in self._ranks if not rank.process.is_alive()]
                self._lost((gone or self._ranks)[0])

    def _judge(self, stillness: Stillness) -> None:
        """End all ranks if one does not answer or makes no progress."""
        most = SILENT_BEATS if self._on_cpu else SILENT_BEATS_ON_GPUS
        for rank in self._ranks:
            if rank.unanswered > STOPPED_BEATS and is_stopped(rank.process.pid or 0):
                self._fail(f"{_named(rank)} was stopped by a signal for {STOPPED_BEATS * BEAT_S:.0f} s")
            if rank.unanswered > most:
                self._fail(f"{_named(rank)} has not answered for {most * BEAT_S:.0f} s")
        counts = [rank.counts for rank in self._ranks]
        if None in counts or (not self._serves if self._on_cpu else any(rank.unanswered > 1 for rank in self._ranks)):
            return  # counts from before the last beat show nothing about a device
        still = stillness.beat([self._progress.counts, *(count for count in counts if count is not None)])
        if still is not None:
            self._fail(self._stuck(still, f"for {stillness.most_beats * BEAT_S:.0f} s"))

    def _stuck(self, still: Still, for_s: str) -> str:
        name = _named(self._ranks[still.rank - 1]) if still.rank else f"rank 0 (process {os.getpid()})"
        if self._on_cpu:
            stands = "an exchange between all ranks has not ended" if still.all_wait else f"{name} made no progress"
            return f"{stands} {for_s} within a step"
        works = "all devices have worked" if still.all_wait else f"the device of {name} has worked"
        return (
            f"{works} {for_s} on a step that every rank had launched, so one of them hangs; if steps may take so long, "
            "raise --step-timeout-s"
        )

    def _receive(self) -> None:
        """Process the ranks' messages and ends, for at most one beat."""
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
                continue  # the rank's end is noticed through its process

    def _answered(self, rank: Rank, answer: Answer) -> None:
        match answer:
            case Copied(generation):
                self._copying[generation].discard(rank.number)
            case Failed(reason, starting):
                self._fail(f"rank {rank.number} failed: {reason}", 2 if starting else EXIT_STATUS)

    def _lost(self, rank: Rank) -> None:
        while rank.commands.poll():  # its last messages
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
        """End this process; the supervisor restarts the engine, whose journal has the usage of its requests."""
        self._on_end(reason)
        self._folder.remove()
        if status == EXIT_STATUS:
            log.critical("%s. The engine ends (status %d): no rank can continue without the others.", reason, status)
        else:
            log.critical("%s", reason)
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)


class OthersCopies:
    """The copies of an adapter to the devices of the other ranks, as an ``Arrival``."""

    def __init__(self, copying: dict[int, set[int]], generation: int) -> None:
        self._copying, self._generation = copying, generation
        self._began, self._seconds = time.monotonic(), 0.0

    def done(self) -> bool:
        if not self._seconds and not self._copying[self._generation]:
            del self._copying[self._generation]
            self._seconds = max(time.monotonic() - self._began, 1e-9)
        return self._seconds > 0

    def join(self) -> None:
        """Do nothing: the other ranks execute commands in order."""

    def seconds(self) -> float:
        return self._seconds


class MergedOnAll:
    """The merged weights of all ranks, as ``MergeableWeights``."""

    def __init__(self, model: Transformer, local: MergedLayers, tell: Callable[[Command], None]) -> None:
        self._model, self._local, self._tell = model, local, tell

    def harmless(self, slot: AdapterSlot) -> bool:
        self._tell(JudgeMerge(slot.generation))
        return bool(self._model.parallel.smallest(self._local.harmless(slot), self._model.device))

    def merge(self, slot: AdapterSlot) -> None:
        self._tell(Merge(slot.generation, slot.delta_correction_index))
        self._local.merge(slot)


def _run_forked_rank(ends: Iterable[Connection], *arguments: Any) -> None:
    for end in ends:
        end.close()
    run_rank(*arguments)


def _named(rank: Rank) -> str:
    return f"rank {rank.number} (process {rank.process.pid})"
