"""Norm, rotary + KV write, and SiLU-mul against their references."""

from __future__ import annotations

import pytest
import torch

from lora_kernels import reference
from lora_kernels.elementwise import add_norm, gated_activation, rope_and_write_kv, sum_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return float((got.double() - want.double()).norm() / want.double().norm()) < TOLERANCE[got.dtype]


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [64, 150, 4096])
def test_add_rms_norm(dtype: torch.dtype, size: int) -> None:
    x, residual, weight = random(5, size, dtype=dtype), random(5, size, dtype=dtype), random(size, dtype=dtype)
    out = torch.full_like(x, float("nan"))
    added = residual + x
    add_norm(x, residual, weight, 1e-5, out)
    assert torch.equal(residual, added)
    assert close(out, reference.rms_norm(added, weight, 1e-5))
    add_norm(x, None, weight, 1e-5, out)
    assert close(out, reference.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("ranks", "size"), [(2, 64), (4, 150), (8, 4096)])
def test_add_rms_norm_of_a_sum_over_ranks(dtype: torch.dtype, ranks: int, size: int) -> None:
    """The kernel adds the ranks' tensors by their addresses, and rounds their sum as an all-reduce would."""
    parts = [random(5, size, dtype=dtype) for _ in range(ranks)]
    addends = torch.tensor([part.data_ptr() for part in parts], device=DEVICE)
    total = sum((part.float() for part in parts), torch.zeros(5, size, device=DEVICE)).to(dtype)
    weight, residual = random(size, dtype=dtype), random(5, size, dtype=dtype)
    of_residual, of_addends = residual.clone(), residual.clone()
    for want_residual, got_residual in ((None, None), (of_residual, of_addends)):
        want, got = torch.full_like(total, float("nan")), torch.full_like(total, float("nan"))
        add_norm(total, want_residual, weight, 1e-5, want, scale=0.5)
        add_norm(parts[-1], got_residual, weight, 1e-5, got, scale=0.5, addends=addends)
        assert torch.equal(got, want)
    assert torch.equal(of_addends, of_residual)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("ranks", "rows", "size"), [(3, 2, 64), (4, 9, 4096), (8, 17, 160)])
def test_a_sum_in_two_parts_equals_the_sum_in_one(dtype: torch.dtype, ranks: int, rows: int, size: int) -> None:
    """The last ranks may have fewer rows, or none."""
    parts = [random(rows, size, dtype=dtype) for _ in range(ranks)]
    addends = torch.tensor([part.data_ptr() for part in parts], device=DEVICE)
    weight, residual = random(size, dtype=dtype), random(rows, size, dtype=dtype)
    of_one, of_two = residual.clone(), residual.clone()
    want, got = torch.full_like(residual, float("nan")), torch.full_like(residual, float("nan"))
    add_norm(parts[0], of_one, weight, 1e-5, want, addends=addends)
    for rank in range(ranks):
        sum_rows(parts[rank], addends, rank)
    for part in parts:
        assert torch.equal(part, parts[0])
    add_norm(parts[1], of_two, weight, 1e-5, got)
    assert torch.equal(got, want)
    assert torch.equal(of_two, of_one)


def test_a_rank_s_share_of_rows_alone_is_summed() -> None:
    parts = [random(5, 64, dtype=torch.float32) for _ in range(4)]  # shares of 2, 2, 1 and no rows
    before = [part.clone() for part in parts]
    addends = torch.tensor([part.data_ptr() for part in parts], device=DEVICE)
    for rank, rows in ((1, range(2, 4)), (3, range(0))):
        sum_rows(parts[rank], addends, rank)
        for part, old in zip(parts, before, strict=True):
            changed = [row for row in range(5) if not torch.equal(part[row], old[row])]
            assert changed == [*rows]
        before = [part.clone() for part in parts]


def test_rows_to_sum_must_be_contiguous() -> None:
    addends = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="contiguous"):
        sum_rows(torch.zeros(4, 64, device=DEVICE)[:, ::2], addends, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("qk_norm", [False, True])
def test_rope_and_kv_write(dtype: torch.dtype, qk_norm: bool) -> None:
    heads, kv_heads, head_dim, page_tokens, tokens = 6, 2, 48, 4, 7
    kv_dim = kv_heads * head_dim
    qkv = random(tokens, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    angles = torch.rand(100, head_dim // 2, device=DEVICE) * 6
    cos = torch.cat((angles.cos(), angles.cos()), -1).to(dtype)
    sin = torch.cat((-angles.sin(), angles.sin()), -1).to(dtype)
    positions = torch.randint(0, 100, (tokens,), device=DEVICE, dtype=torch.int32)
    pool = torch.full((10, 2 * page_tokens * kv_dim), float("nan"), device=DEVICE, dtype=dtype)
    slots = torch.randperm(10 * page_tokens, device=DEVICE)[:tokens]
    slot_mapping = (slots // page_tokens * 2 * page_tokens + slots % page_tokens).int()
    norms = (random(head_dim, dtype=dtype), random(head_dim, dtype=dtype)) if qk_norm else (None, None)
    split = qkv.view(tokens, -1, head_dim).split((heads, kv_heads, kv_heads), 1)
    q, k, v = split[0], split[1], split[2].clone()
    if qk_norm:
        q, k = (reference.rms_norm(t, w, 1e-6) for t, w in ((q, norms[0]), (k, norms[1])))  # type: ignore[arg-type]
    want_q, want_k = (reference.rotate(t.float(), cos[positions].float(), sin[positions].float()) for t in (q, k))
    rope_and_write_kv(
        qkv,
        cos,
        sin,
        positions,
        slot_mapping,
        pool,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_tokens=page_tokens,
        q_norm=norms[0],
        k_norm=norms[1],
        eps=1e-6,
    )
    written = pool.view(-1, kv_dim)
    assert close(qkv[:, : heads * head_dim], want_q.flatten(1))
    assert close(written[slot_mapping.long()], want_k.flatten(1))
    assert torch.equal(written[slot_mapping.long() + page_tokens], v.flatten(1))
    assert int(torch.isfinite(written).all(-1).sum()) == 2 * tokens, "wrote outside its slots"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_mul(dtype: torch.dtype) -> None:
    x = random(5, 300, dtype=dtype)
    out = torch.full((5, 150), float("nan"), device=DEVICE, dtype=dtype)
    gated_activation(x, out)
    assert close(out, reference.silu_mul(x))
