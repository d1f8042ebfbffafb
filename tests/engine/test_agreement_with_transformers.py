"""Token-exact greedy agreement with transformers + peft in float32, for every family and adapter variant."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.tiny_models import (
    ADAPTERS,
    FAMILIES,
    VOCAB,
    Adapter,
    adapter_at,
    pack_for,
    save_adapter,
    save_model,
)
from peft import PeftModel

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

NEW_TOKENS = 16
LENGTHS = (1, 2, 15, 16, 17, 33, 50, 97)


@dataclass
class Family:
    """A model on disk, its adapters, and the reference that runs them."""

    folder: Path
    adapters: dict[str, Adapter]
    reference: PeftModel

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

        return self.run(generate, adapter)

    def logits(self, prompt: list[int], adapter: str) -> torch.Tensor:
        def forward(model: Any) -> torch.Tensor:
            with torch.inference_mode():
                return model(input_ids=torch.tensor([prompt], device=model.device)).logits[0, -1].float().cpu()

        return self.run(forward, adapter)

    def run(self, call: Callable[[Any], Any], adapter: str) -> Any:
        if not adapter:
            with self.reference.disable_adapter():
                return call(self.reference)
        self.reference.set_adapter(adapter)
        return call(self.reference)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    made: dict[str, Family] = {}

    def make(name: str) -> Family:
        if name not in made:
            root = tmp_path_factory.mktemp(name)
            model = save_model(name, root / "model")
            adapters = {a: adapter_at(a, save_adapter(a, model, root / a)) for a in ADAPTERS}
            reference: Any = None
            for adapter in adapters.values():
                if reference is None:
                    reference = PeftModel.from_pretrained(model, adapter.folder, adapter_name=adapter.name)
                else:
                    reference.load_adapter(adapter.folder, adapter_name=adapter.name)
            made[name] = Family(root / "model", adapters, reference.float().eval())
        return made[name]

    return make


def build_engine(family: Family, **settings: Any) -> Engine:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=family.folder, **{"pool_mb": 24, **settings}), source)
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
        engine.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None
            preemptions += end.usage.preemptions
    return tokens, preemptions


def decode_beside(engine: Engine, requests: list[GenerationRequest]) -> dict[str, list[int]]:
    """Like ``run_all`` for a pool in which the test itself holds pages, so that the full check cannot hold."""
    for request in requests:
        engine.add_request(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        engine.allocator.check()
    return tokens


def first_logits(engine: Engine, requests: list[GenerationRequest]) -> dict[str, torch.Tensor]:
    """The logits each request's first token was sampled from, in mixed, chunked batches."""
    captured: dict[str, torch.Tensor] = {}
    forward = engine.runner.model.forward

    def spy(batch: Any, pool: Any) -> torch.Tensor:
        nonlocal latest
        latest = forward(batch, pool)
        return latest

    latest = torch.empty(0)
    engine.runner.model.forward = spy  # type: ignore[method-assign]
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        for row, delta in enumerate(engine.step().deltas):
            captured.setdefault(delta.request_id, latest[row].float().cpu())
    return captured


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).norm() / want.norm())


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


@pytest.mark.parametrize("name", FAMILIES)
def test_mixed_batches_agree_token_for_token(families: Callable[[str], Family], name: str) -> None:
    family = families(name)
    requests, adapters = workload(family, 18, seed=len(name))
    tokens, _ = run_all(build_engine(family, step_tokens=37), requests)
    for request in requests:
        wanted = family.greedy(request.prompt_token_ids, adapters[request.request_id])
        assert tokens[request.request_id] == wanted, adapters[request.request_id]


@pytest.mark.parametrize("step_tokens", [1, 7, 64, 2048])
def test_chunk_size_changes_nothing(families: Callable[[str], Family], step_tokens: int) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 16, seed=step_tokens)
    tokens, _ = run_all(build_engine(family, step_tokens=step_tokens), requests)
    for request in requests:
        assert tokens[request.request_id] == family.greedy(request.prompt_token_ids, adapters[request.request_id])


def test_forced_preemption_and_adapter_eviction_change_nothing(families: Callable[[str], Family]) -> None:
    family = families("llama3-scaled-rope-tied")
    requests, adapters = workload(family, 27, seed=5)
    tokens, preemptions = run_all(build_engine(family, step_tokens=256, pool_mb=1, page_tokens=2), requests)
    assert preemptions > 0, "the pool was meant to be too small"
    for request in requests:
        assert tokens[request.request_id] == family.greedy(request.prompt_token_ids, adapters[request.request_id])


def test_alone_equals_batch_mixed(families: Callable[[str], Family]) -> None:
    family = families("mistral-sliding-window")
    requests, _ = workload(family, 18, seed=9)
    mixed, _ = run_all(build_engine(family), requests)
    for request in requests:
        alone, _ = run_all(build_engine(family), [request])
        assert alone[request.request_id] == mixed[request.request_id]


def test_scattered_adapter_pages_give_the_same_tokens(families: Callable[[str], Family]) -> None:
    """No run of free pages is long enough, so the adapter's weights are gathered."""
    family = families("llama2-mha")
    requests, adapters = workload(family, 9, seed=3)
    engine = build_engine(family)
    total = engine.pool.num_pages - 1
    taken = engine.allocator.allocate(total)
    engine.allocator.release(taken[::2])
    tokens = decode_beside(engine, requests)
    for request in requests:
        assert tokens[request.request_id] == family.greedy(request.prompt_token_ids, adapters[request.request_id])
    slots = list(engine.residency.slots())
    assert any(b - a != 1 for slot in slots for a, b in zip(slot.pages, slot.pages[1:], strict=False))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
def test_gpu_bfloat16_logits_are_as_close_as_transformers_own(families: Callable[[str], Family], name: str) -> None:
    """In bfloat16 on the GPU, the error against float32 is at most twice that of transformers in bfloat16."""
    family = families(name)
    engine = build_engine(family, device="cuda", dtype="bfloat16", step_tokens=64, max_running=24)
    requests, adapters = workload(family, 18, seed=2)
    captured = first_logits(engine, requests)
    exact = {r.request_id: family.logits(r.prompt_token_ids, adapters[r.request_id]) for r in requests}
    family.reference = copy.deepcopy(family.reference).to(device="cuda", dtype=torch.bfloat16)
    ours, theirs = [], []
    for request in requests:
        want = exact[request.request_id]
        rounded = family.logits(request.prompt_token_ids, adapters[request.request_id])
        theirs.append(relative_error(rounded, want))
        ours.append(relative_error(captured[request.request_id], want))
    print(f"{name}: ours {max(ours):.4f}, transformers {max(theirs):.4f}")
    assert max(ours) <= 2 * max(theirs) + 1e-3


@pytest.mark.parametrize("name", ["llama3-scaled-rope-tied", "qwen3-qk-norm", "mistral-sliding-window"])
def test_the_triton_backend_gives_the_same_tokens(families: Callable[[str], Family], name: str) -> None:
    """On a machine without a GPU, through Triton's interpreter: the kernels' arithmetic, not their speed."""
    family = families(name)
    requests, adapters = workload(family, 9, seed=4)
    requests = [dataclasses.replace(r, sampling=SamplingParams(max_tokens=3)) for r in requests]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    engine = build_engine(family, step_tokens=64, backend="triton", device=device, dtype="float32", cuda_graphs=False)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        wanted = family.greedy(request.prompt_token_ids, adapters[request.request_id])[:3]
        assert tokens[request.request_id] == wanted, adapters[request.request_id]
