"""A finite adapter whose keys, values or logits overflow ends its own requests and touches nobody else's answers.

Every pool here is poisoned: its free pages are full of NaN before each use.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import Adapter, adapter_at, pack_for, save_adapter, save_model, save_scaled_adapter

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, RequestFinished, SamplingParams

pytestmark = pytest.mark.usefixtures("few_programs")
VOCAB = 512
GREEDY = SamplingParams(max_tokens=4, ignore_eos=True)
HEALTHY = ("attention-r8", "mlp-r5")
# By name: targets, lora_alpha, the size of the weights, the type they are stored in, and where they overflow.
OVERFLOWING: dict[str, tuple[list[str], float, float, torch.dtype, tuple[str, ...]]] = {
    "values": (["v_proj"], 1, 1e30, torch.float32, ("float32", "float16", "bfloat16")),
    "keys": (["k_proj"], 1, 1e30, torch.float32, ("float32", "float16", "bfloat16")),
    "alpha": (["v_proj"], 1e4, 2.0, torch.float16, ("float16",)),
    "everything": (["q_proj", "v_proj", "o_proj", "down_proj"], 1, 1e30, torch.float32, ("float32", "float16")),
}
# Backend, type, mode, and whether the next step is launched before the last one's tokens are known.
ENGINES: dict[str, dict[str, Any]] = {
    "torch": {"dtype": "float32"},
    "torch in half precision, ahead": {"dtype": "float16", "ahead": True},
    "torch, merged": {"dtype": "float32", "mode": "merged"},
    "torch, fp8": {"dtype": "float32", "quantization": "fp8", "kv_cache_dtype": "fp8"},
}
ON_GPU: dict[str, dict[str, Any]] = {
    f"{backend} {dtype} {mode} {'graphs' if graphs else 'plain'}": {
        "device": "cuda", "backend": backend, "dtype": dtype, "mode": mode, "cuda_graphs": graphs
    }
    for backend, dtype, mode, graphs in (
        ("triton", "bfloat16", "unmerged", True),
        ("triton", "float16", "unmerged", True),
        ("triton", "float32", "merged", True),
        ("triton", "float16", "merged", False),
        ("torch", "float16", "unmerged", False),
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("poisoned")
    model = save_model("mistral-sliding-window", root / "model")
    for name in HEALTHY:
        save_adapter(name, model, root / name)
    for name, (targets, alpha, size, dtype, _) in OVERFLOWING.items():
        save_scaled_adapter(model, root / name, targets, alpha, size, dtype)
    return root


class Host:
    """An engine with a poisoned pool, healthy adapters and overflowing ones."""

    def __init__(self, folder: Path, ahead: bool = False, **settings: Any) -> None:
        source = LoadedAdapters()
        self.engine = Engine(EngineConfig(model=folder / "model", threads=1, **{"pool_mb": 3, **settings}), source)
        poison(self.engine)
        self.engine.runner.overlaps |= ahead
        self.adapters: dict[str, Adapter] = {n: adapter_at(n, folder / n) for n in (*HEALTHY, *OVERFLOWING)}
        for adapter in self.adapters.values():
            source.add(pack_for(self.engine, adapter))
        dtype = settings["dtype"]
        self.overflowing = [name for name, (*_, where) in OVERFLOWING.items() if dtype in where]
        self._count = 0

    def request(self, adapter: str, prompt: list[int], sampling: SamplingParams = GREEDY) -> GenerationRequest:
        self._count += 1
        digest = self.adapters[adapter].digest if adapter else ""
        return GenerationRequest(f"{self._count}", prompt, sampling, digest)

    def run(self, requests: list[GenerationRequest]) -> tuple[list[list[int]], list[RequestFinished]]:
        """Tokens and end of each request, all in the engine at once."""
        for request in requests:
            self.engine.add_request(request)
        tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
        ends: dict[str, RequestFinished] = {}
        while self.engine.has_work():
            output = self.engine.step()
            self.engine.core.check()
            for delta in output.deltas:
                tokens[delta.request_id] += delta.token_ids
            ends |= {end.request_id: end for end in output.finished}
        return list(tokens.values()), [ends[request.request_id] for request in requests]

    def ask(self, adapters: list[str], lengths: list[int], seed: int = 0) -> list[tuple[str, list[int]]]:
        """Each request's outcome, or its error's code, and its tokens."""
        rnd = random.Random(seed)
        prompts = [[rnd.randrange(VOCAB) for _ in range(length)] for length in lengths]
        tokens, ends = self.run([self.request(a, p) for a, p in zip(adapters, prompts, strict=True)])
        return [(end.error.code if end.error else end.usage.outcome, t) for end, t in zip(ends, tokens, strict=True)]


def attack(host: Host, most: int) -> None:
    """Answers before, beside and after overflowing requests are the same; those end with an error of their own."""
    asked = ["", "attention-r8", "", "mlp-r5"][:most]
    lengths = [17, 3, 33, 40][:most]
    before = host.ask(asked, lengths)
    assert {outcome for outcome, _ in before} == {"finished"}
    for name in host.overflowing:
        beside = host.ask([*asked, name, name], [*lengths, 20, 33])
        assert beside[:most] == before, f"beside {name}"
        assert beside[most:] == [("adapter_overflow", [])] * 2
        assert host.ask(asked, lengths) == before, f"after {name}"


@pytest.mark.parametrize("name", ENGINES)
def test_an_overflowing_adapter_changes_nobody_elses_answers(folder: Path, name: str) -> None:
    attack(Host(folder, **ENGINES[name]), 4)


@pytest.mark.parametrize(
    "how",
    [{"mode": "unmerged"}, {"mode": "merged"}, {"quantization": "fp8", "kv_cache_dtype": "fp8"}],
    ids=["unmerged", "merged", "fp8"],
)
def test_an_overflowing_adapter_changes_nobody_elses_answers_by_our_kernels(folder: Path, how: dict[str, str]) -> None:
    """In the interpreter, so: one layer, two tokens, one neighbour, whose pages are then the attacker's."""
    host = Host(folder, dtype="float32", backend="triton", cuda_graphs=False, prefix_cache=False, **how)
    model = host.engine.loaded.model
    for layers in (model.weights.layers, model.merged.layers if model.merged else []):
        del layers[1:]
    prompts = {"": list(range(18)), "attention-r8": list(range(3)), "values": list(range(5))}
    requests = [host.request(name, prompt, replace(GREEDY, max_tokens=2)) for name, prompt in prompts.items()]
    alone = [host.run([request])[0][0] for request in requests[:2]]
    again = [replace(request, request_id=f"again {request.request_id}") for request in requests]
    tokens, ends = host.run(again)
    assert tokens == [*alone, []]
    assert ends[2].error is not None and ends[2].error.code == "adapter_overflow"
    assert host.run([replace(requests[0], request_id="at last")])[0] == alone[:1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_an_overflowing_adapter_changes_nobody_elses_answers_on_a_gpu(folder: Path, name: str) -> None:
    attack(Host(folder, **ON_GPU[name], max_running=24), 4)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=4, temperature=0.8),
        SamplingParams(max_tokens=4, temperature=1.0, top_p=0.5, top_k=5),
        SamplingParams(max_tokens=4, logprobs=True, top_logprobs=3),
        SamplingParams(max_tokens=4, repetition_penalty=1.5, presence_penalty=1.0, logit_bias={3: 50.0}),
        SamplingParams(max_tokens=4, n=3, temperature=1.0),
    ],
    ids=["temperature", "truncated", "logprobs", "penalties", "choices"],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_it_is_noticed_however_tokens_are_chosen(folder: Path, sampling: SamplingParams, ahead: bool) -> None:
    host = Host(folder, dtype="float32", ahead=ahead)
    prompt = list(range(20))
    alone, _ = host.run([host.request("", prompt, replace(sampling, n=1, seed=5))])
    tokens, ends = host.run(
        [host.request("values", prompt, sampling), host.request("", prompt, replace(sampling, n=1, seed=5))]
    )
    assert ends[0].error is not None
    assert (ends[0].error.code, ends[0].usage.outcome, tokens[0]) == ("adapter_overflow", "failed", [])
    assert ends[0].error.fix
    assert ends[1].error is None
    assert tokens[1] == alone[0]


