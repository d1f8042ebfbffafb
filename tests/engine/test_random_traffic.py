"""Random traffic over layers of published widths, against plain torch over whole sequences.

Requests come one by one, with prompts of up to some thousand tokens in chunks, shared prefixes, sampled and greedy
answers, cancellations, drafts of which some are right, and in a pool that is too small for all. Its free pages are full
of NaN.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.shape_runs import Outputs, ShapeRun, rounding_error, worst_error

import lora_engine.model.graph_shapes as graph_shapes
import lora_engine.scheduling.scheduler as scheduler
from lora_engine.memory import PageKind
from lora_engine.model.config import ModelConfig
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.sampling import sample
from scripts import card_table

RANKS = (1, 8, 64, 128, 256)
# Layers of each kind, of models that differ most in their kernels. A token takes each of their experts: otherwise
# rounding would change some choices.
DELTA = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": {},
    "Gemma-3-27B": {"layer_types": ["sliding_attention", "full_attention"], "vocab_size": 32_003},
    "Qwen3.5-9B": DELTA,
    "Qwen3-30B-A3B": {"num_experts": 8},
    "GPT-OSS-20B": {
        "layer_types": ["sliding_attention", "full_attention"], "num_local_experts": 4, "num_experts_per_tok": 4
    },
}  # fmt: skip
TINY = {
    "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "vocab_size": 300,
}  # fmt: skip


@dataclass
class Served:
    """What requests got: the tokens and their logits of each, and figures of their usage together."""

    outputs: Outputs
    preemptions: int = 0
    cached: int = 0
    accepted: int = 0


def configuration(raw: dict[str, Any], **changes: Any) -> ModelConfig:
    changed = {**raw, "tie_word_embeddings": False, "max_position_embeddings": 4096, **changes}
    return ModelConfig.from_dict({**changed, "num_hidden_layers": len(changes.get("layer_types", "ab"))})


def with_long_memory(run: ShapeRun) -> ShapeRun:
    """Let half of the heads of gated delta layers forget little: what is wrong with a state shows for long."""
    for layer in run.weights.layers:
        if layer.delta is not None:
            layer.delta.a_log[::2] = -6.0
    return run


def leave_free(run: ShapeRun, longest: int) -> None:
    """Reserve all pages of the pool but those of all adapters, and of a sequence of so many tokens."""
    allocator, geometry = run.engine.core.allocator, run.engine.pool.geometry
    needed = geometry.pages_for_sequence(longest) + sum(packed.num_pages for packed in run.packed.values())
    assert needed < allocator.free
    reserved = allocator.allocate(allocator.free - needed, PageKind.RESERVED)
    allocator._refs[reserved] = 0


def requests_of(run: ShapeRun, rnd: random.Random, lengths: Sequence[int], new: int) -> list[GenerationRequest]:
    """Return a request for each length; every other one begins with the same tokens, as many as the fifth longest."""
    vocab, requests = run.config.vocab_size, []
    shared, common = [rnd.randrange(vocab) for _ in range(sorted(lengths)[-5])], rnd.choice([*run.packed])
    for index, length in enumerate(lengths):
        prompt = [*(shared if index % 2 else ()), *(rnd.randrange(vocab) for _ in range(length))]
        # With log-probabilities, every step goes through ``sample``.
        params = SamplingParams(
            max_tokens=rnd.randint(1, new), temperature=rnd.choice((0.0, 0.8)), seed=index, logprobs=True,
            ignore_eos=True, frequency_penalty=rnd.choice((0.0, 0.0, 0.5)),
        )  # fmt: skip
        digest = common if index % 2 else rnd.choice(["", *run.packed])
        requests.append(GenerationRequest(str(index), prompt, params, digest))
    return requests


def serve(run: ShapeRun, requests: Sequence[GenerationRequest], rnd: random.Random) -> Served:
    engine, waiting, tokens = run.engine, [*requests], {request.request_id: list[int]() for request in requests}
    logits: dict[tuple[str, int], torch.Tensor] = {}
    names = {id(request.sampling): request.request_id for request in requests}
    served = Served({})

    def watch(values: torch.Tensor, rows: Any) -> Any:
        for value, row in zip(values.clone(), rows, strict=True):  # a row behind a wrong draft is replaced later
            logits[names[id(row.sampling)], row.position] = value
        return sample(values, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lora_engine.execution.runner.sample", watch)
        while waiting or engine.has_work():
            for _ in range(min(rnd.randint(0, 3), len(waiting))):
                engine.add_request(waiting.pop(0))
            if engine.core.requests and rnd.random() < 0.02:
                engine.abort(rnd.choice([*engine.core.requests]))
            if (running := [*engine.core.scheduler.running]) and rnd.random() < 0.05:
                engine.core.scheduler._preempt(rnd.choice(running))  # where pages lack, it happens too seldom
            output = engine.step()
            for delta in output.deltas:
                tokens[delta.request_id] += delta.token_ids
            for end in output.finished:
                assert end.error is None, end.error
                served.preemptions += end.usage.preemptions
                served.cached += end.usage.cached_prompt_tokens
                served.accepted += end.usage.accepted_tokens
    engine.core.check()
    assert (engine.pool_stats().kv, engine.pool_stats().state) == (0, 0)
    served.outputs = {
        name: (some, torch.stack([logits[name, position] for position in range(len(some))]))
        for name, some in tokens.items()
        if some
    }
    return served


def traffic(run: ShapeRun, lengths: Sequence[int], new: int, seed: int = 0) -> tuple[float, float]:
    """Serve traffic without drafts and with; return the largest errors of its logits, and of plain torch's."""
    rnd, engine = random.Random(seed), run.engine
    requests = requests_of(run, rnd, lengths, new)
    engine.core.scheduler.speculation = None
    plain = serve(run, requests, rnd)
    known = following(lambda sequence: plain.outputs[sequence.request.request_id][0], rnd)
    engine.core.scheduler.speculation = AlwaysDrafts(RandomDrafter(rnd, known, 0.8), 4, 100)
    answered = [request for request in requests if request.request_id in plain.outputs]
    drafted = serve(run, answered, rnd)
    assert plain.preemptions and plain.cached + drafted.cached and drafted.accepted, "the traffic tries too little"
    errors = [0.0, 0.0]
    for served in (plain, drafted):
        for first in range(0, len(answered), 8):  # the reference's memory grows with the square of a prompt
            some = [request for request in answered[first : first + 8] if request.request_id in served.outputs]
            used = {request.request_id: request.adapter_digest for request in some}
            if some:
                errors[0] = max(errors[0], worst_error(run, some, used, served.outputs, torch.float32))
                errors[1] = max(errors[1], rounding_error(run, some, used, served.outputs))
    return errors[0], errors[1]


