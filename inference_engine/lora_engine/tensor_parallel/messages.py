"""What rank 0 tells the other ranks, and what they answer. Between processes of one program: pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_engine.adapters.layout import AdapterLayout
from lora_engine.execution.step_inputs import StepInputs
from lora_engine.model.batch import LoraSpan

from .step_changes import Changes

if TYPE_CHECKING:
    from lora_engine.model.graph_shapes import GraphShape  # needs triton


@dataclass(frozen=True, slots=True)
class SpanOf:
    """As ``LoraSpan``; of the adapter whose slot has this generation on rank 0."""

    generation: int
    start: int
    stop: int
    sign: int

    @classmethod
    def of(cls, span: LoraSpan) -> SpanOf:
        return cls(span.slot.generation, span.start, span.stop, span.sign)


@dataclass(frozen=True, slots=True)
class Slab:
    """``num_bytes`` of shared memory, whose file descriptor follows."""

    index: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DropSlab:
    index: int


@dataclass(frozen=True, slots=True)
class Load:
    """Copy an adapter into ``pages``. It lies in shared memory, one rank's part after another's."""

    generation: int
    digest: str
    rank: int
    layout: AdapterLayout
    pages: tuple[int, ...]
    table_index: int
    slab: int
    start: int  # bytes


@dataclass(frozen=True, slots=True)
class Drop:
    generation: int


@dataclass(frozen=True, slots=True)
class Step:
    inputs: StepInputs
    spans: tuple[SpanOf, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    shape: GraphShape


@dataclass(frozen=True, slots=True)
class Replay:
    """A step in a captured graph. ``adapters``: generations of those that it reads."""

    shape: GraphShape
    contents: Changes
    rows: int
    adapters: tuple[int, ...]
    greedy: bool


@dataclass(frozen=True, slots=True)
class JudgeMerge:
    """Take part in asking whether an adapter can be merged (``MergeableWeights.harmless``)."""

    generation: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge it, and describe it to the kernels at ``delta_correction_index`` as what takes it away again."""

    generation: int
    delta_correction_index: int


@dataclass(frozen=True, slots=True)
class WeightNorms:
    layer: int


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Slab | DropSlab | Load | Drop | Step | Capture | Replay | JudgeMerge | Merge | WeightNorms | Stop


@dataclass(frozen=True, slots=True)
class Copied:
    """An adapter is on this rank's device; its host memory is not read any more."""

    generation: int


@dataclass(frozen=True, slots=True)
class Failed:
    """This rank ends."""

    reason: str
    starting: bool


Answer = Copied | Failed
