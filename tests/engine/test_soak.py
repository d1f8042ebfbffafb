"""A long run under more load than fits: loads, evictions, aborts and pre-emptions at random, every output checked.

    LORIKEET_SOAK_S=600 python -m pytest tests/engine/test_soak.py -m gpu

The tiny model runs in float32, so that its tokens can be compared exactly with transformers + peft.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import torch
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, Adapter, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

SECONDS = float(os.environ.get("LORIKEET_SOAK_S", "2"))
NEW_TOKENS = 24
Question = tuple[str, tuple[int, ...]]  # adapter, prompt


def references(folder: Path, adapters: dict[str, Adapter], questions: list[Question]) -> dict[Question, list[int]]:
    """Greedy answers by transformers + peft in float64, so that rounding is all on our side."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    first, *others = adapters.values()
    peft = PeftModel.from_pretrained(model, first.folder, adapter_name=first.name)
    for adapter in others:
        peft.load_adapter(adapter.folder, adapter_name=adapter.name)
    peft = peft.double().eval()
    answers = {}
    for name, prompt in questions:
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        if name:
            peft.set_adapter(name)
            out = peft.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        else:
            with peft.disable_adapter():
                out = peft.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        answers[name, prompt] = out[0, len(prompt) :].tolist()
    return answers


class Soak:
    """Keeps the engine full of random questions, aborts some, and compares what comes back."""

    def __init__(self, engine: Engine, digests: dict[str, str], answers: dict[Question, list[int]]) -> None:
        self.engine, self.digests, self.answers = engine, digests, answers
        self.rnd = random.Random(3)
        self.asked: dict[str, Question] = {}
        self.told: dict[str, list[int]] = {}
        self.count = self.finished = self.aborted = self.preempted = self.dropped = 0

    def step(self) -> None:
        self._submit()
        self._disturb()
        output = self.engine.step()
        self.engine.core.check()
        for delta in output.deltas:
            self.told[delta.request_id] += delta.token_ids
        for end in output.finished:
            self._judge(end.request_id, end.usage.outcome, end.usage.preemptions)

    def _submit(self) -> None:
        while len(self.asked) < 96:
            self.count += 1
            question = self.rnd.choice(list(self.answers))
            name = f"s{self.count}"
            sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
            digest = self.digests[question[0]] if question[0] else ""
            self.engine.add_request(
                GenerationRequest(name, list(question[1]), sampling, digest, tenant=self.rnd.choice("abc"))
            )
            self.asked[name], self.told[name] = question, []

    def _disturb(self) -> None:
        if self.rnd.random() < 0.05:
            self.engine.abort(self.rnd.choice(list(self.asked)))
        if self.rnd.random() < 0.05:
            self.dropped += self.engine.drop_adapter(self.rnd.choice(list(self.digests.values())))

    def _judge(self, name: str, outcome: str, preemptions: int) -> None:
        question, told = self.asked.pop(name), self.told.pop(name)
        self.preempted += preemptions
        wanted = self.answers[question]
        if outcome == "aborted":
            self.aborted += 1
            assert told == wanted[: len(told)]
        else:
            self.finished += 1
            assert (outcome, told) == ("finished", wanted)

    def met_everything(self) -> bool:
        return self.finished > 20 and bool(self.aborted and self.preempted and self.dropped)


def soak(tmp_path: Path, seconds: float, **settings: object) -> Soak:
    reference = save_model("llama3-scaled-rope-tied", tmp_path / "model")
    adapters = {name: adapter_at(name, save_adapter(name, reference, tmp_path / name)) for name in ADAPTERS}
    rnd = random.Random(11)
    shared = [rnd.randrange(VOCAB) for _ in range(64)]  # prompts begin alike, so that prefixes are shared
    questions = []
    for _ in range(60):
        own = [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 9))]
        questions.append((rnd.choice(["", *adapters]), (*shared[: rnd.choice((0, 20, 64))], *own)))
    source = LoadedAdapters()
    config = EngineConfig(
        model=tmp_path / "model", pool_mb=1, page_tokens=4, step_tokens=128, max_running=64, max_waiting=1000,
        dtype="float32", **settings,  # type: ignore[arg-type]
    )  # fmt: skip
    engine = Engine(config, source)
    for adapter in adapters.values():
        source.add(pack_for(engine, adapter))
    digests = {name: adapter.digest for name, adapter in adapters.items()}
    run = Soak(engine, digests, references(tmp_path / "model", adapters, questions))
    until = time.monotonic() + seconds
    while time.monotonic() < until or (not run.met_everything() and time.monotonic() < until + 30):
        run.step()
    assert run.finished > 20
    assert run.aborted
    assert run.preempted, "the pool was meant to be too small"
    assert run.dropped, "adapters were meant to be evicted while others run"
    print(f"\nsoak of {seconds:.0f} s: {engine.steps} steps, {run.finished} answers equal their references, "
          f"{run.aborted} aborted, {run.preempted} pre-emptions, "
          f"{engine.core.device_tier.stats.adapters} adapter loads, {run.dropped} dropped")  # fmt: skip
    return run


# However short it is, it goes on until answers were aborted, pre-empted and compared, and adapters dropped.
@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(20.0, marks=pytest.mark.long)], ids=["short", "long"])
def test_soak(tmp_path: Path, seconds: float) -> None:
    soak(tmp_path, seconds, threads=1)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
def test_soak_on_a_gpu(tmp_path: Path, graphs: bool) -> None:
    soak(tmp_path, SECONDS / 2, device="cuda", cuda_graphs=graphs)
