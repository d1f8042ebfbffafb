"""Activated LoRA: token for token as PEFT does it, and the base model's prefix cache before the invocation."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, pack_for, save_model
from peft import LoraConfig, PeftModel, get_peft_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, PromptLogprobs, SamplingParams

pytestmark = pytest.mark.usefixtures("few_programs")
FAMILY = "llama3-scaled-rope-tied"
NEW_TOKENS = 6
PAGE = 16
TARGETS = ["q_proj", "v_proj", "down_proj"]
INVOCATION, OTHER = [7, 8, 9], [11]
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "activated": {"alora_invocation_tokens": INVOCATION, "r": 6},
    "another": {"alora_invocation_tokens": OTHER, "rank_pattern": {"q_proj": 3}},
    "with lora_bias": {"alora_invocation_tokens": INVOCATION, "lora_bias": True},
}


class Made:
    def __init__(self, root: Path) -> None:
        self.folder = root / "model"
        self.model = save_model(FAMILY, self.folder)
        self.adapters: dict[str, Adapter] = {}
        self.references: dict[str, Any] = {}
        self._known: dict[tuple[str | int, ...], list[int]] = {}
        for number, (name, settings) in enumerate(ADAPTERS.items()):
            torch.manual_seed(number)
            config = {"r": 4, "lora_alpha": 8, "target_modules": TARGETS, "init_lora_weights": False, **settings}
            trained = get_peft_model(copy.deepcopy(self.model), LoraConfig(task_type="CAUSAL_LM", **config))
            for key, parameter in trained.named_parameters():
                if "lora_" in key:
                    parameter.data = torch.randn_like(parameter) * 0.1
            trained.save_pretrained(root / str(number))
            self.adapters[name] = adapter_at(name, root / str(number))
            reference: Any = PeftModel.from_pretrained(copy.deepcopy(self.model), str(root / str(number)))
            self.references[name] = reference.float().eval()

    def digest(self, name: str) -> str:
        return self.adapters[name].digest if name else ""

    def greedy(self, prompt: list[int], name: str, new_tokens: int = NEW_TOKENS) -> list[int]:
        """What PEFT generates; a tiny model takes most of the time of these tests, so each is asked once."""
        if (found := self._known.get((name, *prompt), [])) and len(found) >= new_tokens:
            return found[:new_tokens]
        self._known[name, *prompt] = made = self._generate(prompt, name, new_tokens)
        return made

    def _generate(self, prompt: list[int], name: str, new_tokens: int) -> list[int]:
        model = self.references[name] if name else self.model
        ids = torch.tensor([prompt])
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return list(out[0, len(prompt) :].tolist())

    def engine(self, **settings: Any) -> Engine:
        source = LoadedAdapters()
        config = {"pool_mb": 16, "page_tokens": PAGE, **settings}
        engine = Engine(EngineConfig(model=self.folder, **config), source)
        for adapter in self.adapters.values():
            source.add(pack_for(engine, adapter))
        poison(engine)
        return engine


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("activated"))


def prompts(seed: int = 0) -> list[list[int]]:
    """With one context: the invocation at the start, inside, at the end, twice, across two pages, cut off, nowhere."""
    rnd = random.Random(seed)
    context = [rnd.randrange(20, VOCAB) for _ in range(2 * PAGE + 5)]
    later = [rnd.randrange(20, VOCAB) for _ in range(9)]
    return [
        [*INVOCATION, *context],
        [*context, *INVOCATION, *later],
        [*context, *INVOCATION],
        [*context, *INVOCATION, *later, *INVOCATION, *later],
        [*context[: 2 * PAGE - 2], *INVOCATION, *later, *context],
        [*context, *INVOCATION[:2]],
        [*context, *OTHER, *INVOCATION, *later],
        context,
        INVOCATION,
    ]


def requests_of(made: Made, names: Iterable[str], seed: int = 0) -> list[GenerationRequest]:
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    return [
        GenerationRequest(f"{name}#{number}", prompt, params, made.digest(name))
        for number, prompt in enumerate(prompts(seed))
        for name in names
    ]


def run(engine: Engine, requests: Iterable[GenerationRequest]) -> tuple[dict[str, list[int]], dict[str, int], int]:
    """Tokens and cached prompt tokens of each request, and how often a sequence was pre-empted."""
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    cached: dict[str, int] = {}
    preemptions = 0
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None, end.error.message
            cached[end.request_id] = end.usage.cached_prompt_tokens
            preemptions += end.usage.preemptions
    return tokens, cached, preemptions


def check(made: Made, requests: Iterable[GenerationRequest], tokens: dict[str, list[int]]) -> None:
    for request in requests:
        name, new = request.request_id.partition("#")[0], request.sampling.max_tokens
        assert tokens[request.request_id] == made.greedy(request.prompt_token_ids, name, new), request.request_id


@pytest.mark.parametrize("settings", [{}, {"step_tokens": 23}, {"mode": "auto"}, {"deterministic": True}], ids=str)
def test_one_batch_agrees_with_peft(made: Made, settings: dict[str, Any]) -> None:
    requests = requests_of(made, ["", *ADAPTERS])
    engine = made.engine(**settings)
    check(made, requests, run(engine, requests)[0])
    check(made, requests, run(engine, requests)[0])  # from what the first ones left in the prefix cache


def test_the_order_in_which_prefixes_are_cached_changes_nothing(made: Made) -> None:
    """One after another in random orders, so that each finds what others left: no one's keys are another's."""
    requests = requests_of(made, ["", "activated", "another", "plain"])
    wanted = {r.request_id: made.greedy(r.prompt_token_ids, r.request_id.partition("#")[0]) for r in requests}
    for seed in range(3):
        engine = made.engine(page_tokens=4)
        for request in random.Random(seed).sample(requests, len(requests)):
            assert run(engine, [request])[0][request.request_id] == wanted[request.request_id], request.request_id


def test_a_small_pool_changes_nothing(made: Made) -> None:
    engine = made.engine(pool_mb=1, page_tokens=2, max_running=64)
    many = requests_of(made, ["", *ADAPTERS]) * 8
    requests = [dataclasses.replace(r, request_id=f"{r.request_id}#{n}") for n, r in enumerate(many)]
    tokens, _, preemptions = run(engine, requests)
    check(made, requests, tokens)
    assert preemptions


def test_the_context_is_shared_with_the_base_and_among_adapters(made: Made) -> None:
    engine, params = made.engine(), SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    context = prompts()[7]
    asked = {"": [*context, 30, 31], "activated": [*context, *INVOCATION], "another": [*context, *OTHER, 3]}
    shared = len(context) // PAGE * PAGE
    for number, name in enumerate(("", "activated", "another", "activated", "")):
        request = GenerationRequest(f"{name}#{number}", asked[name], params, made.digest(name))
        tokens, cached, _ = run(engine, [request])
        check(made, [request], tokens)
        assert cached[request.request_id] == (shared if number else 0)
    # Of two that come together, the second one finds the context as soon as the first one comes to its invocation.
    other = made.engine()
    first, second = (GenerationRequest(f"{n}#", asked[n], params, made.digest(n)) for n in ("activated", "another"))
    other.add_request(first)
    other.step()
    other.step()
    tokens, cached, _ = run(other, [second])
    assert cached[second.request_id] == shared


@pytest.mark.parametrize("settings", [{}, {"deterministic": True}], ids=str)
def test_a_prefix_that_is_pinned_for_one_is_the_bases_up_to_the_invocation(
    made: Made, settings: dict[str, Any]
) -> None:
    """The context of a pin is found by the base and by other activated adapters; what comes behind an invocation in it,
    by the same adapter at the same place alone. A plain adapter finds nothing of either."""
    engine, params = made.engine(page_tokens=4, **settings), SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    context, digest = prompts()[7][:20], made.digest("activated")
    invoked = [*context, *INVOCATION, *context[:5]]
    pins = [PinnedPrefix(name, "", digest, "", ids) for name, ids in (("context", context), ("invoked", invoked))]
    engine.pin_prefixes(pins)
    computing = [
        GenerationRequest(pin.name, pin.token_ids, adapter_digest=digest, prompt_only=True, pin=pin.name)
        for pin in pins
    ]
    run(engine, computing)
    assert set(engine.pinned_prefixes().values()) == {PinState.KEPT}
    assert engine.core.prefixes.pinned_pages == 7, "the second one goes on from the first"
    for number, (name, prompt, found) in enumerate(
        [
            ("", [*context, 30, 31], 20),
            ("another", [*context, *OTHER, 3], 20),
            ("activated", [*invoked, 40], 28),
            ("activated", [*invoked, *INVOCATION], 20),
            ("plain", [*invoked, 40], 0),
        ]
    ):
        request = GenerationRequest(f"{name}#{number}", prompt, params, made.digest(name))
        tokens, cached, _ = run(engine, [request])
        check(made, [request], tokens)
        assert cached[request.request_id] == found, name


def test_an_answer_is_shared_by_the_same_adapter_alone(made: Made) -> None:
    """Pages behind the invocation are the adapter's, also where another prompt has the same tokens there."""
    engine, params = made.engine(page_tokens=4), SamplingParams(max_tokens=16, ignore_eos=True)
    prompt = prompts()[1]
    first = GenerationRequest("activated#", prompt, params, made.digest("activated"))
    answer = run(engine, [first])[0]["activated#"]
    longer = [*prompt, *answer[:-1]]
    for name in ("", "with lora_bias", "activated"):
        request = GenerationRequest(f"{name}#2", longer, params, made.digest(name))
        tokens, cached, _ = run(engine, [request])
        check(made, [request], tokens)
        whole = (len(longer) - 1) // 4 * 4
        assert cached[f"{name}#2"] == (whole if name == "activated" else (2 * PAGE + 5) // 4 * 4)


def test_prompt_logprobs_are_of_the_base_before_the_invocation(made: Made) -> None:
    requests = [
        dataclasses.replace(r, prompt_logprobs=2, prompt_only=True) for r in requests_of(made, ["activated", "plain"])
    ]
    engine = made.engine(step_tokens=29)
    found: dict[str, list[float]] = {request.request_id: [] for request in requests}
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        for delta in engine.step().deltas:
            if isinstance(delta.of_prompt, PromptLogprobs):
                found[delta.request_id] += delta.of_prompt.logprobs
    for request in requests:
        prompt, model = request.prompt_token_ids, made.references[request.request_id.partition("#")[0]]
        with torch.inference_mode():
            theirs = model(input_ids=torch.tensor([prompt])).logits[0].float().log_softmax(dim=-1)
        want = [0.0, *(float(theirs[place, token]) for place, token in enumerate(prompt[1:]))]
        np.testing.assert_allclose(found[request.request_id], want, atol=2e-4, rtol=1e-5, err_msg=request.request_id)


def test_the_triton_backend_agrees_with_peft(made: Made) -> None:
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    requests = [
        GenerationRequest(f"{name}#", [40, *INVOCATION], params, made.digest(name)) for name in ("activated", "plain")
    ]
    check(made, requests, run(made.engine(backend="triton", dtype="float32", cuda_graphs=False), requests)[0])


@pytest.mark.gpu
def test_gpu_one_batch_agrees_with_peft(made: Made) -> None:
    engine = made.engine(device="cuda", backend="triton", dtype="float32")
    for seed in range(3):
        requests = requests_of(made, ["", *ADAPTERS], seed)
        check(made, requests, run(engine, requests)[0])
