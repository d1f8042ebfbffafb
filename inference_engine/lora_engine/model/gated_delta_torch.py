"""The gated delta rule and its short convolution in plain torch operations: the CPU backend, and the reference of the
kernels.

The rule is that of ``lora_kernels.gated_delta``: prompts are computed in chunks with the WY form (Gated DeltaNet, arXiv
2412.06464, section 3.3), single tokens by the recurrence itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from lora_engine.memory.page_pool import PagePool
from lora_kernels.state_pages import DeltaShape, RunField, StateRows

from .batch import PrefillSpan, StepBatch
from .draft_inputs import DraftInputs
from .shape import DeltaLayers
from .weights import DeltaParameters

# Tokens of a chunk, which is computed as matrix products.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class _Projected:
    """The inputs of some tokens, ``[tokens, …]``: normalised queries and keys and values by head, decays' logarithms
    and rates, in float32.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    decay: torch.Tensor
    rate: torch.Tensor

    def rows(self, rows: slice) -> _Projected:
        return _Projected(self.q[rows], self.k[rows], self.v[rows], self.decay[rows], self.rate[rows])


def gated_delta(
    layer: int,
    weights: DeltaParameters,
    projected: torch.Tensor,
    gates: torch.Tensor,
    pool: PagePool,
    batch: StepBatch,
    layers: DeltaLayers,
    drafts: DraftInputs | None = None,
) -> torch.Tensor:
    """Compute a gated delta layer between its projections, and update the sequences' states.

    ``projected [tokens, channels + heads * value_dim]`` is in_proj_qkv's output and z, ``gates [tokens, 2 * heads]``
    the outputs of in_proj_b and in_proj_a; ``drafts`` has the kept inputs of draft rows. Returns ``[tokens, heads *
    value_dim]``.
    """
    shape, state, pages = layers.shape, layers.states[layer], pool.layer(layer)
    recurrent, inputs = _StateView(pages.view(torch.float32), state.recurrent), _StateView(pages, state.convolution)
    mixed, z = projected.split((shape.channels, shape.heads * shape.value_dim), dim=1)
    convolved, out = torch.empty_like(mixed), torch.empty_like(z)
    n, decoded = batch.num_decode, batch.state_table
    assert decoded is not None, "every sequence has a state"
    if n and batch.decode_runs is not None:
        kept = None if drafts is None else drafts.layer(layer)
        runs = _Runs(weights, mixed, gates, convolved, out, kept, layers)
        runs.process(batch.decode_runs, decoded, batch.positions, recurrent, inputs)
        n = 0
    if n:
        known = (batch.positions[:n] > 0)[:, None, None]
        window = torch.cat((_where(known, _taps(inputs.read(decoded), mixed)), mixed[:n, None]), dim=1)
        convolved[:n] = F.silu(torch.einsum("ntc,ct->nc", window, weights.convolution))
        inputs.write(decoded, window[:, 1:].reshape(n, -1, state.convolution.length))
    for span in batch.prefill:
        table = _table(span)
        before = _taps(inputs.read(table), mixed)[0]
        window = torch.cat((before if span.context else torch.zeros_like(before), mixed[span.start : span.stop]))
        weight = weights.convolution[:, None]
        convolved[span.start : span.stop] = F.silu(F.conv1d(window.t()[None], weight, groups=len(weight)))[0].t()
        last = window[len(window) - layers.taps :]
        inputs.write(table, last.reshape(1, -1, state.convolution.length))
    x = _projected(convolved, gates, weights, shape)
    square = (shape.heads, shape.value_dim, shape.key_dim)
    if n:
        before = recurrent.read(decoded).view(n, *square)
        attended, after = _step(x.rows(slice(n)), _where(known[..., None], before))
        recurrent.write(decoded, after.flatten(1, 2))
        out[:n] = attended.flatten(1)
    for span in batch.prefill:
        table = _table(span)
        before = recurrent.read(table).view(square)
        attended, after = _span(
            x.rows(slice(span.start, span.stop)), before if span.context else torch.zeros_like(before)
        )
        recurrent.write(table, after.view(1, -1, shape.key_dim))
        out[span.start : span.stop] = attended.flatten(1)
    return _normed_and_gated(out, z, weights.norm, shape)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Decode rows of which some follow others of their sequence, or its accepted drafts: one row after the other, so
    that a row's numbers are the same in every run.
    """

    weights: DeltaParameters
    mixed: torch.Tensor
    gates: torch.Tensor
    convolved: torch.Tensor
    out: torch.Tensor
    kept: torch.Tensor | None  # [slots, drafts, width]; None: there are no drafts
    layers: DeltaLayers

    def process(
        self,
        runs: torch.Tensor,
        tables: torch.Tensor,
        positions: torch.Tensor,
        recurrent: _StateView,
        inputs: _StateView,
    ) -> None:
        """Process all runs; for ``runs [4, rows]`` see ``RunField``, ``tables [rows, state pages]``."""
        of_first_rows, known = runs.t().tolist(), positions[: len(tables)].tolist()
        for start, run in enumerate(of_first_rows):
            if run[RunField.ROWS]:
                self._process(start, run, tables[start : start + 1], known[start] > 0, recurrent, inputs)

    def _process(
        self, start: int, run: list[int], table: torch.Tensor, known: bool, recurrent: _StateView, inputs: _StateView
    ) -> None:
        shape = self.layers.shape
        window, state = _taps(inputs.read(table), self.mixed), recurrent.read(table)
        state = state.view(1, shape.heads, shape.value_dim, shape.key_dim)
        if not known:
            window, state = torch.zeros_like(window), torch.zeros_like(state)
        for place in range(run[RunField.REPLAYS]):
            raw, x = self._read(run[RunField.SLOT], place)
            window, state = torch.cat((window[:, 1:], raw[:, None]), dim=1), _step(x, state)[1]
        certain = run[RunField.ROWS] - run[RunField.DRAFTS]
        first_place = 0 if certain else run[RunField.REPLAYS]
        for index in range(run[RunField.ROWS]):
            row = slice(start + index, start + index + 1)
            window = torch.cat((window, self.mixed[row, None]), dim=1)
            self.convolved[row] = F.silu(torch.einsum("ntc,ct->nc", window, self.weights.convolution))
            window = window[:, 1:]
            x = _projected(self.convolved[row], self.gates[row], self.weights, shape)
            attended, state = _step(x, state)
            self.out[row] = attended.flatten(1)
            if index == certain - 1:
                inputs.write(table, window.reshape(1, -1, inputs.length))
                recurrent.write(table, state.flatten(1, 2))
            if index >= certain:
                self._keep(run[RunField.SLOT], first_place + index - certain, row)

    def _keep(self, slot: int, place: int, row: slice) -> None:
        """Keep the inputs of a draft row."""
        assert self.kept is not None, "a step has drafts where their inputs are kept"
        shape = self.layers.shape
        keys = shape.key_heads * shape.key_dim
        _, k, v = self.convolved[row].split((keys, keys, shape.heads * shape.value_dim), dim=1)
        k = k.view(shape.key_heads, shape.key_dim).repeat_interleave(shape.heads // shape.key_heads, dim=0)
        values = torch.cat((self.mixed[row].flatten(), k.flatten(), v.flatten(), self.gates[row].flatten()))
        self.kept[slot, place, : len(values)] = values

    def _read(self, slot: int, place: int) -> tuple[torch.Tensor, _Projected]:
        """Return the inputs of a kept row: of the convolution ``[1, channels]``, and of the rule."""
        assert self.kept is not None, "only kept rows are taken into the state"
        shape = self.layers.shape
        keys, values, gates, _ = shape.kept_columns
        row = self.kept[slot, place]
        k = row[keys:values].view(shape.heads, shape.key_dim)[:: shape.heads // shape.key_heads].flatten()
        convolved = torch.cat((torch.zeros_like(k), k, row[values:gates]))[None]
        x = _projected(convolved, row[None, gates : gates + 2 * shape.heads], self.weights, shape)
        return row[None, :keys], x


def _table(span: PrefillSpan) -> torch.Tensor:
    """Return the state pages of a span's sequence as ``[1, state pages]``."""
    assert span.state_pages is not None, "every sequence has a state"
    return span.state_pages[None]


