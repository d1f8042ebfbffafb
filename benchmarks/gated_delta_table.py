"""Time of the gated delta rule and its convolution beside the bytes they must move.

    python benchmarks/gated_delta_table.py --out benchmarks/results/gated_delta.jsonl

One layer of Qwen3.5-9B in bfloat16 with states in float32: 16 key heads and 32 value heads of 128. A decode step of 16
to 256 sequences reads and writes each sequence's state of 2 MiB once, so its floor is that, also with runs of rows (for
drafts), alone, and each with four drafts after four accepted ones; prompts of 4,096 tokens in
one span and in sixteen read and write queries, keys, values, gates and outputs. Each measurement replays a CUDA graph
of eight calls on different data. The floor takes the copy bandwidth that is measured on the card first.
"""

from __future__ import annotations

import torch
from kernel_table import LAYERS, measure
from rows import Rows, parser_of, traffic

from lora_kernels.gated_delta import (
    CHUNK,
    DeltaInputs,
    DeltaShape,
    DeltaWeights,
    chunk_table,
    delta_spans,
    delta_tokens,
    norm_and_gate,
)
from lora_kernels.short_convolution import convolve_spans, convolve_tokens
from lora_kernels.state_pages import DecodeRuns, RunField, StateRows, segment

SHAPE = DeltaShape(heads=32, key_heads=16, key_dim=128, value_dim=128, eps=1e-6)
TAPS, PAGE_BYTES, DRAFTS = 3, 65_536, 4
VALUES = SHAPE.heads * SHAPE.value_dim
STATES = StateRows(SHAPE.key_dim, SHAPE.heads * SHAPE.value_dim, PAGE_BYTES // 4)
TAP_ROWS = StateRows(
    segment(SHAPE.channels), TAPS * SHAPE.channels // segment(SHAPE.channels), PAGE_BYTES // 2,
    first_page=STATES.end_page,
)  # fmt: skip


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def copy_bandwidth() -> float:
    """Return the bytes a second of a device copy, read and written."""
    source = torch.empty(LAYERS, 256 << 20, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    us = measure(lambda layer: target[layer].copy_(source[layer]))
    return 2 * source[0].nbytes / us * 1e6


class Layers:
    """Inputs, weights and state pages of eight layers."""

    def __init__(self, tokens: int, sequences: int) -> None:
        self.tokens = tokens
        self.x = [
            DeltaInputs(
                random(tokens, SHAPE.channels), *random(tokens, 2 * SHAPE.heads).chunk(2, 1), random(tokens, VALUES)
            )
            for _ in range(LAYERS)
        ]
        heads = torch.zeros(SHAPE.heads, device="cuda")
        self.weights = DeltaWeights(heads, random(SHAPE.heads), random(SHAPE.value_dim))
        self.convolution = random(SHAPE.channels, TAPS + 1)
        pages = TAP_ROWS.end_page
        self.pool = torch.zeros(LAYERS, sequences * pages + 1, PAGE_BYTES // 2, device="cuda", dtype=torch.bfloat16)
        self.table = (torch.randperm(sequences * pages, device="cuda") + 1).int().view(sequences, pages)
        self.out, self.convolved = random(tokens, VALUES), random(tokens, SHAPE.channels)
        self.lengths = torch.full((sequences,), 101, dtype=torch.int32, device="cuda")
        length = tokens // sequences
        tables = chunk_table([(i * length, (i + 1) * length, 100) for i in range(sequences)])
        self.spans, self.chunks = (table.cuda() for table in tables)
        per_span = -(-length // CHUNK)
        self.first_chunks = torch.arange(sequences, dtype=torch.int32, device="cuda") * per_span
        self.kept = random(LAYERS, sequences, DRAFTS, SHAPE.kept_columns[-1])
        self.runs = torch.zeros(len(RunField), tokens, dtype=torch.int32, device="cuda")
        self.runs[RunField.ROWS] = 1

    def draft(self) -> None:
        """Let each sequence have a row and drafts, after as many accepted ones."""
        rows = 1 + DRAFTS
        self.table, self.lengths = self.table.repeat_interleave(rows, 0), self.lengths.repeat_interleave(rows, 0)
        self.runs.zero_()
        for field, value in ((RunField.ROWS, rows), (RunField.DRAFTS, DRAFTS), (RunField.REPLAYS, DRAFTS)):
            self.runs[field, ::rows] = value
        self.runs[RunField.SLOT, ::rows] = torch.arange(len(self.table) // rows, dtype=torch.int32, device="cuda")

    def decode(self, layer: int) -> None:
        pool = self.pool[layer].view(torch.float32)
        delta_tokens(self.x[layer], self.weights, pool, self.table, self.lengths, STATES, SHAPE, self.out)

    def decode_runs(self, layer: int) -> None:
        pool, runs = self.pool[layer].view(torch.float32), DecodeRuns(self.runs, self.kept[layer])
        delta_tokens(self.x[layer], self.weights, pool, self.table, self.lengths, STATES, SHAPE, self.out, runs)

    def decode_runs_convolution(self, layer: int) -> None:
        convolve_tokens(
            self.x[layer].qkv, self.convolution, None, self.pool[layer], self.table, self.lengths, TAP_ROWS,
            self.convolved, silu=True, runs=DecodeRuns(self.runs, self.kept[layer]),
        )  # fmt: skip

    def decode_convolution(self, layer: int) -> None:
        convolve_tokens(
            self.x[layer].qkv, self.convolution, None, self.pool[layer], self.table, self.lengths, TAP_ROWS,
            self.convolved, silu=True,
        )  # fmt: skip

    def prefill(self, layer: int) -> None:
        pool = self.pool[layer].view(torch.float32)
        delta_spans(
            self.x[layer], self.weights, pool, self.table, self.spans, self.chunks, self.first_chunks, STATES, SHAPE,
            self.out,
        )  # fmt: skip
        norm_and_gate(self.out, self.x[layer].z, self.weights.norm, self.spans, SHAPE)

    def prefill_convolution(self, layer: int) -> None:
        convolve_spans(
            self.x[layer].qkv, self.convolution, None, self.pool[layer], self.table, self.spans, self.chunks, CHUNK,
            TAP_ROWS, self.convolved, silu=True,
        )  # fmt: skip

    def moved(self) -> int:
        """Number of bytes of the inputs and outputs of one layer."""
        x = self.x[0]
        return x.qkv.nbytes + 2 * x.a.nbytes + x.z.nbytes + self.out.nbytes


def main() -> None:
    arguments = parser_of(__doc__, out=True).parse_args()
    rows = Rows(arguments.out, "gated delta", "qwen3.5-9b")
    bandwidth = copy_bandwidth()
    rows.add("device copy", "bandwidth", bandwidth / 1e9, "GB/s")

    def add(case: str, us: float, moved: int) -> None:
        rows.add(case, "kernel_us", us, "us", moved / bandwidth * 1e6, settings=traffic(moved, us))

    state = 2 * 4 * STATES.length * STATES.count
    for sequences in (1, 16, 64, 256):
        layers = Layers(sequences, sequences)
        add(f"decode {sequences}", measure(layers.decode), sequences * state + layers.moved())
        taps = 2 * 2 * TAP_ROWS.length * TAP_ROWS.count
        add(
            f"convolution of {sequences} tokens", measure(layers.decode_convolution),
            sequences * taps + 2 * layers.convolved.nbytes,
        )  # fmt: skip
        add(f"decode {sequences} as runs", measure(layers.decode_runs), sequences * state + layers.moved())
        add(
            f"convolution of {sequences} tokens as runs", measure(layers.decode_runs_convolution),
            sequences * taps + 2 * layers.convolved.nbytes,
        )  # fmt: skip
        del layers
        if sequences > 32:
            continue
        layers = Layers((1 + DRAFTS) * sequences, sequences)
        layers.draft()
        add(f"decode {sequences} with drafts", measure(layers.decode_runs), sequences * state + layers.moved())
        add(
            f"convolution of {sequences} tokens with drafts", measure(layers.decode_runs_convolution),
            sequences * taps + 2 * layers.convolved.nbytes,
        )  # fmt: skip
        del layers
    for sequences in (1, 16):
        layers = Layers(4096, sequences)
        add(f"4096 tokens in {sequences} prompts", measure(layers.prefill), sequences * state + layers.moved())
        add(f"convolution, {sequences} prompts", measure(layers.prefill_convolution), 2 * layers.convolved.nbytes)
        del layers


if __name__ == "__main__":
    main()