def test_random_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as on GPUs, with the torch backend and tiny layers."""
    monkeypatch.setattr(scheduler, "_LEAST_SNAPSHOT_TOKENS", 16)
    config = configuration(TINY, **DELTA)
    run = with_long_memory(
        ShapeRun(
            config, "cpu", torch.float32, (1, 5), backend="torch", pool_mb=1, max_running=6, step_tokens=37,
            prefix_cache=True, speculation="ngram", max_context=1024, page_tokens=4,
        )
    )  # fmt: skip
    leave_free(run, 210)
    poison(run.engine)
    error, _ = traffic(run, [1, 3, 40, 70, 60, 33, 30, 2, 90, 35, 17, 60, 1, 1], 16)
    assert error < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_random_traffic_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, no further from float32 than twice what plain torch is."""
    monkeypatch.setattr(graph_shapes, "graph_memory", lambda *_: 1 << 50)
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (128, 512, 1024))  # each is captured, with its kernels compiled
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {0: (64,)})
    run = with_long_memory(
        ShapeRun(
            configuration(card_table.MODELS[name], **MODELS[name]), "cuda", torch.bfloat16, RANKS, pool_mb=1500,
            max_running=24, step_tokens=1000, prefix_cache=True, speculation="ngram", max_context=4096,
        )
    )  # fmt: skip
    graphs = run.engine.runner.graphs  # type: ignore[attr-defined]
    while any(shape.decodes is not None for shape in graphs._others) and graphs.capture_next():
        """Those of steps with prompts come first; others are captured when they are used."""
    leave_free(run, 4000)
    poison(run.engine)
    error, rounding = traffic(run, [1, 2, 700, 16, 33, 1500, 64, 65, 129, 3, 2500, 200, 5, 300, 1, 1000] * 2, 20)
    print(name, f"{error:.3g}, plain torch {rounding:.3g}")
    assert error <= 2 * rounding
