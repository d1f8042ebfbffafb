"""Token-exact greedy agreement with transformers + peft in float32, for every family and adapter variant."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.reference_families import (
    NEW_TOKENS,
    Family,
    ReferenceFamilies,
    build_engine,
    decode_beside,
    generate_with_logits,
    run_all,
    workload,
)
from lorikeet_testing.tiny_models import (
    FAMILIES,
    VOCAB,
)

from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.model.graph_shapes import GraphShape
from lora_engine.model.triton_ops import ALL_GROUPS, lora_shape
from lora_engine.request import Embedding, GenerationRequest, Pooling, PoolingKind, PromptLogprobs, SamplingParams
from lora_kernels.kernel_variants import KernelVariant

pytestmark = pytest.mark.usefixtures("few_programs")
NEW_PARTS = [name for name, (kind, _) in FAMILIES.items() if kind not in ("llama", "mistral", "qwen2", "qwen3")]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))


@pytest.mark.parametrize("name", FAMILIES)
def test_mixed_batches_agree_token_for_token(families: Callable[[str], Family], name: str) -> None:
    family = families(name)
    requests, adapters = workload(family, 12, seed=len(name))  # some adapters have two
    tokens, _ = run_all(build_engine(family, step_tokens=37), requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


@pytest.mark.parametrize("step_tokens", [1, 7, 64, 2048])
def test_chunk_size_changes_nothing(families: Callable[[str], Family], step_tokens: int) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 16, seed=step_tokens)
    tokens, _ = run_all(build_engine(family, step_tokens=step_tokens), requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_forced_preemption_and_adapter_eviction_change_nothing(families: Callable[[str], Family]) -> None:
    family = families("llama3-scaled-rope-tied")
    requests, adapters = workload(family, 27, seed=5)
    tokens, preemptions = run_all(build_engine(family, step_tokens=256, pool_mb=1, page_tokens=2), requests)
    assert preemptions > 0, "the pool was meant to be too small"
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_a_prompt_is_shared_while_its_first_request_still_runs(families: Callable[[str], Family]) -> None:
    family = families("llama2-mha")
    prompt = [random.Random(2).randrange(VOCAB) for _ in range(40)]
    first, second = (GenerationRequest(name, prompt, SamplingParams(max_tokens=NEW_TOKENS)) for name in ("a", "b"))
    engine = build_engine(family)
    engine.add_request(first)
    tokens = [delta.token_ids[0] for delta in engine.step().deltas]
    engine.add_request(second)
    others, cached = [], {}
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            (tokens if delta.request_id == "a" else others).extend(delta.token_ids)
        cached |= {end.request_id: end.usage.cached_prompt_tokens for end in output.finished}
        engine.core.check()
    assert tokens == others == family.greedy(prompt, "")
    assert cached == {"a": 0, "b": 32}


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
    taken = engine.core.allocator.allocate(total)
    engine.core.allocator.release(taken[::2])
    tokens = decode_beside(engine, requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])
    slots = list(engine.core.device_tier.slots())
    assert any(b - a != 1 for slot in slots for a, b in zip(slot.pages, slot.pages[1:], strict=False))


def test_the_triton_backend_gives_the_same_tokens(families: Callable[[str], Family]) -> None:
    """Through Triton's interpreter where there is no GPU: the kernels' arithmetic, not their speed."""
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 10, seed=4)
    requests = [dataclasses.replace(requests[n], sampling=SamplingParams(max_tokens=2)) for n in (3, 7, 9)]
    assert "dora-r6" in {adapters[request.request_id] for request in requests}
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32", cuda_graphs=False)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


@pytest.mark.parametrize(
    ("name", "adapters"),
    [(name, ["v-only-r1", "mlp-r5"] if "phi3" in name or "glm-" in name else [""]) for name in NEW_PARTS],
)
def test_kernels_of_what_families_differ_in(
    families: Callable[[str], Family], name: str, adapters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, rotations, soft caps, scales, activations and fused modules: a prompt and a decode step of each family."""
    family = families(name)
    engine = build_engine(family, backend="triton", dtype="float32", cuda_graphs=False, pool_mb=2)
    prompt = [random.Random(name).randrange(VOCAB) for _ in range(9)]
    requests = [
        GenerationRequest(a, prompt, SamplingParams(max_tokens=2), family.adapters[a].digest if a else "")
        for a in adapters
    ]
    for adapter, (tokens, got) in generate_with_logits(engine, requests, monkeypatch, new_tokens=2).items():
        want = family.logits(prompt + tokens[:-1], adapter)[-len(tokens) :]
        assert float(((torch.stack(got) - want).norm(dim=-1) / want.norm(dim=-1)).max()) < 1e-5, adapter