@pytest.mark.parametrize("ahead", [False, True])
def test_pages_of_an_overflowed_sequence_are_not_cached(folder: Path, ahead: bool) -> None:
    host = Host(folder, dtype="float32", ahead=ahead)
    prompt = list(range(100))
    host.run([host.request("values", prompt), host.request("values", prompt), host.request("", prompt)])
    kept = len(host.engine.core.prefixes)
    assert kept == 6, "only the healthy prompt's full pages"
    assert host.engine.pool_stats().cached_prefix == kept
    pages = sorted(host.engine.core.prefixes.pages)
    assert torch.isfinite(host.engine.pool.data[:, pages]).all()


def test_prefixes_that_share_its_beginning_are_forgotten_with_it(folder: Path) -> None:
    """Who goes on from an overflowed page would overflow too; pages that a running sequence holds stay its own."""
    host = Host(folder, dtype="float32")
    engine, key = host.engine, ("", "digest")
    pages = engine.core.allocator.allocate(5)
    shared, other = list(range(16)), list(range(100, 116))
    engine.core.prefixes.insert(key, [*shared, *range(200, 232)], pages[:3])
    engine.core.prefixes.insert(key, [*shared, *range(300, 316)], [pages[0], pages[3]])
    engine.core.prefixes.insert(key, other, pages[4:])
    engine.core.prefixes.release(pages[2:])
    engine.core.prefixes.drop_path(key, [*shared, *range(200, 216)])
    assert engine.core.prefixes.pages == {pages[4]}
    engine.core.allocator.check()
    assert engine.pool_stats().kv == 2
    engine.core.prefixes.release(pages[:2])
    assert engine.pool_stats().kv == 0
    engine.core.check()


