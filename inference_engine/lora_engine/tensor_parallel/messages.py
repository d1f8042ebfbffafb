"""The messages between rank 0 and the other ranks, pickled: all processes run the same program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_engine.adapters.expert_residency import Change
from lora_engine.adapters.layout import AdapterLayout
from lora_engine.execution.step_inputs import StepInputs
from lora_engine.model.batch import LoraSpan

from .step_changes import Changes

if TYPE_CHECKING:
    from lora_engine.model.graph_shapes import GraphShape  # needs triton


@dataclass(frozen=True, slots=True)
class SpanOf:
    """A ``LoraSpan`` on the wire: the slot's generation on rank 0 identifies the adapter."""

    generation: int
    start: int
    stop: int
    sign: int

    @classmethod
    def of(cls, span: LoraSpan) -> SpanOf:
        return cls(span.slot.generation, span.start, span.stop, span.sign)


@dataclass(frozen=True, slots=True)
class Slab:
    """A slab of ``num_bytes`` of shared memory; its file descriptor follows the message."""

    index: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DropSlab:
    index: int


@dataclass(frozen=True, slots=True)
class Load:
    """A command to copy an adapter into ``pages`` from shared memory, which has the parts of all ranks in order.

    ``residency_row`` above -1: the pages have room for only some of its experts, see ``ExpertResidency``.
    """

    generation: int
    digest: str
    rank: int
    layout: AdapterLayout
    pages: tuple[int, ...]
    table_index: int
    slab: int
    start: int  # bytes
    residency_row: int = -1


@dataclass(frozen=True, slots=True)
class Drop:
    generation: int


@dataclass(frozen=True, slots=True)
class ChangeExperts:
    """A command to begin a change of which experts of an adapter lie in the pool."""

    generation: int
    change: Change


@dataclass(frozen=True, slots=True)
class SettleExperts:
    """A command to read the experts that the last change copies from the pool, once they are there."""

    generation: int


@dataclass(frozen=True, slots=True)
class Step:
    inputs: StepInputs
    spans: tuple[SpanOf, ...]


@dataclass(frozen=True, slots=True)
class CopyPages:
    """A command to copy pages of the pool, see ``PagePool.copy_pages``."""

    source: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    shape: GraphShape


@dataclass(frozen=True, slots=True)
class Replay:
    """A command to replay a captured graph; ``adapters`` are the generations of the adapters that the step reads."""

    shape: GraphShape
    contents: Changes
    rows: int
    adapters: tuple[int, ...]
    greedy: bool


@dataclass(frozen=True, slots=True)
class JudgeMerge:
    """A command to take part in the check whether an adapter can be merged (``MergeableWeights.harmless``)."""

    generation: int


@dataclass(frozen=True, slots=True)
class Merge:
    """A command to merge an adapter, and to write its negative to the kernels' tables at ``delta_correction_index``."""

    generation: int
    delta_correction_index: int


@dataclass(frozen=True, slots=True)
class WeightNorms:
    layer: int


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = (
    Slab | DropSlab | Load | Drop | ChangeExperts | SettleExperts | Step | CopyPages | Capture | Replay | JudgeMerge
    | Merge | WeightNorms | Stop
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Copied:
    """The report that an adapter was copied to this rank's device, which no longer reads its host memory."""

    generation: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The report that a rank failed and ends; ``starting``: before it was ready."""

    reason: str
    starting: bool


Answer = Copied | Failed
