"""The gated delta rule and the short convolution against a loop over tokens in float64, in poisoned pages."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

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
from lora_kernels.state_pages import DecodeRuns, StateRows, segment

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
SHAPES = [
    DeltaShape(4, 2, 16, 16, 1e-6),
    DeltaShape(3, 3, 32, 64, 1e-5, beta_scale=2.0),
    DeltaShape(4, 1, 24, 40, 1e-6),
    # That of published models, whose products are compiled otherwise; too slow in the interpreter.
    *([DeltaShape(4, 2, 128, 128, 1e-6)] if DEVICE == "cuda" else []),
]


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    assert torch.isfinite(got).all()
    return float((got.double() - want).norm() / want.norm())


def inputs_of(tokens: int, shape: DeltaShape, dtype: torch.dtype) -> DeltaInputs:
    wide = torch.randn(tokens, shape.channels + 5, device=DEVICE).to(dtype)
    gates = torch.randn(tokens, 2 * shape.heads, device=DEVICE).to(dtype)
    z = torch.randn(tokens, shape.heads * shape.value_dim, device=DEVICE).to(dtype)
    return DeltaInputs(wide[:, : shape.channels], gates[:, : shape.heads], gates[:, shape.heads :], z)


def weights_of(shape: DeltaShape, dtype: torch.dtype) -> DeltaWeights:
    return DeltaWeights(
        torch.rand(shape.heads, device=DEVICE) * 2 - 1,
        torch.randn(shape.heads, device=DEVICE).to(dtype),
        torch.randn(shape.value_dim, device=DEVICE).to(dtype),
    )


def by_token(
    x: DeltaInputs, weights: DeltaWeights, shape: DeltaShape, state: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs before the norm ``[tokens, heads, value_dim]``, and the state ``[heads, value_dim, key_dim]``."""
    groups, key = shape.heads // shape.key_heads, shape.key_heads * shape.key_dim
    q, k, v = x.qkv.double().split((key, key, shape.heads * shape.value_dim), dim=1)
    q, k = (y.view(-1, shape.key_heads, shape.key_dim).repeat_interleave(groups, 1) for y in (q, k))
    q, k = (y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for y in (q, k))
    v = v.view(-1, shape.heads, shape.value_dim)
    decay = (-weights.a_log.double().exp() * F.softplus(x.a.double() + weights.dt_bias.double())).exp()
    beta = shape.beta_scale * x.b.double().sigmoid()
    if state is None:
        state = torch.zeros(shape.heads, shape.value_dim, shape.key_dim, dtype=torch.float64, device=DEVICE)
    outs = []
    for t in range(len(v)):
        state = state * decay[t, :, None, None]
        change = (v[t] - torch.einsum("hvk,hk->hv", state, k[t])) * beta[t, :, None]
        state = state + change[:, :, None] * k[t, :, None, :]
        outs.append(torch.einsum("hvk,hk->hv", state, q[t]) * shape.key_dim**-0.5)
    return torch.stack(outs), state


def gated(out: torch.Tensor, x: DeltaInputs, weights: DeltaWeights, shape: DeltaShape) -> torch.Tensor:
    normed = out * (out.square().mean(-1, keepdim=True) + shape.eps).rsqrt() * weights.norm.double()
    return (normed * F.silu(x.z.double()).view_as(normed)).flatten(1)


