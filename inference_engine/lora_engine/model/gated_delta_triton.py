"""The gated delta layers on a GPU: kernels over states in pages of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lora_engine.memory.page_pool import PagePool
from lora_engine.memory.pinned import to_device
from lora_kernels.gated_delta import (
    CHUNK,
    DeltaInputs,
    DeltaWeights,
    chunk_table,
    delta_spans,
    delta_tokens,
    norm_and_gate,
)
from lora_kernels.short_convolution import convolve_spans, convolve_tokens

from .batch import PrefillSpan
from .shape import DeltaLayers
from .weights import DeltaParameters


@dataclass(frozen=True, slots=True)
class SpanTables:
    """The prompts of a step for the kernels: int32 tables on the device (see ``chunk_table``).

    ``table [spans, state pages]``. Rows of prompts begin at ``first_row`` of the batch.
    """

    spans: torch.Tensor
    chunks: torch.Tensor
    first_chunks: torch.Tensor
    table: torch.Tensor
    first_row: int

    @classmethod
    def of(cls, spans: Sequence[PrefillSpan], device: torch.device) -> SpanTables:
        rows = [(span.start, span.stop, span.context) for span in spans]
        by_span, chunks = chunk_table(rows)
        counts = torch.tensor([-(-(stop - start) // CHUNK) for start, stop, _ in rows], dtype=torch.int32)
        first_chunks = (counts.cumsum(0) - counts).int()
        table = torch.stack([span.state_pages for span in spans if span.state_pages is not None]).int()
        return cls(
            to_device(by_span, device),
            to_device(chunks, device),
            to_device(first_chunks, device),
            table,
            spans[0].start,
        )


def gated_delta(
    layer: int,
    weights: DeltaParameters,
    projected: torch.Tensor,
    gates: torch.Tensor,
    pool: PagePool,
    decodes: tuple[torch.Tensor, torch.Tensor],
    prompts: SpanTables | None,
    layers: DeltaLayers,
) -> torch.Tensor:
    """Compute ``Ops.gated_delta``. ``decodes`` are the state pages ``[rows, state pages]`` and positions ``[rows]`` of
    the decode rows, which come first.
    """
    shape, state, pages = layers.shape, layers.states[layer], pool.layer(layer)
    states, (table, positions) = pages.view(torch.float32), decodes
    mixed, z = projected.split((shape.channels, shape.heads * shape.value_dim), dim=1)
    rate, decay = gates.split(shape.heads, dim=1)
    convolved, out = torch.empty_like(mixed), torch.empty_like(z)
    x = DeltaInputs(convolved, decay, rate, z)
    small = DeltaWeights(weights.a_log, weights.dt_bias, weights.norm)
    if n := len(table):
        convolve_tokens(
            mixed[:n], weights.convolution, None, pages, table, positions, state.convolution, convolved[:n], silu=True
        )
        delta_tokens(x.rows(0, n), small, states, table, positions, state.recurrent, shape, out[:n])
    if prompts is not None:
        tables = prompts.spans, prompts.chunks
        convolve_spans(
            mixed, weights.convolution, None, pages, prompts.table, *tables, CHUNK, state.convolution, convolved,
            silu=True,
        )  # fmt: skip
        delta_spans(x, small, states, prompts.table, *tables, prompts.first_chunks, state.recurrent, shape, out)
        first = prompts.first_row
        norm_and_gate(out[first:], z[first:], weights.norm, shape)
    return out
