"""Prompt chunks' attention through either library, over scattered pages of a poisoned pool."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from lora_engine.model import prefill_attention
from lora_engine.model.batch import PrefillSpan
from lora_engine.model.config import ModelConfig
from lora_engine.model.parallel import Parallel
from lora_engine.model.prefill_attention import FLASHINFER, FlashInferPrefill, PrefillAttention, TritonPrefill
from lora_engine.model.shape import ModelShape
from lora_kernels.reference import paged_attention

PAGE_TOKENS, PAGES = 16, 200


def shape_on(device: str, dtype: torch.dtype, heads: int = 8, kv_heads: int = 2, head_dim: int = 64) -> ModelShape:
    config = ModelConfig.from_dict(
        {
            "model_type": "llama", "num_hidden_layers": 2, "hidden_size": heads * head_dim, "intermediate_size": 64,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": 64,
            "max_position_embeddings": 2048,
        }
    )  # fmt: skip
    return ModelShape.of(config, Parallel(), 2048, torch.device(device), dtype)


def check(
    prefill: PrefillAttention, shape: ModelShape, chunks: list[tuple[int, int]], window: int, most: float
) -> None:
    """``chunks`` of (tokens, context), behind three rows that are not theirs."""
    device, dtype = shape.device, shape.dtype
    free = random.Random(1).sample(range(1, PAGES), PAGES - 1)
    pool = torch.full((PAGES, 2, PAGE_TOKENS, shape.kv_heads * shape.head_dim), float("nan"))
    spans, row = [], 3
    for tokens, context in chunks:
        pages = [free.pop() for _ in range(-(-(tokens + context) // PAGE_TOKENS))]
        for position in range(tokens + context):
            pool[pages[position // PAGE_TOKENS], :, position % PAGE_TOKENS] = torch.randn(2, pool.shape[-1])
        # A sequence may have a page more than its tokens fill.
        spans.append(PrefillSpan(row, row + tokens, context, torch.tensor([*pages, free.pop()], device=device)))
        row += tokens
    data = pool.to(device, dtype).view(PAGES, -1)
    qkv = torch.randn(row, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, device=device).to(dtype)
    q = qkv[:, : shape.heads * shape.head_dim]  # strided, as the model has it
    out = torch.full(q.shape, float("nan"), device=device, dtype=dtype)
    prefill.plan(spans)(q, data, out, window, None)
    for span in spans:
        queries = q[span.start : span.stop].unflatten(1, (shape.heads, -1))
        want = paged_attention(queries, data, span.pages, span.context, PAGE_TOKENS, shape.kv_heads, window).flatten(1)
        got = out[span.start : span.stop]
        assert torch.isfinite(got).all()
        assert float((got.double() - want).norm() / want.norm()) < most
    assert out[:3].isnan().all()


@pytest.mark.parametrize("window", [0, 20])
def test_our_kernels(window: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = shape_on(device, torch.float16)
    check(TritonPrefill(shape, PAGE_TOKENS), shape, [(40, 0), (17, 33), (1, 64)], window, 3e-3)


def test_long_prompts_and_large_graphs_take_the_kernel_for_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    monkeypatch.setattr(prefill_attention, "can_attend", lambda *sizes: True)
    monkeypatch.setattr(prefill_attention, "paged_prefill", lambda *_, **options: launched.append(options))
    shape = shape_on("cpu", torch.bfloat16)
    prefill, deterministic = TritonPrefill(shape, PAGE_TOKENS), TritonPrefill(shape, PAGE_TOKENS, invariant=True)
    assert [prefill.block_m(rows) for rows in (256, 511, 512)] == [64, 64, 192]
    assert deterministic.block_m(512) == 64
    q = torch.empty(0)
    for tokens, context, each in (
        (40, 0, prefill),
        (40, 1000, prefill),
        (40, 2000, prefill),
        (40, 2000, deterministic),
    ):
        pages = torch.zeros(-(-(tokens + context) // PAGE_TOKENS), dtype=torch.int32)
        each.plan([PrefillSpan(0, tokens, context, pages)])(q, q, q, 0, None)
    assert [(o["block_m"], o["hopper"], o["split_keys"]) for o in launched] == [
        (64, False, False), (192, True, False), (192, True, True), (64, False, False),
    ]  # fmt: skip
    for options in launched[:3]:
        assert options["workspace"].partial.shape[2] == options["block_m"]


@pytest.mark.gpu
@pytest.mark.parametrize("window", [0, 20])
def test_our_kernels_over_long_prompts(window: int) -> None:
    """On a Hopper GPU these are of its kernel, and their keys are split."""
    shape = shape_on("cuda", torch.bfloat16, kv_heads=2, head_dim=128)
    check(TritonPrefill(shape, PAGE_TOKENS), shape, [(40, 0), (17, 33), (3, 1600)], window, 1.5e-2)


@pytest.mark.gpu
@pytest.mark.timeout(600)  # it compiles them
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(2, 64), (2, 128), (8, 128)])
def test_flashinfer(kv_heads: int, head_dim: int) -> None:
    pytest.importorskip("flashinfer", reason="an extra: pip install .[flashinfer]")
    shape = shape_on("cuda", torch.bfloat16, kv_heads=kv_heads, head_dim=head_dim)
    prefill = FlashInferPrefill(shape, PAGE_TOKENS, TritonPrefill(shape, PAGE_TOKENS))
    for chunks in ([(40, 0), (17, 33), (1, 64), (500, 300)], [(1, 0)], [(900, 1000)]):
        check(prefill, shape, chunks, 0, 1.5e-2)
    windows = replace(shape, windows=(0, 20))
    prefill = FlashInferPrefill(windows, PAGE_TOKENS, TritonPrefill(windows, PAGE_TOKENS))
    for window in windows.windows:
        check(prefill, windows, [(40, 0), (17, 33)], window, 1.5e-2)


def test_flashinfer_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(version: str) -> None:
        monkeypatch.setattr(prefill_attention, "version", lambda _: version)

    shape = shape_on("cpu", torch.bfloat16)
    others = TritonPrefill(shape, PAGE_TOKENS)
    found("9.9")
    with pytest.raises(ValueError, match=f"needs flashinfer-python {FLASHINFER}, but version 9.9 is installed"):
        FlashInferPrefill(shape, PAGE_TOKENS, others)
    found(FLASHINFER)
    with pytest.raises(ValueError, match=r"no kernel for heads of 64 in torch\.float32: choose"):
        FlashInferPrefill(shape_on("cpu", torch.float32), PAGE_TOKENS, others)
    with pytest.raises(ValueError, match="every layer of this model has a window: choose"):
        FlashInferPrefill(replace(shape, windows=(20, 20)), PAGE_TOKENS, others)
    with pytest.raises(ValueError, match="for Hopper GPUs, not for cpu: choose --backend triton"):
        FlashInferPrefill(shape, PAGE_TOKENS, others)
