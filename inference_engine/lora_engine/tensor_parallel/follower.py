"""A follower: a rank that repeats rank 0's operations on its device."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import TYPE_CHECKING

import torch

from lora_engine.adapters.device_copies import Arrival, InlineCopies, StreamCopies
from lora_engine.adapters.device_table import DeviceTable
from lora_engine.adapters.device_tier import AdapterSlot, group_offsets
from lora_engine.adapters.expert_residency import ExpertResidency, Residents
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.config import EngineConfig
from lora_engine.engine import build_runner
from lora_engine.errors import UnsupportedModel
from lora_engine.execution.step_inputs import StepInputs
from lora_engine.garbage import freeze_loaded_objects
from lora_engine.model.batch import EmbeddingLayerSpan, LoraSpan
from lora_engine.model.loading import LoadedModel
from lora_engine.model.merging import MergedLayers
from lora_engine.model.parallel import Parallel
from lora_engine.text import TokenizerError

from . import group
from .messages import (
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
from .processes import end_with_parent, name_process
from .shared_slabs import map_slab
from .step_changes import LastContents
from .stillness import BEAT_S, SILENT_BEATS, Progress

if TYPE_CHECKING:
    from lora_engine.execution.graph_runner import GraphRunner  # needs triton

log = logging.getLogger(__name__)

_COPY_POLL_S = 0.001
# Seconds after a failed exchange in which the kernel ends this process if rank 0 has ended, whose connections close
# before.
_PARENT_END_S = 0.1


def ignore_end(reason: str) -> None:
    """Do nothing: the process's log has the reason for its end."""


def run_rank(
    config: EngineConfig,
    rank: int,
    leader: int,
    meeting: group.Meeting,
    commands: Connection,
    pulse: Connection,
    load: Callable[[EngineConfig, Parallel], LoadedModel],
    on_end: Callable[[str], None],
) -> None:
    """Run a follower's process until rank 0, the process ``leader``, sends ``Stop`` or ends.

    ``on_end`` is called with the reason if this process ends rank 0.
    """
    end_with_parent(leader)
    name_process(f"lora-rank-{rank}")
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 drains first, then sends Stop
        signal.signal(number, signal.SIG_IGN)
    progress = Progress.on(config.device)
    # On a GPU, a compiler or a driver may delay rank 0's beats.
    most_silent = SILENT_BEATS if progress.steps is None else None
    threading.Thread(target=_beat, args=(pulse, progress, most_silent, on_end), daemon=True).start()
    starting = True
    try:
        rank_config = group.config_of(config, rank, meeting)
        parallel = progress.of(group.begin_to_join(rank_config, rank, meeting, progress.exchanges))
        follower = Follower(rank_config, load(rank_config, parallel), commands)
        starting = False
        freeze_loaded_objects()
        follower.run()
    except (EOFError, BrokenPipeError):
        pass  # rank 0 has ended
    except BaseException as error:
        time.sleep(_PARENT_END_S)
        if not starting:
            log.exception("rank %d failed", rank)
        expected = starting and isinstance(error, (ValueError, OSError, UnsupportedModel, TokenizerError))
        commands.send(Failed(str(error) if expected else f"{type(error).__name__}: {error}", starting))
    finally:
        logging.shutdown()
        os._exit(0)  # nothing to save; a normal exit would let torch wait for graphs and for ranks that have ended


def _beat(pulse: Connection, progress: Progress, most_silent: int | None, on_end: Callable[[str], None]) -> None:
    """Answer rank 0's beats with this rank's progress, as long as this process runs.

    A suspended rank 0 cannot end its followers, so a follower kills it after some silent beats, which ends all ranks.
    """
    silent = 0
    try:
        pulse.recv()
        pulse.send(progress.counts)
        while True:
            if pulse.poll(BEAT_S):
                pulse.recv()
                pulse.send(progress.counts)
                silent = 0
            elif most_silent is not None and (silent := silent + 1) > most_silent:
                silence = f"has not answered for {most_silent * BEAT_S:.0f} s"
                on_end(f"rank 0 (process {os.getppid()}) {silence}")
                log.critical("Rank 0 %s; this rank kills it.", silence)
                os.kill(os.getppid(), signal.SIGKILL)
                return
    except (EOFError, OSError):
        os._exit(0)