def test_long_prompts_of_a_model_with_two_sets_of_rotary_factors(families: Callable[[str], Family]) -> None:
    """Beyond the length that it was first trained for, transformers takes the long factors for the whole prompt."""
    family = families("phi4-mini-longrope-partial")
    rnd = random.Random(1)
    requests = [
        GenerationRequest(str(n), [rnd.randrange(VOCAB) for _ in range(n)], SamplingParams(max_tokens=NEW_TOKENS))
        for n in (129, 200)
    ]
    tokens, _ = run_all(build_engine(family, max_context=512), requests)
    for request in requests:
        assert tokens[request.request_id] == family.greedy(request.prompt_token_ids, "")


def score_all(engine: Engine, requests: list[GenerationRequest]) -> tuple[dict[str, PromptLogprobs], dict[str, Any]]:
    """The log-probabilities of each request's prompt, joined, and the usage. Checks the pool after every step."""
    for request in requests:
        engine.add_request(request)
    found = {request.request_id: PromptLogprobs([], [], [], [], []) for request in requests}
    usages = {}
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            if delta.of_prompt is not None:
                for field in dataclasses.fields(PromptLogprobs):
                    getattr(found[delta.request_id], field.name).extend(getattr(delta.of_prompt, field.name))
        for end in output.finished:
            assert end.error is None
            usages[end.request_id] = end.usage
    return found, usages


def scored(requests: list[GenerationRequest], top: int = 3, every: int = 1) -> list[GenerationRequest]:
    """Every so many of them ask for their prompt's log-probabilities, and every second of those for nothing else."""
    return [
        dataclasses.replace(request, prompt_logprobs=top, prompt_only=bool(index % (2 * every)))
        if index % every == 0
        else request
        for index, request in enumerate(requests)
    ]


def check_scores(family: Family, request: GenerationRequest, adapter: str, found: PromptLogprobs) -> None:
    prompt = request.prompt_token_ids
    want = family.logits(prompt, adapter).log_softmax(dim=-1)
    assert found.token_ids == prompt
    assert (found.ranks[0], found.top_ids[0]) == (0, [])
    for position in range(1, len(prompt)):
        row, token = want[position - 1], prompt[position]
        assert found.logprobs[position] == pytest.approx(float(row[token]), abs=1e-4)
        surely, at_most = int((row > row[token] + 1e-5).sum()), int((row > row[token] - 1e-5).sum())
        assert 1 + surely <= found.ranks[position] <= max(1, at_most)  # equal but for ties within float32's rounding
        best = row.topk(request.prompt_logprobs or 0)
        assert found.top_logprobs[position] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert [float(row[i]) for i in found.top_ids[position]] == pytest.approx(best.values.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "step_tokens"),
    [
        ("llama2-mha", 1),
        ("llama2-mha", 37),
        ("gemma2-soft-caps", 64),
        ("granite-scales", 2048),
        ("qwen3.5-gated-delta", 37),
    ],
)
def test_log_probabilities_of_prompts(families: Callable[[str], Family], name: str, step_tokens: int) -> None:
    """In mixed batches with requests that ask for none, by adapters and the base, in chunks of any size."""
    family = families(name)
    requests, adapters = workload(family, 18, seed=step_tokens)
    requests = scored(requests, every=2)
    found, usages = score_all(build_engine(family, step_tokens=step_tokens), requests)
    for request in requests[::2]:
        check_scores(family, request, adapters[request.request_id], found[request.request_id])
        assert usages[request.request_id].completion_tokens == (0 if request.prompt_only else NEW_TOKENS)
    assert not any(found[request.request_id].token_ids for request in requests[1::2])


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_log_probabilities_of_prompts_survive_preemption(families: Callable[[str], Family], prefix_cache: bool) -> None:
    """Each token's comes once, whatever is computed again."""
    family = families("llama3-scaled-rope-tied")
    requests, adapters = workload(family, 9, seed=5)
    requests = [
        dataclasses.replace(request, prompt_token_ids=request.prompt_token_ids * 2) for request in scored(requests)
    ]
    engine = build_engine(family, step_tokens=40, prefix_cache=prefix_cache)
    step, preempted = engine.step, 0

    def step_and_preempt() -> Any:
        nonlocal preempted
        output = step()
        halfway = [s for s in engine.core.scheduler.running if 0 < s.read_from < s.read_until]
        if halfway and preempted < 10:
            engine.core.scheduler._preempt(halfway[0])
            preempted += 1
        return output

    engine.step = step_and_preempt  # type: ignore[method-assign]
    found, usages = score_all(engine, requests)
    assert preempted == sum(usage.preemptions for usage in usages.values()) > 2
    for request in requests:
        check_scores(family, request, adapters[request.request_id], found[request.request_id])


