"""After the start, usual requests compile nothing: the first of them must not wait for it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model import warm_up
from lora_engine.request import GenerationRequest, SamplingParams

USUAL = ("attention-r8", "all-linear-r16-rslora", "one-layer-r64")


@pytest.mark.gpu
def test_usual_requests_compile_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    model = save_model("llama3-scaled-rope-tied", tmp_path / "model", max_position_embeddings=2048)
    source = LoadedAdapters()
    config = EngineConfig(model=tmp_path / "model", device="cuda", pool_mb=24, max_running=24, step_tokens=2048)
    engine = Engine(config, source)
    digests = [""]
    for name in USUAL:
        adapter = adapter_at(name, save_adapter(name, model, tmp_path / name))
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    compiled: list[str] = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda **kernel: compiled.append(kernel["repr"]))
    rnd = random.Random(5)
    for index, length in enumerate([1, 2, 15, 16, 17, 97, 300, 1025, 1500] * 8):
        prompt = [rnd.randrange(VOCAB) for _ in range(length)]
        params = SamplingParams(
            max_tokens=rnd.randint(1, 40), ignore_eos=True, temperature=rnd.choice((0.0, 1.0)),
            top_p=rnd.choice((1.0, 0.9)), frequency_penalty=rnd.choice((0.0, 0.0, 0.5)), logprobs=rnd.random() < 0.2,
        )  # fmt: skip
        engine.add_request(GenerationRequest(str(index), prompt, params, rnd.choice(digests)))
    while engine.has_work():
        engine.step()
    torch.cuda.synchronize()
    assert not compiled


def test_steps_longer_than_any_keep_no_inputs_of_a_draft_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine ended at its start with a draft head and steps of up to 1,024 tokens."""
    model = SimpleNamespace(layer_inputs=object())
    seen: list[object] = []
    monkeypatch.setattr(warm_up, "prefill_steps", lambda model, pool: seen.append(model.layer_inputs))
    kept = model.layer_inputs
    warm_up.compile_prefill_steps(model, None)  # type: ignore[arg-type]
    assert seen == [None] and model.layer_inputs is kept
