"""No token of a wrong adapter or version, while adapters change: the small form of `benchmarks/signatures.py`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.signatures import BASE, new_signature, save_base, save_signed
from lorikeet_testing.signed_traffic import SignedTraffic, Tally

from lora_engine.config import EngineConfig
from lora_engine.memory.prefix_cache import PrefixCache
from lora_engine.model.loading import load_model
from lora_engine.server.process import build_host

REQUESTS = 800


async def run(
    folder: Path, requests: int = REQUESTS, *, adapters: int = 40, long_answers: float = 0.01, **settings: Any
) -> Tally:
    save_base(folder / "model")
    config = EngineConfig(
        model=folder / "model", data_dir=folder / "data", threads=1,
        **{"pool_mb": 8, "host_arena_mb": 3, "disk_tier_mb": 8, **settings},
    )  # fmt: skip
    host = build_host(config, load_model(config))
    host.start()
    traffic = SignedTraffic(
        host,
        folder / "adapters",
        adapters=adapters,
        seed=1,
        concurrency=128,
        disturb_every=20,
        long_answers=long_answers,
    )
    left = iter(range(requests))
    try:
        return await traffic.run(lambda: next(left, None) is not None)
    finally:
        host.stop()


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "merged"},
        {"pool_mb": 1, "page_tokens": 4, "order": "lcfs", "adapters": 12, "long_answers": 0.3, "requests": 160},
    ],
    ids=["merged", "small pool"],
)
async def test_every_token_is_of_the_adapter_that_was_named(tmp_path: Path, settings: dict[str, Any]) -> None:
    tally = await run(tmp_path, **settings)
    assert (tally.wrong_tokens, tally.wrong, tally.unexplained) == (0, [], [])
    assert tally.finished + tally.aborted + tally.refused == tally.requests
    assert tally.events["replaced"] and tally.events["loads_from_host"]
    assert tally.events["cached_prompt_tokens"], "prompts were meant to begin alike"
    if settings.get("mode"):
        assert tally.events["merges"]
    else:
        assert tally.events["preemptions"], "the pool was meant to be too small"


async def test_a_cache_that_confuses_adapters_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, insert = PrefixCache.acquire, PrefixCache.insert

    def shared(function: Any) -> Any:
        return lambda cache, key, *others: function(cache, ("", "", ""), *others)

    monkeypatch.setattr(PrefixCache, "acquire", shared(acquire))
    monkeypatch.setattr(PrefixCache, "insert", shared(insert))
    tally = await run(tmp_path, 200)
    assert tally.wrong_tokens > 20 and tally.wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peft_computes_the_same_signatures(tmp_path: Path, dtype: torch.dtype) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    save_base(tmp_path / "model")
    rnd = random.Random(1)
    signature = new_signature(rnd, new_signature(rnd))
    save_signed(tmp_path / "adapter", signature, rnd)
    prompt = torch.tensor([[rnd.randrange(256) for _ in range(40)]])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=dtype)
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}

    def answer() -> list[int]:
        out = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **options)
        return list(out[0, 40:].tolist())

    assert answer() == BASE.answer(prompt[0].tolist(), 6)
    PeftModel.from_pretrained(model, tmp_path / "adapter").to(dtype)  # adds its layers to ``model``
    assert answer() == signature.answer(prompt[0].tolist(), 6)