def test_a_cached_prefix_is_not_used_for_what_is_scored(families: Callable[[str], Family]) -> None:
    family = families("llama2-mha")
    engine = build_engine(family)
    prompt = [random.Random(2).randrange(VOCAB) for _ in range(50)]
    plain = GenerationRequest("plain", prompt, SamplingParams(max_tokens=2))
    asking = dataclasses.replace(plain, request_id="asking", prompt_logprobs=1, prompt_only=True)
    again = dataclasses.replace(plain, request_id="again")
    score_all(engine, [plain])
    found, usages = score_all(engine, [asking])
    check_scores(family, asking, "", found["asking"])
    assert usages["asking"].cached_prompt_tokens == 0
    assert score_all(engine, [again])[1]["again"].cached_prompt_tokens == 48


def test_logits_of_prompts_are_made_in_slices(
    families: Callable[[str], Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = families("llama2-mha")
    engine, rows = build_engine(family), []
    monkeypatch.setattr("lora_engine.execution.prompt_reads._MAX_LOGITS", 7 * VOCAB)
    original = engine.loaded.model.logits

    def spy(hidden: torch.Tensor, *more: Any) -> torch.Tensor:
        rows.append(len(hidden))
        return original(hidden, *more)

    monkeypatch.setattr(engine.loaded.model, "logits", spy)
    prompt = [random.Random(3).randrange(VOCAB) for _ in range(50)]
    request = GenerationRequest("long", prompt, prompt_only=True, prompt_logprobs=2)
    found, _ = score_all(engine, [request])
    check_scores(family, request, "", found["long"])
    assert rows == [7] * 7 + [1, 1]


def test_a_prompt_as_long_as_the_context_can_be_scored(families: Callable[[str], Family]) -> None:
    family = families("llama2-mha")
    engine = build_engine(family, max_context=64)
    prompt = [random.Random(4).randrange(VOCAB) for _ in range(65)]
    request = GenerationRequest("whole", prompt[:64], prompt_only=True, prompt_logprobs=0)
    found, _ = score_all(engine, [request])
    check_scores(family, request, "", found["whole"])
    with pytest.raises(RequestError, match="64 tokens, but the request needs 65"):
        engine.add_request(dataclasses.replace(request, prompt_token_ids=prompt))


@pytest.mark.parametrize(("top", "most", "problem"), [(21, 0, "between 0 and 20"), (3, 39, "40 log-probabilities")])
def test_too_many_log_probabilities_of_a_prompt(
    families: Callable[[str], Family], top: int, most: int, problem: str
) -> None:
    engine = build_engine(families("llama2-mha"))
    request = GenerationRequest("a", [1] * 10, prompt_only=True, prompt_logprobs=top, most_prompt_logprobs=most)
    with pytest.raises(RequestError, match=problem):
        engine.add_request(request)


def test_log_probabilities_of_prompts_by_the_triton_backend(families: Callable[[str], Family]) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 9, seed=4)
    requests = [dataclasses.replace(r, sampling=SamplingParams(max_tokens=1)) for r in scored(requests[1:6:2])]
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32", cuda_graphs=False)
    found, _ = score_all(engine, requests)
    for request in requests:
        check_scores(family, request, adapters[request.request_id], found[request.request_id])


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
def test_gpu_log_probabilities_of_prompts(families: Callable[[str], Family], graphs: bool) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 18, seed=6)
    requests = scored(requests, every=2)
    engine = build_engine(family, device="cuda", dtype="float32", step_tokens=64, max_running=24, cuda_graphs=graphs)
    found, _ = score_all(engine, requests)
    for request in requests[::2]:
        check_scores(family, request, adapters[request.request_id], found[request.request_id])


