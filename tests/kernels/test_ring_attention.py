"""A draft head's attention over rings, against float64: any rows, padding, emptied rings, overwritten drafts."""

from __future__ import annotations

import random

import pytest
import torch

from lora_kernels import ring_attention as kernels
from lora_kernels.ring_attention import ring_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PLACES, WINDOW, TABLE = 29, 20, 50


def rotated(x: torch.Tensor, angles: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate ``x [heads, dim]`` by complex numbers, in float64."""
    half = len(angles)
    turning, still = x[:, : 2 * half], x[:, 2 * half :]
    pairs = turning.unflatten(1, (half, 2)) if interleaved else turning.unflatten(1, (2, half)).transpose(1, 2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * angles))
    return torch.cat(((turned if interleaved else turned.transpose(1, 2)).flatten(1), still), 1)


@pytest.mark.parametrize(
    ("dtype", "heads", "kv_heads", "dim", "rotary_dim", "interleaved"),
    [
        (torch.float32, 4, 2, 16, 16, False),
        (torch.float16, 3, 1, 24, 16, True),
    ],
)
def test_a_row_sees_the_window_that_its_ring_holds(
    dtype: torch.dtype, heads: int, kv_heads: int, dim: int, rotary_dim: int, interleaved: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(kernels, "_BLOCK_N", 16)
    rnd, slots = random.Random(heads), 3
    frequencies = torch.arange(1, rotary_dim // 2 + 1, dtype=torch.float64) / 20
    angles = torch.arange(TABLE, dtype=torch.float64)[:, None] * frequencies
    still = dim - rotary_dim
    if interleaved:
        cos, sin = angles.cos().repeat_interleave(2, 1), torch.stack((-angles.sin(), angles.sin()), 2).flatten(1)
    else:
        cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), 1)
    cos, sin = torch.nn.functional.pad(cos, (0, still), value=1.0), torch.nn.functional.pad(sin, (0, still))
    cos, sin = cos.to(DEVICE, dtype), sin.to(DEVICE, dtype)
    keys, values = (torch.full((slots, PLACES + 1, kv_heads, dim), torch.nan, device=DEVICE, dtype=dtype) for _ in "kv")
    stored = torch.full((slots, PLACES + 1), -1, device=DEVICE)
    written: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = [{} for _ in range(slots)]
    at = [0, 27, 51]
    for step in range(6):
        if step == 3:
            stored[1], written[1], at[1] = -1, {}, 40  # emptied, with what was in it
        chosen, width = rnd.sample(range(slots), rnd.randint(1, slots)), rnd.choice([1, 4])
        counts = [rnd.randint(1, width) for _ in chosen]
        positions = torch.full((len(chosen), width), -1)
        for index, (slot, count) in enumerate(zip(chosen, counts, strict=True)):
            positions[index, :count] = torch.arange(at[slot], at[slot] + count)
        rows = positions.numel()
        qkv = torch.randn(rows, heads + 2 * kv_heads, dim).to(DEVICE, dtype)
        qkv[positions.flatten() < 0] = torch.nan
        q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
        out = ring_attention(
            q, k, v, cos, sin, torch.tensor(chosen, device=DEVICE), positions.to(DEVICE), keys, values, stored,
            window=WINDOW, scale=0.3, rotary_dim=rotary_dim, interleaved=interleaved,
        ).view(rows, heads, dim)  # fmt: skip
        q, k, v = (part.cpu().double() for part in (q, k, v))
        for row, position in enumerate(positions.flatten().tolist()):
            if position < 0:
                assert not out[row].any(), "padding"
                continue
            angle = angles[min(position, TABLE - 1)]
            written[chosen[row // width]][position] = rotated(k[row], angle, interleaved), v[row]
        for row, position in enumerate(positions.flatten().tolist()):
            if position < 0:
                continue
            of_slot = written[chosen[row // width]]
            seen = [of_slot[p] for p in range(position - WINDOW + 1, position + 1) if p in of_slot]
            of_keys, of_values = (
                torch.stack(part).repeat_interleave(heads // kv_heads, 1) for part in zip(*seen, strict=True)
            )
            query = rotated(q[row], angles[min(position, TABLE - 1)], interleaved)
            weights = (torch.einsum("hd,phd->hp", query, of_keys) * 0.3).softmax(1)
            expected = torch.einsum("hp,phd->hd", weights, of_values)
            assert torch.allclose(out[row].cpu().double(), expected, atol=1e-5 if dtype is torch.float32 else 4e-3)
        for slot, count in zip(chosen, counts, strict=True):
            at[slot] += rnd.randint(1, count)  # rejected drafts are overwritten


def test_shapes_that_do_not_fit_are_refused() -> None:
    def call(heads: int = 4, rows: int = 2, window: int = 8, **other: torch.Tensor) -> None:
        q, k = torch.zeros(2, heads, 16), torch.zeros(2, 2, 16)
        keys, positions = torch.zeros(1, 9, 2, 16), torch.zeros(1, rows, dtype=torch.int64)
        table, stored = torch.zeros(4, 16), torch.zeros(1, 9, dtype=torch.int64)
        arguments = {"k": k, "v": k, "keys": keys, "values": keys, "stored": stored} | other
        slots = torch.zeros(1, dtype=torch.int64)
        ring_attention(
            q, arguments["k"], arguments["v"], table, table, slots, positions, arguments["keys"], arguments["values"],
            arguments["stored"], window=window, scale=1.0, rotary_dim=16,
        )  # fmt: skip

    for message, wrong in (
        ("the rings have 2 heads", {"heads": 3}),
        ("the rings have 2 heads", {"v": torch.zeros(2, 1, 16)}),
        ("as many positions", {"rows": 3}),
        ("do not fit a window of 9", {"window": 9}),
        ("do not fit", {"stored": torch.zeros(1, 8, dtype=torch.int64)}),
        ("must be adjacent", {"k": torch.zeros(2, 2, 32)[:, :, ::2]}),
    ):
        with pytest.raises(ValueError, match=message):
            call(**wrong)