def test_pinned_prefixes_outlive_others_and_are_read_as_they_were_computed(folder: Path) -> None:
    """In a pool that others fill with NaN: of an adapter that overflows nothing is pinned, and who begins with what is
    pinned has the answer that it had without."""
    host = Host(folder, dtype="float32", ahead=True, page_tokens=4, pool_mb=1)
    beginning, names = list(range(24)), ("", "attention-r8", "values")
    wanted = [host.run([host.request(name, [*beginning, 7])])[0][0] for name in names[:2]]
    pins = [
        PinnedPrefix(name or "base", "", host.adapters[name].digest if name else "", "", beginning) for name in names
    ]
    host.engine.pin_prefixes(pins)
    for name, prefix in zip(names, pins, strict=True):
        host.run([replace(host.request(name, beginning), prompt_only=True, pin=prefix.name)])
    assert [*host.engine.pinned_prefixes().values()] == [PinState.KEPT, PinState.KEPT, PinState.MISSING]
    host.ask([*HEALTHY, *host.overflowing] * 4, [60] * 4 * (len(HEALTHY) + len(host.overflowing)))
    for name, tokens in zip(names[:2], wanted, strict=True):
        got, (end,) = host.run([host.request(name, [*beginning, 7])])
        assert (got, end.usage.cached_prompt_tokens) == ([tokens], 24)


def test_a_base_model_that_overflows_says_so(folder: Path) -> None:
    host = Host(folder, dtype="float16")
    host.engine.loaded.model.weights.lm_head.mul_(2e5)
    (outcome,) = host.ask([""], [20])
    assert outcome == ("model_overflow", [])


def test_adapters_of_a_usual_size_are_merged_and_large_ones_are_not(folder: Path, tmp_path: Path) -> None:
    host = Host(folder, dtype="float32", mode="merged")
    for name in HEALTHY:
        host.ask([name], [20])
        assert host.engine.merge_report().adapter_digest == host.adapters[name].digest
    merges = host.engine.merge_report().merges
    host.ask(["values"], [20])
    assert host.engine.merge_report().merges == merges


def test_a_large_finite_adapter_does_not_round_others_answers_away(tmp_path: Path) -> None:
    """In the sum with what is a million times as large, the base's weights are lost; taking it out brings none back."""
    model = save_model("llama2-mha", tmp_path / "model")
    large = adapter_at("large", save_scaled_adapter(model, tmp_path / "large", ["q_proj", "up_proj"], 1, 3e3))
    answers = {}
    for mode in ("unmerged", "merged"):
        source = LoadedAdapters()
        engine = Engine(EngineConfig(model=tmp_path / "model", threads=1, pool_mb=3, mode=mode), source)
        source.add(pack_for(engine, large))
        for index, digest in enumerate([large.digest, large.digest, ""]):
            engine.add_request(GenerationRequest(f"{index}", list(range(30)), GREEDY, digest))
        answers[mode] = []
        while engine.has_work():
            answers[mode] += [d.token_ids[0] for d in engine.step().deltas if d.request_id == "2"]
    assert answers["merged"] == answers["unmerged"]


def test_anything_at_once_in_a_pool_that_is_too_small(folder: Path) -> None:
    """Overflows among pre-emptions, aborts, shared prefixes and evictions: healthy answers are those they get alone."""
    rnd = random.Random(7)
    shared = [rnd.randrange(VOCAB) for _ in range(24)]
    settings: dict[str, Any] = {"dtype": "float32", "ahead": True, "step_tokens": 256, "page_tokens": 4}
    quiet, host = Host(folder, **settings), Host(folder, **settings, pool_mb=1)
    sampling = replace(GREEDY, max_tokens=40)
    questions = []
    for _ in range(50):
        prompt = shared[: rnd.choice((0, 11, 24))] + [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 60))]
        questions.append((rnd.choice(["", "", *HEALTHY, *HEALTHY, *host.overflowing]), prompt))
    wanted = [quiet.run([quiet.request(adapter, prompt, sampling)])[0][0] for adapter, prompt in questions]
    requests = [host.request(adapter, prompt, sampling) for adapter, prompt in questions]
    told: dict[str, list[int]] = {request.request_id: [] for request in requests}
    preempted, waiting = 0, list(requests)
    codes: dict[str, str] = {}
    while waiting or host.engine.has_work():
        for request in waiting:
            host.engine.add_request(request)
        waiting.clear()
        if rnd.random() < 0.05:
            host.engine.abort(rnd.choice(list(told)))
        output = host.engine.step()
        host.engine.core.check()
        for delta in output.deltas:
            told[delta.request_id] += delta.token_ids
        for end in output.finished:
            codes[end.request_id] = end.error.code if end.error else end.usage.outcome
            preempted += end.usage.preemptions
    assert preempted, "the pool was meant to be too small"
    for request, (adapter, _), answer in zip(requests, questions, wanted, strict=True):
        allowed = {"adapter_overflow"} if adapter in host.overflowing else {"finished"}
        assert codes[request.request_id] in allowed | {"aborted"}
        tokens = told[request.request_id]
        assert tokens == (answer if codes[request.request_id] == "finished" else answer[: len(tokens)])