def embed_all(
    engine: Engine, requests: list[GenerationRequest]
) -> tuple[dict[str, list[torch.Tensor]], dict[str, Any]]:
    """The vectors of each request's prompts, and its usage. Checks the pool after every step."""
    for request in requests:
        engine.add_request(request)
    found: dict[str, dict[int, torch.Tensor]] = {request.request_id: {} for request in requests}
    usages = {}
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            if isinstance(delta.of_prompt, Embedding):
                assert delta.choice not in found[delta.request_id]
                found[delta.request_id][delta.choice] = torch.frombuffer(
                    bytearray(delta.of_prompt.values), dtype=torch.float32
                )
        for end in output.finished:
            assert end.error is None
            usages[end.request_id] = end.usage
    return {name: [by_choice[i] for i in range(len(by_choice))] for name, by_choice in found.items()}, usages


def wanted_vector(family: Family, prompt: list[int], adapter: str, pooling: Pooling) -> torch.Tensor:
    def forward(model: Any) -> torch.Tensor:
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([prompt], device=model.device), output_hidden_states=True)
        return out.hidden_states[-1][0].float().cpu()  # after the last norm

    states: torch.Tensor = family.run(forward, adapter)
    vector = states[-1] if pooling.kind is PoolingKind.LAST else states.mean(dim=0)
    return torch.nn.functional.normalize(vector[: pooling.dimensions or None], dim=0)


def embedding_workload(family: Family, seed: int) -> tuple[list[GenerationRequest], dict[str, str]]:
    """Of several prompts each, by both kinds of pooling, among requests that generate and that score."""
    requests, adapters = workload(family, 18, seed)
    kinds = [Pooling(PoolingKind.LAST), Pooling(PoolingKind.MEAN), Pooling(PoolingKind.MEAN, 10), None]
    made = []
    for index, request in enumerate(requests):
        pooling = kinds[index % len(kinds)]
        more = tuple(other.prompt_token_ids for other in requests[:index:4])
        extra: dict[str, Any] = (
            {"prompt_logprobs": 1}
            if pooling is None
            else {"pooling": pooling, "more_prompts": more, "prompt_only": True}
        )
        made.append(dataclasses.replace(request, **extra))
    return made, adapters


def check_vectors(
    family: Family, requests: list[GenerationRequest], adapters: dict[str, str], found: dict[str, list[torch.Tensor]]
) -> None:
    for request in requests:
        prompts = [request.prompt_token_ids, *request.more_prompts]
        if (pooling := request.pooling) is None:
            continue
        assert len(found[request.request_id]) == len(prompts)
        for prompt, vector in zip(prompts, found[request.request_id], strict=True):
            want = wanted_vector(family, prompt, adapters[request.request_id], pooling)
            torch.testing.assert_close(vector, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "step_tokens"),
    [
        ("llama2-mha", 1),
        ("llama2-mha", 37),
        ("gemma2-soft-caps", 64),
        ("qwen3-qk-norm", 2048),
        ("qwen3.5-gated-delta", 37),
    ],
)
def test_embeddings(families: Callable[[str], Family], name: str, step_tokens: int) -> None:
    """By adapters and the base, in mixed batches and chunks of any size, with shared prefixes where they help."""
    family = families(name)
    requests, adapters = embedding_workload(family, seed=step_tokens)
    found, usages = embed_all(build_engine(family, step_tokens=step_tokens), requests)
    check_vectors(family, requests, adapters, found)
    for request in requests:
        if request.pooling is not None:
            assert usages[request.request_id].completion_tokens == 0
            prompts = [request.prompt_token_ids, *request.more_prompts]
            assert usages[request.request_id].prompt_tokens == sum(map(len, prompts))


