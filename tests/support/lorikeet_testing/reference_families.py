"""Tiny models of every family beside ``transformers`` and ``peft``, which run the same requests."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.sampling import sample

from .tiny_models import ADAPTERS, ENGINE_SETTINGS, VOCAB, Adapter, adapter_at, pack_for, save_adapter, save_model

NEW_TOKENS = 16
LENGTHS = (1, 2, 15, 16, 17, 33, 50, 97)


@dataclass
class Family:
    """A model on disk, its adapters, and the reference, which loads each adapter when it is first to run it."""

    folder: Path
    adapters: dict[str, Adapter]
    reference: PeftModel
    settings: dict[str, Any]  # of every engine for it

    def greedy(self, prompt: list[int], adapter: str) -> list[int]:
        def generate(model: Any) -> list[int]:
            ids = torch.tensor([prompt])  # without a mask, generate would take token 0 for padding
            out = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
            return list(out[0, len(prompt) :].tolist())

        tokens: list[int] = self.run(generate, adapter)
        return tokens

    def check_greedy(self, request: GenerationRequest, tokens: list[int], adapter: str) -> None:
        """Check that the tokens are those of ``greedy``, by one pass over prompt and answer instead of one a token."""
        assert len(tokens) == request.sampling.max_tokens
        best = self.logits([*request.prompt_token_ids, *tokens[:-1]], adapter).argmax(dim=-1)
        assert tokens == best[-len(tokens) :].tolist(), adapter

    def logits(self, prompt: list[int], adapter: str) -> torch.Tensor:
        def forward(model: Any) -> torch.Tensor:
            with torch.inference_mode():
                logits: torch.Tensor = model(input_ids=torch.tensor([prompt], device=model.device)).logits
            return logits[0].float().cpu()

        logits: torch.Tensor = self.run(forward, adapter)
        return logits

    def hidden_states(self, prompt: list[int], adapter: str) -> list[torch.Tensor]:
        """The input of every layer, ``[tokens, hidden]`` float32 on the host."""

        def forward(model: Any) -> list[torch.Tensor]:
            with torch.inference_mode():
                out = model(input_ids=torch.tensor([prompt], device=model.device), output_hidden_states=True)
            return [state[0].float().cpu() for state in out.hidden_states[:-1]]

        states: list[torch.Tensor] = self.run(forward, adapter)
        return states

    def run(self, call: Callable[[Any], Any], adapter: str) -> Any:
        if not adapter:
            with self.reference.disable_adapter():
                return call(self.reference)
        if adapter not in self.reference.peft_config:  # PEFT takes longer for each than for what most tests ask of it
            weight = next(self.reference.parameters())
            self.reference.load_adapter(self.adapters[adapter].folder, adapter_name=adapter)
            self.reference.to(device=weight.device, dtype=weight.dtype).eval()
        self.reference.set_adapter(adapter)
        return call(self.reference)


class ReferenceFamilies:
    """The families that tests have used so far, each made once below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Family] = {}

    def __call__(self, name: str) -> Family:
        if name not in self._made:
            root = self._root / name
            model = save_model(name, root / "model")
            adapters = {a: adapter_at(a, save_adapter(a, model, root / a)) for a in ADAPTERS}
            first = next(iter(adapters.values()))
            reference: Any = PeftModel.from_pretrained(model, first.folder, adapter_name=first.name)
            settings = ENGINE_SETTINGS.get(name, {})
            self._made[name] = Family(root / "model", adapters, reference.float().eval(), settings)
        return self._made[name]


def build_engine(family: Family, **settings: Any) -> Engine:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=family.folder, **{"pool_mb": 24, **family.settings, **settings}), source)
    for adapter in family.adapters.values():
        source.add(pack_for(engine, adapter))
    return engine


def run_all(engine: Engine, requests: list[GenerationRequest]) -> tuple[dict[str, list[int]], int]:
    """Tokens by request, and how often a sequence was pre-empted. Checks the pool after every step."""
    for request in requests:
        engine.add_request(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    preemptions = 0
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None
            preemptions += end.usage.preemptions
    return tokens, preemptions


def decode_beside(engine: Engine, requests: list[GenerationRequest]) -> dict[str, list[int]]:
    """Run requests as ``run_all`` does, for a pool in which the test has pages, so that the full check cannot hold."""
    for request in requests:
        engine.add_request(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        engine.core.allocator.check()
    return tokens


Steps = dict[str, tuple[list[int], list[torch.Tensor]]]


def generate_with_logits(
    engine: Engine, requests: list[GenerationRequest], patch: pytest.MonkeyPatch, new_tokens: int = NEW_TOKENS
) -> Steps:
    """Each request's tokens, and the logits each of them was chosen from, in mixed, chunked batches."""
    steps: Steps = {request.request_id: ([], []) for request in requests}
    seen: deque[torch.Tensor] = deque()  # in the order of the deltas, which on a GPU come a step later

    def spy(logits: torch.Tensor, rows: Any) -> Any:
        seen.extend(logits.float().cpu())
        return sample(logits, rows)

    patch.setattr("lora_engine.execution.runner.sample", spy)
    for request in requests:  # with log-probabilities, every step goes through ``sample``
        params = SamplingParams(max_tokens=new_tokens, logprobs=True)
        engine.add_request(dataclasses.replace(request, sampling=params))
    while engine.has_work():
        for delta in engine.step().deltas:
            steps[delta.request_id][0].extend(delta.token_ids)
            steps[delta.request_id][1].append(seen.popleft())
    assert not seen
    return steps


def workload(family: Family, count: int, seed: int) -> tuple[list[GenerationRequest], dict[str, str]]:
    rnd = random.Random(seed)
    names = ["", *family.adapters]
    requests, used = [], {}
    for index in range(count):
        adapter = names[index % len(names)]
        prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice(LENGTHS))]
        digest = family.adapters[adapter].digest if adapter else ""
        used[str(index)] = adapter
        requests.append(GenerationRequest(str(index), prompt, SamplingParams(max_tokens=NEW_TOKENS), digest))
    return requests, used