class Follower:
    """A follower's model and pool, with rank 0's adapters in the same pages."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel, commands: Connection) -> None:
        self._commands = commands
        self._model, self._pool = loaded.model, loaded.pool
        self._offsets = group_offsets(loaded.targets.shapes)
        self._table = DeviceTable(loaded.tables, loaded.model.shape.targets) if loaded.tables is not None else None
        self._copies = StreamCopies(loaded.pool.data.device) if loaded.pool.data.is_cuda else InlineCopies()
        self._residents = Residents(loaded.pool, self._table, self._copies)
        self._runner = build_runner(config, loaded)
        self._slots: dict[int, AdapterSlot] = {}
        self._slabs: dict[int, torch.Tensor] = {}
        self._arriving: dict[int, Arrival] = {}
        self._last_contents = LastContents()

    def run(self) -> None:
        """Execute commands until ``Stop``."""
        while not isinstance(command := self._next(), Stop):
            self._obey(command)

    def _next(self) -> Command:
        while self._arriving and not self._commands.poll(_COPY_POLL_S):
            for generation, arrival in list(self._arriving.items()):
                if arrival.done():
                    del self._arriving[generation]
                    self._commands.send(Copied(generation))
        command: Command = self._commands.recv()
        return command

    def _obey(self, command: Command) -> None:
        match command:
            case Step(inputs, spans):
                self._await([*(span.generation for span in spans), *(rows[0] for rows in inputs.embeddings)])
                self._runner.follow(inputs, [self._span(span) for span in spans], self._embeddings(inputs))
            case Replay(shape, contents, rows, adapters, greedy):
                self._await(adapters)
                self._graphs().follow_replay(shape, self._last_contents.contents(contents), rows, greedy)
            case CopyPages(source, target):
                self._pool.copy_pages([*source], [*target])
            case Capture(shape):
                self._graphs().follow_capture(shape)
            case Load():
                self._load(command)
            case Drop(generation):
                self._drop(generation)
            case ChangeExperts(generation, change):
                self._residents.change(self._residency(generation), change)
            case SettleExperts(generation):
                self._residents.settle(self._residency(generation))
            case JudgeMerge(generation):
                self._await([generation])
                harmless = self._merged().harmless(self._slots[generation])
                self._model.parallel.smallest(harmless, self._model.device)
            case Merge(generation, delta_correction_index):
                self._merge(self._slots[generation], delta_correction_index)
            case WeightNorms(layer):
                self._model.parallel.sums(self._model.weights.layers[layer].norms(), self._model.device)
            case Slab(index, num_bytes):
                descriptor = recv_handle(self._commands)
                self._slabs[index] = map_slab(descriptor, num_bytes, pinned=self._pool.data.is_cuda)
                os.close(descriptor)
            case DropSlab(index):
                del self._slabs[index]
            case _:
                raise AssertionError(f"unknown command {command}")

    def _load(self, load: Load) -> None:
        world, rank = self._model.parallel.world, self._model.parallel.rank
        shape = (world, self._pool.geometry.num_layer_groups, load.layout.num_pages, self._pool.geometry.page_elems)
        num_bytes = math.prod(shape) * self._pool.data.element_size()
        of_ranks = self._slabs[load.slab][load.start : load.start + num_bytes].view(self._pool.data.dtype).view(shape)
        packed = PackedAdapter(load.digest, load.rank, load.layout, of_ranks[rank])
        pages, residency = list(load.pages), None
        if load.residency_row >= 0:
            index = load.table_index
            residency = ExpertResidency(packed, self._pool.geometry, pages, index, load.residency_row)
        slot = AdapterSlot(packed, pages, self._pool, self._offsets, load.table_index, residency)
        self._slots[load.generation] = slot
        arrival = self._copies.start(lambda: slot.fill(packed, self._table))
        if arrival is None:
            self._commands.send(Copied(load.generation))
        else:
            self._arriving[load.generation] = arrival

    def _drop(self, generation: int) -> None:
        self._await([generation])  # its pages are free for others only after the copy
        slot = self._slots.pop(generation)
        if slot.residency is not None:
            self._residents.forget(slot.residency)
        slot.close()

    def _residency(self, generation: int) -> ExpertResidency:
        residency = self._slots[generation].residency
        assert residency is not None, "rank 0 changes the experts of an adapter that has all"
        return residency

    def _await(self, generations: Iterable[int]) -> None:
        """Make the device wait for copies of adapters that it reads next."""
        for generation in generations:
            if arrival := self._arriving.get(generation):
                arrival.join()

    def _span(self, span: SpanOf) -> LoraSpan:
        return LoraSpan(self._slots[span.generation], span.start, span.stop, span.sign)

    def _embeddings(self, inputs: StepInputs) -> list[EmbeddingLayerSpan]:
        embedding_layers = (
            (self._slots[generation].embedding, start, stop) for generation, start, stop in inputs.embeddings
        )
        return [EmbeddingLayerSpan(layer, start, stop) for layer, start, stop in embedding_layers if layer is not None]

    def _merged(self) -> MergedLayers:
        assert self._model.merged is not None, "rank 0 merges in a mode that does not"
        return self._model.merged

    def _merge(self, slot: AdapterSlot, delta_correction_index: int) -> None:
        self._await([slot.generation])
        if self._table:
            self._table.write(delta_correction_index, slot.layout, slot.pages, -1)
        self._merged().merge(slot)

    def _graphs(self) -> GraphRunner:
        # Only ranks on GPUs import this, which needs triton.
        from lora_engine.execution.graph_runner import GraphRunner

        assert isinstance(self._runner, GraphRunner)
        return self._runner
