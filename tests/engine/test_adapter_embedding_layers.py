"""Adapters that change the embedding or the head: token for token as PEFT does it, beside adapters that do not."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, geometry_of, pack_for, save_model
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from lora_engine.adapters.embedding_pages import BaseEmbeddingLayers, against_base
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.peft_format import SafetensorsFile, inspect_adapter
from lora_engine.request import ChoiceSoFar, GenerationRequest, PromptLogprobs, SamplingParams

pytestmark = pytest.mark.usefixtures("few_programs")
UNTIED, TIED, SCALED = "llama2-mha", "llama3-scaled-rope-tied", "gemma2-soft-caps"
FAMILIES = (UNTIED, TIED, SCALED)
NEW_TOKENS = 8
LARGER, SMALLER = VOCAB + 11, VOCAB - 9
LINEAR = ["q_proj", "down_proj"]
# What PEFT is told, and "resize": tokens of the model that it trains.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "LoRA on lm_head": {"target_modules": [*LINEAR, "lm_head"], "rank_pattern": {"lm_head": 5}},
    "LoRA on embed_tokens": {"target_modules": [*LINEAR, "embed_tokens"], "alpha_pattern": {"embed_tokens": 3}},
    "LoRA on both, no layer": {"target_modules": ["lm_head", "embed_tokens"], "use_rslora": True},
    "LoRA on both, tied if they are": {"target_modules": [*LINEAR, "embed_tokens"], "ensure_weight_tying": True},
    "a copy of the head": {"modules_to_save": ["lm_head"]},
    "a copy of the embedding": {"modules_to_save": ["embed_tokens"]},
    "copies of both": {"modules_to_save": ["lm_head", "embed_tokens"]},
    "copies and LoRA": {"target_modules": [*LINEAR, "lm_head"], "modules_to_save": ["embed_tokens"]},
    "tokens": {"trainable_token_indices": [3, 65, 200, 511]},
    "tokens of each embedding layer": {"trainable_token_indices": {"embed_tokens": [3, 65], "lm_head": [65, 77]}},
    "a copy of the head, and DoRA": {"use_dora": True, "modules_to_save": ["lm_head"]},
    "LoRA on lm_head, and biases": {"bias": "lora_only", "target_modules": [*LINEAR, "lm_head"]},
    "tokens, and lora_bias": {"lora_bias": True, "trainable_token_indices": [9, 65]},
    "more tokens": {"resize": LARGER},
    "more tokens, trained": {"resize": LARGER, "trainable_token_indices": [VOCAB, VOCAB + 4]},
    "fewer tokens": {"resize": SMALLER},
}


def train(model: Any, folder: Path, settings: dict[str, Any]) -> None:
    settings = dict(settings)
    trained = copy.deepcopy(model)
    if resize := settings.pop("resize", 0):
        trained.resize_token_embeddings(resize, mean_resizing=False)
    config = {"r": 4, "lora_alpha": 8, "target_modules": LINEAR, "init_lora_weights": False, **settings}
    trained = get_peft_model(trained, LoraConfig(task_type="CAUSAL_LM", **config))
    for key, parameter in trained.named_parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.08 if "lora_" in key else 0.2)  # tied ones stay so
        elif resize and ("embed_tokens" in key or "lm_head" in key):  # as a training of the whole model would
            parameter.data[-20:] += torch.randn_like(parameter[-20:])
    trained.save_pretrained(folder)


class Made:
    """A model of a family, and adapters of every kind that PEFT wrote for it."""

    def __init__(self, family: str, root: Path) -> None:
        self.folder = root / "model"
        save_model(family, self.folder)
        self.model = AutoModelForCausalLM.from_pretrained(self.folder)  # by whose name PEFT sees what was resized
        self.adapters: dict[str, Adapter] = {}
        for number, (name, settings) in enumerate(KINDS.items()):
            torch.manual_seed(number)
            train(self.model, root / str(number), settings)
            self.adapters[name] = adapter_at(name, root / str(number))

    def reference(self, name: str) -> Any:
        model = copy.deepcopy(self.model)
        if resize := KINDS.get(name, {}).get("resize"):
            model.resize_token_embeddings(resize, mean_resizing=False)
        return PeftModel.from_pretrained(model, str(self.adapters[name].folder)).float().eval() if name else model

    def logits(self, prompt: list[int], name: str) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = self.reference(name)(input_ids=torch.tensor([prompt])).logits[0].float()
        return logits

    def engine(self, **settings: Any) -> Engine:
        source = LoadedAdapters()
        engine = Engine(EngineConfig(model=self.folder, **{"pool_mb": 32, **settings}), source)
        for adapter in self.adapters.values():
            source.add(pack_for(engine, adapter))
        return engine


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    known: dict[str, Made] = {}

    def make(family: str) -> Made:
        if family not in known:
            known[family] = Made(family, tmp_path_factory.mktemp(family))
        return known[family]

    return make


def requests_of(made: Made, copies: int = 1, new_tokens: int = NEW_TOKENS, seed: int = 0) -> list[GenerationRequest]:
    """Of every kind and the base, with prompts of their own."""
    rnd = random.Random(seed)
    params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
    requests = []
    for copy_ in range(copies):
        for number, name in enumerate(["", *made.adapters]):
            prompt = [rnd.randrange(SMALLER) for _ in range(3 + 7 * number % 40)]
            digest = made.adapters[name].digest if name else ""
            requests.append(GenerationRequest(f"{name}#{copy_}", prompt, params, digest))
    return requests


def run(engine: Engine, requests: list[GenerationRequest]) -> tuple[dict[str, list[int]], int]:
    """Tokens of each request, and how often a sequence was pre-empted."""
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
            assert end.error is None, end.error.message
            preemptions += end.usage.preemptions
    return tokens, preemptions


def check_greedy(made: Made, requests: list[GenerationRequest], tokens: dict[str, list[int]]) -> None:
    for request in requests:
        name, new = request.request_id.partition("#")[0], tokens[request.request_id]
        assert len(new) == request.sampling.max_tokens
        best = made.logits([*request.prompt_token_ids, *new[:-1]], name).argmax(dim=-1)
        assert new == best[-len(new) :].tolist(), name


@pytest.mark.parametrize("family", FAMILIES)
def test_one_batch_of_all_kinds_agrees_with_peft(made: Callable[[str], Made], family: str) -> None:
    case = made(family)
    requests = requests_of(case)
    engine = case.engine(step_tokens=37)
    poison(engine)
    tokens, _ = run(engine, requests)
    check_greedy(case, requests, tokens)
    alone = case.engine()
    poison(alone)
    for request in requests:
        assert run(alone, [request])[0][request.request_id] == tokens[request.request_id], request.request_id


def test_a_small_pool_changes_nothing(made: Callable[[str], Made]) -> None:
    """Sequences are pre-empted, and adapters evicted and loaded into pages that are scattered."""
    case = made(TIED)
    engine = case.engine(pool_mb=1, page_tokens=2, prefix_cache=False)
    poison(engine)
    requests = requests_of(case, copies=4)
    tokens, preemptions = run(engine, requests)
    check_greedy(case, requests, tokens)
    assert preemptions
    assert engine.core.device_tier.stats.adapters > len(KINDS)


@pytest.mark.parametrize("settings", [{"mode": "auto"}, {"mode": "merged"}, {"deterministic": True}], ids=str)
def test_other_ways_to_run(made: Callable[[str], Made], settings: dict[str, Any]) -> None:
    case = made(UNTIED)
    requests = requests_of(case)
    if settings.get("mode") == "merged":  # one adapter for all that is merged, and never left
        requests = [request for request in requests if request.request_id.startswith("copies and LoRA")]
    engine = case.engine(**settings)
    poison(engine)
    check_greedy(case, requests, run(engine, requests)[0])


def test_triton_agrees_too(made: Callable[[str], Made]) -> None:
    """A prompt and a decode step through Triton's interpreter; the layers themselves are torch's operations."""
    case = made(UNTIED)
    names = ("plain", "copies and LoRA", "more tokens")
    requests = [
        dataclasses.replace(request, prompt_token_ids=request.prompt_token_ids[:5])
        for request in requests_of(case, new_tokens=2)
        if request.request_id.partition("#")[0] in names
    ]
    engine = case.engine(backend="triton", dtype="float32", cuda_graphs=False)
    poison(engine)
    check_greedy(case, requests, run(engine, requests)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
def test_graphs_and_kernels_agree_on_a_gpu(made: Callable[[str], Made], deterministic: bool) -> None:
    """Batches with such layers run outside of the graphs, others in them, one after the other."""
    case = made(UNTIED)
    engine = case.engine(device="cuda", backend="triton", dtype="float32", deterministic=deterministic)
    for seed in range(3):
        requests = requests_of(case, seed=seed)
        check_greedy(case, requests, run(engine, requests)[0])
        plain = [r for r in requests if r.request_id.partition("#")[0] in ("", "plain")]
        check_greedy(case, plain, run(engine, plain)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_logprobs_are_of_the_adapters_own_head(made: Callable[[str], Made], family: str) -> None:
    case = made(family)
    requests = [dataclasses.replace(r, prompt_logprobs=3, prompt_only=True) for r in requests_of(case)]
    engine = case.engine(step_tokens=29)
    for request in requests:
        engine.add_request(request)
    found: dict[str, list[float]] = {request.request_id: [] for request in requests}
    while engine.has_work():
        for delta in engine.step().deltas:
            if isinstance(delta.of_prompt, PromptLogprobs):
                found[delta.request_id] += delta.of_prompt.logprobs
    for request in requests:
        prompt = request.prompt_token_ids
        theirs = case.logits(prompt, request.request_id.partition("#")[0]).log_softmax(dim=-1)
        want = [0.0, *(float(theirs[place, token]) for place, token in enumerate(prompt[1:]))]
        np.testing.assert_allclose(found[request.request_id], want, atol=2e-4, rtol=1e-5, err_msg=request.request_id)


class OnDisk(LoadedAdapters):
    """Adapters that are in host memory only once a request has waited for them."""

    def __init__(self) -> None:
        super().__init__()
        self._in_memory: set[str] = set()

    def get(self, digest: str) -> PackedAdapter | None:
        return super().get(digest) if digest in self._in_memory else None

    def request_load(self, digest: str) -> None:
        self._in_memory.add(digest)


def test_tokens_that_only_an_adapter_has_may_stand_in_a_prompt(made: Callable[[str], Made]) -> None:
    """What it generates can be sent back, to go on with, as a stop token and with a bias."""
    case = made(TIED)
    engine, params = case.engine(), SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    requests = [
        GenerationRequest(f"{name}#0", [5, LARGER - 1, VOCAB, 9, VOCAB + 4], params, case.adapters[name].digest)
        for name in ("more tokens", "more tokens, trained")
    ]
    check_greedy(case, requests, run(engine, requests)[0])
    (vocab,) = {LARGER, pack_for(engine, case.adapters["more tokens"]).layout.vocab_size}
    biased = dataclasses.replace(params, logit_bias={vocab - 1: 100.0}, stop_token_ids=(vocab - 1,))
    last = dataclasses.replace(requests[0], sampling=biased)
    assert run(engine, [last])[0][last.request_id] == [vocab - 1]
    resumed = dataclasses.replace(requests[0], so_far=(ChoiceSoFar(0, [vocab - 1]),))
    assert len(run(engine, [resumed])[0][resumed.request_id]) == NEW_TOKENS - 1
    beyond = dataclasses.replace(requests[0], prompt_token_ids=[5, vocab])
    for bad in (
        beyond,
        dataclasses.replace(requests[0], adapter_digest=""),
        dataclasses.replace(requests[0], adapter_digest=case.adapters["plain"].digest),
        dataclasses.replace(requests[0], sampling=dataclasses.replace(params, logit_bias={vocab: 1.0})),
    ):
        with pytest.raises(RequestError):
            engine.add_request(bad)

    source = OnDisk()
    late = Engine(EngineConfig(model=case.folder, pool_mb=32), source)
    for name in ("more tokens", "plain"):
        source.add(pack_for(late, case.adapters[name]))
    late.add_request(requests[0])
    late.add_request(beyond_all := dataclasses.replace(beyond, request_id="beyond"))
    late.add_request(dataclasses.replace(requests[0], request_id="plain", adapter_digest=case.adapters["plain"].digest))
    ends = {}
    while late.has_work():
        ends |= {end.request_id: end.error for end in late.step().finished}
    assert ends[requests[0].request_id] is None
    for name in (beyond_all.request_id, "plain"):
        error = ends[name]
        assert error is not None and (error.code, error.param) == ("invalid_value", "prompt")


def test_rows_that_equal_the_base_are_left_out(made: Callable[[str], Made]) -> None:
    """PEFT saves the whole base matrix beside LoRA on an embedding layer; it takes no pages."""
    case = made(UNTIED)
    engine = case.engine()
    pages = {name: pack_for(engine, adapter).num_pages for name, adapter in case.adapters.items()}
    assert pages["more tokens"] < pages["a copy of the head"] / 2
    weights = engine.loaded.model.weights
    manifest = inspect_adapter(case.adapters["LoRA on lm_head"].folder, geometry_of(engine)).manifest
    assert manifest is not None and manifest.embedding_layers[0].saved
    file = SafetensorsFile.open(case.adapters["LoRA on lm_head"].folder / "adapter_model.safetensors")
    (head,) = against_base(manifest, file, BaseEmbeddingLayers(weights.embedding, weights.lm_head)).embedding_layers
    assert head.kept is not None and len(head.kept) == 0


def test_sampled_answers_are_the_same_alone_and_beside_others(made: Callable[[str], Made]) -> None:
    case = made(TIED)
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, temperature=0.8, top_p=0.9, seed=7, logprobs=True)
    requests = [dataclasses.replace(request, sampling=params) for request in requests_of(case)]
    together, _ = run(case.engine(), requests)
    alone = case.engine()
    for request in requests:
        assert run(alone, [request])[0][request.request_id] == together[request.request_id], request.request_id