class _StateView:
    """The rows of a layer's state in pages ``[pages, page_elems]`` of the state's dtype."""

    def __init__(self, pages: torch.Tensor, rows: StateRows) -> None:
        self.length = rows.length
        self._pages = pages[:, : rows.per_page * rows.length].unflatten(1, (rows.per_page, rows.length))
        self._rows = rows

    def read(self, table: torch.Tensor) -> torch.Tensor:
        """Return the states of sequences, ``[sequences, rows, length]``; ``table [sequences, state pages]``."""
        rows = self._rows
        pages = table[:, rows.first_page : rows.end_page]
        gathered: torch.Tensor = self._pages.index_select(0, pages.flatten()).view(len(table), -1, rows.length)
        return gathered[:, rows.first : rows.first + rows.count]

    def write(self, table: torch.Tensor, states: torch.Tensor) -> None:
        """Write the states of sequences, as ``read`` returns them."""
        rows = torch.arange(self._rows.first, self._rows.first + self._rows.count, device=table.device)
        pages = table[:, self._rows.first_page + rows // self._rows.per_page]
        self._pages[pages, rows % self._rows.per_page] = states


def _taps(states: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """Return convolution states ``[sequences, rows, length]`` as ``[sequences, taps, channels]``."""
    return states.reshape(len(states), -1, mixed.shape[1])


def _where(known: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Return zero where a sequence has no state yet: its pages may hold another sequence's NaN."""
    return torch.where(known, state, torch.zeros((), dtype=state.dtype, device=state.device))


def _projected(convolved: torch.Tensor, gates: torch.Tensor, weights: DeltaParameters, shape: DeltaShape) -> _Projected:
    keys = shape.key_heads * shape.key_dim
    q, k, v = convolved.split((keys, keys, shape.heads * shape.value_dim), dim=1)
    q, k = (_lengths_one(x.reshape(len(x), shape.key_heads, shape.key_dim), shape) for x in (q, k))
    rate, decay = gates.split(shape.heads, dim=1)
    return _Projected(
        q * shape.key_dim**-0.5,
        k,
        v.reshape(len(v), shape.heads, shape.value_dim).float(),
        -weights.a_log.exp() * F.softplus(decay.float() + weights.dt_bias),
        shape.beta_scale * rate.sigmoid().float(),
    )


def _lengths_one(x: torch.Tensor, shape: DeltaShape) -> torch.Tensor:
    """Norm each head's vector to length one, in float32, and repeat it for its value heads."""
    x = x.float()
    x = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
    return x.repeat_interleave(shape.heads // shape.key_heads, dim=1)


def _step(x: _Projected, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Process one token of each sequence; return ``[sequences, heads, value_dim]`` and the new states."""
    state = state * x.decay.exp()[..., None, None]
    change = (x.v - torch.einsum("nhvk,nhk->nhv", state, x.k)) * x.rate[..., None]
    state = state + change[..., None] * x.k[:, :, None]
    return torch.einsum("nhvk,nhk->nhv", state, x.q), state


def _span(x: _Projected, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Process the tokens of a span; return ``[tokens, heads, value_dim]`` and the new state ``[heads, value_dim,
    key_dim]``.
    """
    outs: list[torch.Tensor] = []
    for start in range(0, len(x.q), _CHUNK):
        out, state = _chunk(x.rows(slice(start, start + _CHUNK)), state)
        outs.append(out)
    return torch.cat(outs), state


def _chunk(x: _Projected, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = (y.transpose(0, 1) for y in (x.q, x.k, x.v))  # [heads, tokens, dim]
    rate, total = x.rate.t()[..., None], x.decay.t().cumsum(1)[..., None]
    lower = torch.ones(len(x.q), len(x.q), dtype=torch.bool, device=q.device).tril()
    between = torch.where(lower, total - total.transpose(1, 2), 0.0).exp()
    system = ((k * rate) @ k.transpose(1, 2) * between).tril(-1) + torch.eye(len(x.q), device=q.device)
    both = torch.cat((k * rate * total.exp(), v * rate), dim=2)
    solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
    w, u = solved.split((k.shape[2], v.shape[2]), dim=2)
    new = u - w @ state.transpose(1, 2)
    out = (q * total.exp()) @ state.transpose(1, 2) + (q @ k.transpose(1, 2) * between).tril() @ new
    end = total[:, -1:]
    state = state * end.exp() + new.transpose(1, 2) @ (k * (end - total).exp())
    return out.transpose(0, 1), state


def _normed_and_gated(out: torch.Tensor, z: torch.Tensor, norm: torch.Tensor, shape: DeltaShape) -> torch.Tensor:
    """Return ``rms_norm(out) * norm * silu(z)`` by head, rounded where the reference rounds."""
    heads = out.view(len(out), shape.heads, shape.value_dim).float()
    scaled = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + shape.eps)
    gated = (norm * scaled.to(out.dtype)).float() * F.silu(z.float()).view(heads.shape)
    return gated.to(out.dtype).flatten(1)
