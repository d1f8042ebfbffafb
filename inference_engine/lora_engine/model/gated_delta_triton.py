"""The gated delta layers on a GPU: kernels over states in pages of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lora_engine.memory.page_pool import PagePool
from lora_engine.memory.pinned import to_device
from lora_kernels.gated_delta import (
    DeltaInputs,
    DeltaWeights,
    chunk_table,
    delta_spans,
    delta_tokens,
    norm_and_gate,
)
from lora_kernels.short_convolution import convolve_spans, convolve_tokens
from lora_kernels.state_pages import CHUNK, DecodeRuns

from .batch import PrefillSpan
from .shape import DeltaLayers
from .weights import DeltaParameters


@dataclass(frozen=True, slots=True)
class SpanTables:
    """The prompts of a step for the kernels: int32 tables on the device (see ``span_rows``).

    ``table [spans, state pages]``.
    """

    spans: torch.Tensor
    chunks: torch.Tensor
    first_chunks: torch.Tensor
    table: torch.Tensor

    @classmethod
    def of(cls, spans: Sequence[PrefillSpan], device: torch.device) -> SpanTables:
        rows = span_rows([(span.start, span.stop, span.context) for span in spans])
        by_span, chunks, first_chunks = (to_device(tensor, device) for tensor in rows)
        table = torch.stack([span.state_pages for span in spans if span.state_pages is not None]).int()
        return cls(by_span, chunks, first_chunks, table)


def span_rows(spans: Sequence[tuple[int, int, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the tables of ``chunk_table``, and the index of each span's first chunk ``[spans]`` int32."""
    counts = torch.tensor([-(-(stop - start) // CHUNK) for start, stop, _ in spans], dtype=torch.int32)
    return *chunk_table(spans), (counts.cumsum(0) - counts).int()


def most_chunks(tokens: int, spans: int) -> int:
    """Return the maximum number of chunks of so many spans with ``tokens`` tokens together."""
    return tokens // CHUNK + spans


def gated_delta(
    layer: int,
    weights: DeltaParameters,
    projected: torch.Tensor,
    gates: torch.Tensor,
    pool: PagePool,
    decodes: tuple[torch.Tensor, torch.Tensor],
    prompts: SpanTables | None,
    layers: DeltaLayers,
    padded: bool = False,
    runs: DecodeRuns | None = None,
) -> torch.Tensor:
    """Compute ``Ops.gated_delta``. ``decodes`` are the state pages ``[rows, state pages]`` of the decode rows, which
    come first, and the lengths ``[rows]`` of their sequences; ``runs``: see ``delta_tokens``.

    ``padded``: rows beyond those of sequences exist and must stay finite, also among the decode rows, as may the first
    of the prompts' rows. Such decode rows have no state pages.
    """
    shape, state, pages = layers.shape, layers.states[layer], pool.layer(layer)
    states, (table, lengths) = pages.view(torch.float32), decodes
    mixed, z = projected.split((shape.channels, shape.heads * shape.value_dim), dim=1)
    rate, decay = gates.split(shape.heads, dim=1)
    convolved, out = torch.empty_like(mixed), (torch.zeros_like if padded else torch.empty_like)(z)
    x = DeltaInputs(convolved, decay, rate, z)
    small = DeltaWeights(weights.a_log, weights.dt_bias, weights.norm)
    if n := len(table):
        convolve_tokens(
            mixed[:n], weights.convolution, None, pages, table, lengths, state.convolution, convolved[:n], silu=True,
            runs=runs, padded=padded,
        )  # fmt: skip
        delta_tokens(x.rows(0, n), small, states, table, lengths, state.recurrent, shape, out[:n], runs, padded)
    if prompts is not None:
        tables = prompts.spans, prompts.chunks
        convolve_spans(
            mixed, weights.convolution, None, pages, prompts.table, *tables, CHUNK, state.convolution, convolved,
            silu=True,
        )  # fmt: skip
        delta_spans(x, small, states, prompts.table, *tables, prompts.first_chunks, state.recurrent, shape, out)
        norm_and_gate(out, z, weights.norm, prompts.spans, shape)
    return out