class Pages:
    """State pages of some sequences, all NaN at first."""

    def __init__(self, sequences: int, rows: StateRows, dtype: torch.dtype) -> None:
        self.rows, pages = rows, rows.end_page
        self.pool = torch.full((sequences * pages + 1, rows.page_elems), float("nan"), dtype=dtype, device=DEVICE)
        order = torch.randperm(sequences * pages)[: sequences * pages] + 1
        self.table = order.view(sequences, pages).int().to(DEVICE)

    def read(self, sequence: int) -> torch.Tensor:
        rows = torch.arange(self.rows.first, self.rows.first + self.rows.count)
        pages = self.table[sequence].long().cpu()[self.rows.first_page + rows // self.rows.per_page]
        flat = self.pool.cpu().view(len(self.pool), -1)[:, : self.rows.per_page * self.rows.length]
        return flat.view(len(flat), self.rows.per_page, -1)[pages, rows % self.rows.per_page].to(DEVICE)


def pages_of(shape: DeltaShape, sequences: int) -> Pages:
    # A page that ends within a head, and another layer's rows before these.
    rows = StateRows(shape.key_dim, shape.heads * shape.value_dim, 7 * shape.key_dim + 3, first=5, first_page=1)
    return Pages(sequences, rows, torch.float32)


def run_spans(
    lengths: list[int],
    contexts: list[int],
    x: DeltaInputs,
    weights: DeltaWeights,
    shape: DeltaShape,
    pages: Pages,
    padding: int = 0,
) -> torch.Tensor:
    """Run spans, and behind them as many empty ones, whose state would be on pages that do not exist."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    spans, chunks = chunk_table(
        [(start, start + n, context) for start, n, context in zip(starts, lengths, contexts, strict=True)]
    )
    firsts = torch.tensor([sum(-(-n // CHUNK) for n in lengths[:i]) for i in range(len(lengths))], dtype=torch.int32)
    spans, chunks, firsts, table = (
        F.pad(part.cpu(), [*[0, 0] * (part.dim() - 1), 0, padding], value=value).to(DEVICE)
        for part, value in ((spans, 0), (chunks, 0), (firsts, 0), (pages.table, 1 << 30))
    )
    out = torch.full_like(x.z, float("nan"))
    delta_spans(x, weights, pages.pool, table, spans, chunks, firsts, pages.rows, shape, out)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prompts_in_chunks_then_single_tokens(shape: DeltaShape, dtype: torch.dtype) -> None:
    weights, pages, lengths = weights_of(shape, dtype), pages_of(shape, 3), [CHUNK + 7, 1, CHUNK]
    x = inputs_of(sum(lengths), shape, dtype)
    out = run_spans(lengths, [0, 0, 0], x, weights, shape, pages)
    parts = [x.rows(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(3)]
    wants = [by_token(part, weights, shape) for part in parts]
    assert error(out, torch.cat([want for want, _ in wants]).flatten(1)) < TOLERANCE[dtype]
    # A second chunk of each, behind what is in the pool.
    more, again = [3, CHUNK, 2], inputs_of(CHUNK + 5, shape, dtype)
    out = run_spans(more, lengths, again, weights, shape, pages, padding=2)
    before = out[:2].clone()
    norm_and_gate(out, again.z, weights.norm, torch.tensor([[2, 3, 0]], dtype=torch.int32, device=DEVICE), shape)
    assert torch.equal(out[:2], before)  # rows before the first span
    norm_and_gate(out[:2], again.z[:2], weights.norm, torch.zeros(1, 3, dtype=torch.int32, device=DEVICE), shape)
    states = []
    for i in range(3):
        part = again.rows(sum(more[:i]), sum(more[: i + 1]))
        want, state = by_token(part, weights, shape, wants[i][1])
        got = out[sum(more[:i]) : sum(more[: i + 1])]
        assert error(got, gated(want, part, weights, shape)) < 2 * TOLERANCE[dtype]
        assert error(pages.read(i).view(state.shape), state) < TOLERANCE[dtype]
        states.append(state)
    # One more token of each, and a sequence's first: its pages hold what another one left.
    single = inputs_of(3, shape, dtype)
    seen = torch.tensor([11, 1, 11], dtype=torch.int32, device=DEVICE)
    out = torch.full_like(single.z, float("nan"))
    delta_tokens(single, weights, pages.pool, pages.table, seen, pages.rows, shape, out)
    for i in range(3):
        want, state = by_token(single.rows(i, i + 1), weights, shape, None if i == 1 else states[i])
        assert error(out[i : i + 1], gated(want, single.rows(i, i + 1), weights, shape)) < 2 * TOLERANCE[dtype]
        assert error(pages.read(i).view(state.shape), state) < TOLERANCE[dtype]


def test_equal_keys_do_not_cancel() -> None:
    """A text of one repeated token: the powers of the chunk's matrix are as large as 10^18."""
    shape, dtype = SHAPES[0], DTYPES[0]
    weights, pages = weights_of(shape, dtype), pages_of(shape, 1)
    weights.a_log.fill_(-20.0)
    x = inputs_of(CHUNK, shape, dtype)
    x.qkv[:] = x.qkv[:1].clone()
    x.b.fill_(8.0)
    out = run_spans([CHUNK], [0], x, weights, shape, pages)
    # Each token corrects what the ones before it rounded, so that the result is a difference of nearly equal numbers.
    assert error(out, by_token(x, weights, shape)[0].flatten(1)) < 4 * TOLERANCE[dtype]


def test_what_a_span_computes_depends_on_nothing_beside_it() -> None:
    shape, dtype = SHAPES[0], DTYPES[0]
    weights, pages, alone = weights_of(shape, dtype), pages_of(shape, 3), pages_of(shape, 3)
    x = inputs_of(CHUNK + 30, shape, dtype)
    out = run_spans([10, CHUNK + 3, 17], [0, 0, 0], x, weights, shape, pages)
    part = run_spans([CHUNK + 3], [0], x.rows(10, CHUNK + 13), weights, shape, alone)
    assert torch.equal(out[10 : CHUNK + 13], part)
    assert torch.equal(pages.read(1), alone.read(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("channels", "width", "bias", "silu"), [(192, 4, False, True), (40, 3, True, False), (6, 2, True, True)]
)
def test_the_convolution(channels: int, width: int, bias: bool, silu: bool, dtype: torch.dtype) -> None:
    taps, length = width - 1, segment(channels)
    rows = StateRows(length, taps * (channels // length), 3 * length + 1, first=2, first_page=1)
    pages = Pages(3, rows, dtype)
    weight = torch.randn(channels, width, device=DEVICE).to(dtype)
    offset = torch.randn(channels, device=DEVICE).to(dtype) if bias else None
    parts = [torch.randn(n, channels, device=DEVICE).to(dtype) for n in (70, 1, 5)]
    more = [torch.randn(n, channels, device=DEVICE).to(dtype) for n in (1, 9, 2)]
    last = torch.randn(3, channels, device=DEVICE).to(dtype)

    def wanted(inputs: list[torch.Tensor]) -> torch.Tensor:
        x = torch.cat(inputs).double()
        padded = F.pad(x.T[None], (taps, 0))
        y = F.conv1d(padded, weight.double()[:, None], None if offset is None else offset.double(), groups=channels)
        return (F.silu(y) if silu else y)[0].T

    for inputs, contexts in ((parts, [0, 0, 0]), (more, [70, 1, 5])):
        lengths = [len(part) for part in inputs]
        starts = [sum(lengths[:i]) for i in range(3)]
        table = chunk_table([(s, s + n, c) for s, n, c in zip(starts, lengths, contexts, strict=True)])
        spans, chunks, places = (F.pad(part.cpu(), (0, 0, 0, 1)).to(DEVICE) for part in (*table, pages.table))
        x = torch.cat(inputs)
        out = torch.full_like(x, float("nan"))
        convolve_spans(x, weight, offset, pages.pool, places, spans, chunks, CHUNK, rows, out, silu=silu)
        for i in range(3):
            whole = [inputs[i]] if inputs is parts else [parts[i], inputs[i]]
            assert error(out[starts[i] : starts[i] + lengths[i]], wanted(whole)[-lengths[i] :]) < TOLERANCE[dtype]
    out = torch.full_like(last, float("nan"))
    seen = torch.tensor([72, 1, 8], dtype=torch.int32, device=DEVICE)
    convolve_tokens(last, weight, offset, pages.pool, pages.table, seen, rows, out, silu=silu)
    for i in range(3):
        whole = [last[i : i + 1]] if i == 1 else [parts[i], more[i], last[i : i + 1]]
        assert error(out[i : i + 1], wanted(whole)[-1:]) < TOLERANCE[dtype]
        kept = torch.cat([torch.zeros(taps, channels, dtype=dtype, device=DEVICE), *whole])[-taps:]
        assert torch.equal(pages.read(i).view(taps, channels), kept)


def test_rows_without_a_sequence_are_left_alone() -> None:
    """Rows of padding, and of prompts, among the decode rows of a graph: their first state page is 0."""
    shape, dtype = SHAPES[0], DTYPES[0]
    taps = StateRows(segment(shape.channels), 3 * shape.channels // segment(shape.channels), 4 * shape.channels)
    weights, weight = weights_of(shape, dtype), torch.randn(shape.channels, 4, device=DEVICE).to(dtype)
    x, seen = inputs_of(3, shape, dtype), torch.tensor([7, 1, 9], dtype=torch.int32, device=DEVICE)
    states, inputs = pages_of(shape, 3), Pages(3, taps, dtype)
    for pages in (states, inputs):
        pages.pool.nan_to_num_(0.5)
    outs = []
    for padded in (False, True):
        states_then, inputs_then = deepcopy(states), deepcopy(inputs)
        if padded:
            states_then.table[1] = inputs_then.table[1] = 0
        out, convolved = torch.full_like(x.z, float("nan")), torch.full_like(x.qkv, float("nan"))
        tables = inputs_then.pool, inputs_then.table, seen, taps, convolved
        convolve_tokens(x.qkv, weight, None, *tables, silu=True, padded=padded)
        delta_tokens(x, weights, states_then.pool, states_then.table, seen, states.rows, shape, out, padded=padded)
        assert torch.equal(states_then.pool[0], states.pool[0]) and torch.equal(inputs_then.pool[0], inputs.pool[0])
        outs.append((out, convolved, [pages.read(row) for pages in (states_then, inputs_then) for row in (0, 2)]))
    (out, convolved, pages_read), (padded_out, padded_convolved, padded_pages) = outs
    assert bool(padded_out[1].isnan().all()) and bool(padded_convolved[1].isnan().all())
    rows = [0, 2]
    assert torch.equal(out[rows], padded_out[rows]) and torch.equal(convolved[rows], padded_convolved[rows])
    assert all(map(torch.equal, pages_read, padded_pages))


def runs_of(runs: list[tuple[int, int, int, int]], kept: torch.Tensor | None = None) -> DecodeRuns:
    """Runs (rows, drafts, replays, slot), one behind the other."""
    columns = [column for run in runs for column in (run, *[(0, 0, 0, 0)] * (run[0] - 1))]
    return DecodeRuns(torch.tensor(columns, dtype=torch.int32, device=DEVICE).t().contiguous(), kept)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_runs_are_bitwise_those_of_single_steps(dtype: torch.dtype) -> None:
    """Several certain rows, drafts after them, and drafts alone behind kept ones; then some of them are replayed.

    As an answer that continues after a pre-emption with ``--deterministic``, and as drafts of which some are accepted.
    """
    shape, taps = SHAPES[2], 3
    length = segment(shape.channels)
    weights, width = weights_of(shape, dtype), shape.kept_columns[-1]
    weight = torch.randn(shape.channels, taps + 1, device=DEVICE).to(dtype)
    taps_rows = StateRows(length, taps * (shape.channels // length), 3 * length + 1, first=2, first_page=1)
    states, windows = pages_of(shape, 4), Pages(4, taps_rows, dtype)
    alone, again = pages_of(shape, 4), Pages(4, taps_rows, dtype)
    for pages in (states, alone, windows, again):
        for sequence in (1, 2, 3):
            pages.pool[pages.table[sequence].long()] = 0.5  # all but the first have a state
    kept = torch.full((3, 4, width), float("nan"), dtype=dtype, device=DEVICE)

    def step(
        x: DeltaInputs, of_rows: list[int], lengths: list[int], runs: DecodeRuns, delta: Pages, taps: Pages
    ) -> torch.Tensor:
        """Convolve and run the rule as a layer does."""
        seen = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
        convolved, out = torch.full_like(x.qkv, float("nan")), torch.full_like(x.z, float("nan"))
        tables = delta.table[of_rows], taps.table[of_rows]
        convolve_tokens(x.qkv, weight, None, taps.pool, tables[1], seen, taps_rows, convolved, silu=True, runs=runs)
        y = DeltaInputs(convolved, x.a, x.b, x.z)
        delta_tokens(y, weights, delta.pool, tables[0], seen, delta.rows, shape, out, runs)
        return out

    def one_by_one(x: DeltaInputs, of_rows: list[int], lengths: list[int]) -> torch.Tensor:
        rows = zip(range(len(of_rows)), of_rows, lengths, strict=True)
        single = runs_of([(1, 0, 0, 0)])
        return torch.cat([step(x.rows(r, r + 1), [s], [n], single, alone, again) for r, s, n in rows])

    # Three certain rows; a certain one and two drafts; one alone; two certain ones and a draft.
    of_rows, lengths = [0, 0, 0, 1, 1, 1, 2, 3, 3, 3], [1, 2, 3, 5, 6, 7, 7, 8, 9, 10]
    x = inputs_of(10, shape, dtype)
    out = step(
        x, of_rows, lengths, runs_of([(3, 0, 0, 0), (3, 2, 0, 2), (1, 0, 0, 0), (3, 1, 0, 1)], kept), states, windows
    )
    certain = [0, 1, 2, 3, 6, 7, 8]
    one = DeltaInputs(x.qkv[certain], x.a[certain], x.b[certain], x.z[certain])
    want = one_by_one(one, [of_rows[row] for row in certain], [lengths[row] for row in certain])
    assert torch.equal(out[certain], want)
    for sequence in range(4):
        assert torch.equal(states.read(sequence), alone.read(sequence))
        assert torch.equal(windows.read(sequence), again.read(sequence))
    # The second sequence's drafts go on alone, without a certain row, as when each row is a step.
    more = inputs_of(1, shape, dtype)
    out_of_more = step(more, [1], [8], runs_of([(1, 1, 2, 2)], kept), states, windows)
    assert torch.equal(states.read(1), alone.read(1)) and torch.equal(windows.read(1), again.read(1))
    # All three of them are accepted, none of the fourth sequence's, whose slot the third one takes; new drafts follow.
    last = inputs_of(5, shape, dtype)
    accepted = DeltaInputs(
        *(
            torch.cat((a[4:6], b))
            for a, b in zip((x.qkv, x.a, x.b, x.z), (more.qkv, more.a, more.b, more.z), strict=True)
        )
    )
    assert torch.equal(torch.cat((out[4:6], out_of_more)), one_by_one(accepted, [1, 1, 1], [6, 7, 8]))
    runs = runs_of([(3, 2, 3, 2), (1, 0, 0, 0), (1, 0, 0, 1)], kept)
    after = step(last, [1, 1, 1, 3, 2], [9, 10, 11, 10, 8], runs, states, windows)
    certain = [0, 3, 4]
    one = DeltaInputs(last.qkv[certain], last.a[certain], last.b[certain], last.z[certain])
    assert torch.equal(after[certain], one_by_one(one, [1, 3, 2], [9, 10, 8]))
    for sequence in range(4):
        assert torch.equal(states.read(sequence), alone.read(sequence))
        assert torch.equal(windows.read(sequence), again.read(sequence))
    assert torch.equal(after[1:3], one_by_one(last.rows(1, 3), [1, 1], [10, 11]))
    # A row that is no run beside others, as the kernel without runs computes it.
    plain, alike = (pages_of(shape, 1) for _ in range(2))
    for pages in (plain, alike):
        pages.pool[pages.table[0].long()] = 0.5
    seen, results = torch.tensor([9], dtype=torch.int32, device=DEVICE), []
    for pages, runs_or_none in ((plain, None), (alike, runs_of([(1, 0, 0, 0)]))):
        results.append(torch.empty_like(x.z[:1]))
        x_of = DeltaInputs(x.qkv[:1], x.a[:1], x.b[:1], x.z[:1])
        delta_tokens(x_of, weights, pages.pool, pages.table, seen, pages.rows, shape, results[-1], runs_or_none)
    torch.testing.assert_close(*results)


def test_shapes_that_do_not_fit_are_refused() -> None:
    shape = SHAPES[0]
    weights, pages, x = weights_of(shape, DTYPES[0]), pages_of(shape, 1), inputs_of(2, shape, DTYPES[0])
    with pytest.raises(ValueError, match="qkv is"):
        run_spans([2], [0], DeltaInputs(x.qkv[:, 1:], x.a, x.b, x.z), weights, shape, pages)
    with pytest.raises(ValueError, match="does not fit into a page"):
        StateRows(16, 4, 8)