def test_embeddings_survive_preemption(families: Callable[[str], Family]) -> None:
    family = families("llama3-scaled-rope-tied")
    requests, adapters = embedding_workload(family, seed=8)
    engine = build_engine(family, step_tokens=40)
    step, preempted = engine.step, 0

    def step_and_preempt() -> Any:
        nonlocal preempted
        output = step()
        halfway = [
            s for s in engine.core.scheduler.running if 0 < s.num_computed < s.read_until and s.pooled is not None
        ]
        if halfway and preempted < 10:
            engine.core.scheduler._preempt(halfway[0])
            preempted += 1
        return output

    engine.step = step_and_preempt  # type: ignore[method-assign]
    found, _ = embed_all(engine, requests)
    assert preempted > 2
    check_vectors(family, requests, adapters, found)


def test_a_cached_prefix_serves_the_last_token_only(families: Callable[[str], Family]) -> None:
    family = families("llama2-mha")
    engine = build_engine(family)
    prompt = [random.Random(2).randrange(VOCAB) for _ in range(50)]
    embed_all(engine, [GenerationRequest("plain", prompt, SamplingParams(max_tokens=2))])
    for kind, cached in ((PoolingKind.LAST, 48), (PoolingKind.MEAN, 0)):
        request = GenerationRequest(kind.value, prompt, prompt_only=True, pooling=Pooling(kind))
        found, usages = embed_all(engine, [request])
        check_vectors(family, [request], {kind.value: ""}, found)
        assert usages[kind.value].cached_prompt_tokens == cached


@pytest.mark.parametrize(
    ("dimensions", "inputs", "param"), [(65, 1, "dimensions"), (0, (1 << 17) + 1, "input"), (0, 10_001, "")]
)
def test_embeddings_are_bounded(families: Callable[[str], Family], dimensions: int, inputs: int, param: str) -> None:
    engine = build_engine(families("llama2-mha"))
    pooling = Pooling(PoolingKind.MEAN, dimensions)
    request = GenerationRequest("a", [1], prompt_only=True, pooling=pooling, more_prompts=([1],) * (inputs - 1))
    with pytest.raises(RequestError) as caught:
        engine.add_request(request)
    assert caught.value.param == param
    assert not engine.has_work()


def test_embeddings_by_the_triton_backend(families: Callable[[str], Family]) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = embedding_workload(family, seed=4)
    requests = [dataclasses.replace(request, more_prompts=()) for request in requests[:3]]
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32", cuda_graphs=False)
    found, _ = embed_all(engine, requests)
    check_vectors(family, requests, adapters, found)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
def test_gpu_embeddings(families: Callable[[str], Family], graphs: bool) -> None:
    family = families("qwen3-qk-norm")
    requests, adapters = embedding_workload(family, seed=6)
    engine = build_engine(family, device="cuda", dtype="float32", step_tokens=64, max_running=24, cuda_graphs=graphs)
    found, _ = embed_all(engine, requests)
    check_vectors(family, requests, adapters, found)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_of_a_least_length(families: Callable[[str], Family], temperature: float) -> None:
    """What would end them is put off, in a batch with answers that may end at once."""
    family = families("llama2-mha")
    prompt = [random.Random(5).randrange(VOCAB) for _ in range(20)]
    ends = tuple(range(0, VOCAB, 2)) if temperature else (family.greedy(prompt, "")[1],)
    params = SamplingParams(max_tokens=30, temperature=temperature, stop_token_ids=ends, seed=3)
    requests = [
        GenerationRequest(str(least), prompt, dataclasses.replace(params, min_tokens=least)) for least in (0, 5, 12)
    ]
    tokens, _ = run_all(build_engine(family), requests)
    for request in requests:
        found, least = tokens[request.request_id], request.sampling.min_tokens
        assert not {*found[:least]} & {*ends}
        assert len(found) == 30 or (len(found) > least and found[-1] in ends)
    assert len(tokens["0"]) < 5


def test_the_inputs_of_decode_graphs(families: Callable[[str], Family], monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding rows, adapters and the last step's tokens, as ``GraphRunner`` writes them: in a graph for more rows, more
    groups and higher ranks than the batches have."""
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(
        "lora_engine.engine.build_runner",
        lambda config, loaded, mirror: GraphRunner(loaded.model, loaded.pool, config.max_running, loaded.max_context),
    )
    family = families("qwen3-qk-norm")
    requests, adapters = workload(family, 9, seed=5)
    requests = [dataclasses.replace(r, sampling=SamplingParams(max_tokens=3)) for r in requests[1:5:2]]
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32")
    assert isinstance(engine.runner, GraphRunner)
    graphs = engine.runner.graphs
    graphs.steps_between = 1 << 30  # none but these
    graphs.choose(GraphShape(4, lora_shape(KernelVariant.GEMV_1, 64), 4, ALL_GROUPS), [])
    graphs.choose(GraphShape(4), [])
    tokens, _ = run_all(engine, requests)
    assert len(graphs) == 2
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("graphs", [True, False])
def test_gpu_logits(
    families: Callable[[str], Family], name: str, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step's logits, prefill and decode, against the reference over the same tokens.

    In float32 they agree to rounding; in bfloat16 they are at most twice as far away as transformers' own.
    """
    family = families(name)
    requests, adapters = workload(family, 18, seed=2)
    rounded = copy.deepcopy(family)
    rounded.reference = rounded.reference.to(device="cuda", dtype=torch.bfloat16)
    worst: dict[str, float] = {}
    for dtype in ("float32", "bfloat16"):
        engine = build_engine(family, device="cuda", dtype=dtype, step_tokens=64, max_running=24, cuda_graphs=graphs)
        steps = generate_with_logits(engine, requests, monkeypatch)
        engine.core.check()
        for request in requests:
            tokens, got = steps[request.request_id]
            whole = request.prompt_token_ids + tokens[:-1]
            want = family.logits(whole, adapters[request.request_id])[-len(tokens) :]
            theirs = rounded.logits(whole, adapters[request.request_id])[-len(tokens) :]
            for key, ours in ((dtype, torch.stack(got)), ("transformers", theirs)):
                worst[key] = max(worst.get(key, 0.0), float(((ours - want).norm(dim=-1) / want.norm(dim=-1)).max()))
    print(f"{name}, graphs {graphs}: " + ", ".join(f"{key} {value:.2e}" for key, value in worst.items()))
    assert worst["float32"] < 1e-5
    assert worst["bfloat16"] <= 2 * worst["transformers"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
def test_gpu_layers(families: Callable[[str], Family], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual stream before every layer, for every adapter, against the reference's hidden states."""
    family = families(name)
    rounded = copy.deepcopy(family)
    rounded.reference = rounded.reference.to(device="cuda", dtype=torch.bfloat16)
    prompt = [random.Random(name).randrange(VOCAB) for _ in range(70)]
    worst: dict[str, float] = {}
    for dtype in ("float32", "bfloat16"):
        engine = build_engine(family, device="cuda", dtype=dtype, cuda_graphs=False, prefix_cache=False)
        for adapter in ["", *family.adapters]:
            wanted = family.hidden_states(prompt, adapter)
            theirs = rounded.hidden_states(prompt, adapter)
            for layer, ours in enumerate(residuals(engine, family, prompt, adapter, monkeypatch)):
                scale = wanted[layer].abs().max()
                error = float((ours - wanted[layer]).abs().max() / scale)
                allowed = 1e-5 if dtype == "float32" else 2 * float((theirs[layer] - wanted[layer]).abs().max() / scale)
                worst[dtype] = max(worst.get(dtype, 0.0), error)
                assert error <= allowed + 1e-6, (dtype, adapter, layer)
    print(f"\n{name}: largest relative error of a layer's input " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))


def residuals(
    engine: Engine, family: Family, prompt: list[int], adapter: str, patch: pytest.MonkeyPatch
) -> list[torch.Tensor]:
    """What each layer of the prompt's one prefill step was given."""
    ops, seen = engine.loaded.model.ops, []
    original = ops.add_norm

    def spy(residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor | None) -> torch.Tensor:
        out = original(residual, delta, weight)
        if delta is not None or not seen:  # else it is a norm of what is added later
            seen.append(residual.to("cpu", torch.float32, copy=True))
        return out

    patch.setattr(ops, "add_norm", spy)
    digest = family.adapters[adapter].digest if adapter else ""
    engine.add_request(GenerationRequest("layers", prompt, SamplingParams(max_tokens=1), digest))
    while engine.has_work():
        engine.step()
    patch.setattr(ops, "add_norm", original)
    parallel = engine.model_config.family.parallel_mlp
    # Each layer norms its input and, unless its MLP reads the same, what attention adds; the last norm is the model's.
    return seen[: -1 : 1 if parallel else 2]
