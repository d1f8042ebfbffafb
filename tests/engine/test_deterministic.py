"""``--deterministic``: a request's tokens and logits are bitwise the same whoever is beside it, and whatever happens.

In Triton's interpreter and in plain torch every request is run alone and then in random schedules: arriving late, in
chunks of other sizes, from the prefix cache, pre-empted, resumed after another host's tokens. On a GPU the same with
captured graphs, at the sizes of real layers, and for every matrix of them each number of tokens that a step may have.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lorikeet_testing.model_shapes import SHAPES
from lorikeet_testing.ordered_dots import add_in_order
from lorikeet_testing.shape_runs import ShapeRun, captured_logits, requests_for, worst_error

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.memory import Activation
from lora_engine.model.batch import LoraSpan
from lora_engine.model.config import ModelConfig
from lora_engine.model.graph_shapes import graph_shape, graph_sizes, usual_graphs
from lora_engine.model.invariant_ops import LEAST_ROWS, InvariantOps, forbid_split_sums, padded_linear, rows_agree
from lora_engine.model.loading import load_model
from lora_engine.request import ChoiceSoFar, GenerationRequest, PinnedPrefix, PinState, SamplingParams
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_engine.scheduling.sequence import State
from lora_kernels import invariant_decode, invariant_linear
from lora_kernels.fp8 import tiling
from lora_kernels.invariant_linear import LinearConfig
from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.state_pages import CHUNK

DEMO = Path(__file__).parents[2] / "demo" / "model"
Answers = dict[str, tuple[list[int], torch.Tensor]]

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma2": {"sliding_window": 14, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0},
    "qwen2": {},  # a bias of q, k and v
    "qwen3": {"num_attention_heads": 3},  # queries and keys are normalised
    "qwen3_5_moe_text": {  # a layer with recurrent state, and experts in both
        "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1,
        "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
}  # fmt: skip
PAGE = 4


def tiny(family: str) -> ModelConfig:
    return ModelConfig.from_dict(
        {
            "model_type": family, "num_hidden_layers": 1, "hidden_size": 48, "intermediate_size": 64,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 100,
            "max_position_embeddings": 512, "tie_word_embeddings": True, **FAMILIES[family],
        }
    )  # fmt: skip


def requests_of(run: ShapeRun, lengths: Sequence[int], new: int, seed: int) -> list[GenerationRequest]:
    """Of the base and of each adapter, greedy and seeded; half of them begin with the same tokens."""
    rnd, digests = random.Random(seed), ["", *run.packed]
    common = [rnd.randrange(run.config.vocab_size) for _ in range(3 * max(lengths))]
    requests = []
    for index, length in enumerate(lengths):
        own = [rnd.randrange(run.config.vocab_size) for _ in range(length)]
        prompt = common[: length - 1] + own[:1] if index % 2 else own
        params = SamplingParams(
            max_tokens=new, ignore_eos=True, logprobs=True, temperature=index % 3 / 2, seed=index, top_p=0.9
        )
        requests.append(GenerationRequest(f"{index}", prompt, params, digests[index // 2 % len(digests)]))
    return requests


def run_steps(engine: Engine, requests: Sequence[GenerationRequest], rnd: random.Random | None = None) -> Answers:
    """Tokens and the logits that they were chosen from; with ``rnd`` requests come late, and are pre-empted."""
    waiting, found = list(requests), {r.request_id: ([], []) for r in requests}  # type: ignore[var-annotated]
    preemptions = 0
    with captured_logits() as seen:
        while waiting or engine.has_work():
            for request in waiting[: len(waiting) if rnd is None else rnd.randint(0, 2)]:
                engine.add_request(request)
                waiting.remove(request)
            if rnd is not None and preemptions < len(requests) and rnd.random() < 0.4:
                preempt(engine, rnd)
                preemptions += 1
            output = engine.step()
            for delta in output.deltas:
                if delta.of_prompt is not None:
                    continue
                tokens, logits = found[delta.request_id]
                tokens.extend(delta.token_ids)
                logits.append(seen.pop(0))
            for end in output.finished:
                assert end.error is None, end.error
            engine.core.check()
    return {name: (tokens, torch.stack(logits)) for name, (tokens, logits) in found.items()}


def preempt(engine: Engine, rnd: random.Random) -> None:
    """As when pages run out."""
    running = [s for s in engine.core.scheduler.running if s.state is State.RUNNING]
    if running:
        engine.core.scheduler._preempt(rnd.choice(running))


def assert_same(found: Answers, expected: Answers, skip: int = 0) -> None:
    for name, (tokens, logits) in found.items():
        want_tokens, want_logits = expected[name.partition(" ")[0]]
        assert tokens == want_tokens[skip:], name
        assert torch.equal(logits, want_logits[skip:]), (name, (logits - want_logits[skip:]).abs().max())


def resumed(requests: Sequence[GenerationRequest], expected: Answers, at: int) -> list[GenerationRequest]:
    return [replace(r, so_far=(ChoiceSoFar(0, expected[r.request_id][0][:at], False),)) for r in requests]


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of the kernels at small sizes: tiles, splits of keys, several programs to them."""
    if torch.cuda.is_available():
        return
    add_in_order(monkeypatch)
    small = (LinearConfig(16, 64, 16, 4, 4), LinearConfig(32, 128, 32, 8, 4))
    monkeypatch.setattr(invariant_linear, "CONFIGS", small)
    monkeypatch.setattr(invariant_decode, "LEAST_SPLIT", 16)
    monkeypatch.setattr("lora_kernels.attention.FEW", 8)
    monkeypatch.setattr("lora_kernels.attention.LONG_CONTEXT", (16, 4, 2))
    monkeypatch.setattr("lora_kernels.invariant_decode.FEW_DECODES", (16, 4, 3))


def interpreted(family: str, **settings: Any) -> ShapeRun:
    return ShapeRun(
        tiny(family), "cpu", torch.float32, (5,),
        **{"pool_mb": 4, "page_tokens": PAGE, "cuda_graphs": False, "max_running": 4, "deterministic": True} | settings,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("family", "quantization"),
    [("gemma2", "auto"), *(pytest.param(*case, marks=pytest.mark.long) for case in
                           (("llama", "auto"), ("qwen3", "auto"), ("llama", "fp8")))],
)  # fmt: skip
@pytest.mark.usefixtures("in_order")
def test_kernels_in_random_schedules(family: str, quantization: str, tensor_seed: int) -> None:
    alone = interpreted(family, max_running=1, step_tokens=128, quantization=quantization)
    requests = requests_of(alone, (1, 22, 20), new=3, seed=tensor_seed)
    expected: Answers = {}
    for request in requests:
        expected |= run_steps(alone.engine, [request])
    together = interpreted(family, step_tokens=13, prefix_cache=True, quantization=quantization)
    assert_same(run_steps(together.engine, requests, random.Random(tensor_seed)), expected)
    assert_same(run_steps(together.engine, resumed(requests[-1:], expected, 2)), expected, skip=2)


@pytest.mark.parametrize("new", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.usefixtures("in_order")
def test_states_and_experts_in_random_schedules(new: int, monkeypatch: pytest.MonkeyPatch, tensor_seed: int) -> None:
    """Prompts are cut where chunks of the gated delta rule end, and answers continue in several rows."""
    monkeypatch.setattr("lora_engine.scheduling.scheduler._LEAST_SNAPSHOT_TOKENS", 1)
    family, computed = "qwen3_5_moe_text", list[tuple[int, int]]()
    alone = interpreted(family, max_running=1, step_tokens=256)
    requests = requests_of(alone, (2, 70, 3, 67), new=new, seed=tensor_seed)
    expected: Answers = {}
    for request in requests:
        expected |= run_steps(alone.engine, [request])
    together = interpreted(family, step_tokens=CHUNK + 4, prefix_cache=True)
    launch = together.engine.runner.launch

    def spy(chunks: Any, *others: Any, **more: Any) -> Any:
        ordered = list(chunks)
        computed.extend((c.sequence.num_computed + c.tokens, c.sequence.num_prompt) for c in ordered)
        return launch(ordered, *others, **more)

    monkeypatch.setattr(together.engine.runner, "launch", spy)
    assert_same(run_steps(together.engine, requests, random.Random(tensor_seed)), expected)
    assert_same(run_steps(together.engine, resumed(requests[-1:], expected, new - 1)), expected, skip=new - 1)
    assert all(end % CHUNK == 0 or end >= prompt for end, prompt in computed)
    assert any(end % CHUNK == 0 and end < prompt for end, prompt in computed), "no prompt was cut"
    assert together.engine.core.prefixes.snapshot_pages
    # The shortest prefix that may be pinned is kept; without a chunk's end within it there would be no state.
    least = together.engine.least_pinned_tokens
    assert least == CHUNK + PAGE
    pin = PinnedPrefix("pin", "", "", "", [7] * least)
    assert together.engine.core.pin_prefixes([pin]) == {"pin": PinState.MISSING}
    together.engine.add_request(GenerationRequest("pin", pin.token_ids, SamplingParams(max_tokens=1), pin="pin"))
    while together.engine.has_work():
        together.engine.step()
    assert together.engine.core.pin_prefixes([pin]) == {"pin": PinState.KEPT}


@pytest.mark.parametrize("at", [None, 1, 64, 100, 4 * CHUNK])
def test_prompts_are_cut_at_the_same_tokens_for_any_budgets(at: int | None, tensor_seed: int) -> None:
    """Also those of an adapter that acts from token ``at`` on; each cut is one where a state may be kept."""
    rnd, prompt = random.Random(tensor_seed), 5 * CHUNK + 17
    sequence: Any = SimpleNamespace(num_prompt=prompt, activation=None if at is None else Activation(at, "sha256:a"))
    for _ in range(20):
        sequence.num_computed, ends = 0, []
        while sequence.num_computed < prompt:
            until = at if at is not None and sequence.num_computed < at else prompt
            most = min(until - sequence.num_computed, rnd.randint(CHUNK, 3 * CHUNK))
            tokens = TokenSequence.whole_chunk(sequence, most, CHUNK)
            assert 0 < tokens <= most
            sequence.num_computed += tokens
            ends.append(sequence.num_computed)
        for end in ends[:-1]:
            assert end == at or (end - (at if at is not None and end > at else 0)) % CHUNK == 0
            assert end == at or TokenSequence.may_end_chunk(sequence, end, CHUNK)
        assert at is None or at in ends


@pytest.mark.parametrize("tokens", [1, 17, 64, 65, 300])
def test_sums_in_fp8_are_cut_by_the_matrix_alone(tokens: int) -> None:
    for outputs, inputs in ((6144, 4096), (4096, 14336), (28672, 4096), (576, 1536)):
        assert (
            tiling(tokens, outputs, inputs, False, invariant=True)[2:4] == tiling(1, outputs, inputs, False, True)[2:4]
        )


def test_chunks_are_of_the_prompt_or_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a pre-emption; and only pages of prompts are kept for others."""
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64, deterministic=True, step_tokens=40), LoadedAdapters())
    launch, chunks = engine.runner.launch, []

    def spy(given: Any, *others: Any, **more: Any) -> Any:
        ordered = list(given)
        chunks.extend((c.sequence.num_computed, c.sequence.num_computed + c.tokens) for c in ordered)
        return launch(ordered, *others, **more)

    monkeypatch.setattr(engine.runner, "launch", spy)
    engine.add_request(GenerationRequest("0", [5] * 50, SamplingParams(max_tokens=60, ignore_eos=True)))
    for _ in range(30):
        engine.step()
    preempt(engine, random.Random(0))
    while engine.has_work():
        engine.step()
    alone = [(at, at + 1) for at in range(50, 109)]
    assert chunks == [(0, 40), (40, 50), *alone[:28], (48, 50), (50, 79), *alone[29:]]
    assert len(engine.core.prefixes) == 3, "the whole pages of 50 tokens"


@pytest.mark.parametrize("deterministic", [True, False])
def test_torch_in_random_schedules(deterministic: bool, tensor_seed: int) -> None:
    """Also that the test would notice: the default differs."""
    settings = EngineConfig(model=DEMO, pool_mb=64, deterministic=deterministic)
    loaded = load_model(settings)
    config, rnd = loaded.model.config, random.Random(tensor_seed)
    prompts = [[rnd.randrange(3, config.vocab_size) for _ in range(length)] for length in (1, 20, 37, 60)]
    prompts.append(prompts[3][:40] + prompts[1])
    requests = [
        GenerationRequest(
            f"{i}", prompt, SamplingParams(max_tokens=6, ignore_eos=True, logprobs=True, temperature=i % 2, seed=i)
        )
        for i, prompt in enumerate(prompts)
    ]
    engine = Engine(replace(settings, prefix_cache=False), LoadedAdapters(), loaded)
    expected: Answers = {}
    for request in requests:
        expected |= run_steps(engine, [request])
    busy = Engine(replace(settings, step_tokens=23, max_running=4), LoadedAdapters(), loaded)
    found = run_steps(busy, requests, random.Random(tensor_seed))
    if not deterministic:
        assert any(not torch.equal(found[name][1], expected[name][1]) for name in found)
        return
    assert_same(found, expected)
    assert_same(run_steps(busy, resumed(requests, expected, 4)), expected, skip=4)
    busy.runner.overlaps = True  # as on a GPU, where the host sees tokens a step late
    assert_same(run_steps(busy, requests, random.Random(tensor_seed)), expected)
    reading = replace(requests[2], request_id="2 reads", prompt_logprobs=1)
    assert_same(run_steps(busy, [reading, *requests]), expected)


@pytest.mark.usefixtures("in_order")
def test_it_is_right_too() -> None:
    run = interpreted("gemma2")
    requests, used = requests_for(run, 2, lengths=(3, 20), new=2, seed=1)
    assert worst_error(run, requests, used, run.generate(requests), torch.float32) < 1e-4


@pytest.mark.usefixtures("in_order")
def test_so_it_is_where_cublas_multiplies() -> None:
    """Products of padded rows, a bias after them."""
    run = interpreted("qwen2")
    ops, weights = run.engine.loaded.model.ops, run.weights.layers[0]
    assert isinstance(ops, InvariantOps)
    assert not ops.by_cublas, "that is for a GPU"
    ops.by_cublas = frozenset(m.shape for m in (weights.mixer_in, weights.mixer_out, weights.down, run.weights.lm_head))
    requests, used = requests_for(run, 2, lengths=(3, 20), new=2, seed=1)
    assert worst_error(run, requests, used, run.generate(requests), torch.float32) < 1e-4


def test_few_rows_are_padded() -> None:
    weight, out = torch.randn(5, 7), torch.empty(3, 5)
    for rows in (1, 3, LEAST_ROWS - 1, LEAST_ROWS, LEAST_ROWS + 1):
        x = torch.randn(rows, 7)
        torch.testing.assert_close(padded_linear(x, weight), x @ weight.t())
    assert padded_linear(x[:3], weight, out) is out
    torch.testing.assert_close(out, x[:3] @ weight.t())


@pytest.mark.parametrize(("odd", "agree"), [(0, True), (LEAST_ROWS, False), (77, False), (100, False), (101, True)])
def test_a_single_number_of_rows_that_differs_is_found(odd: int, agree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(4, 8)

    def product(x: torch.Tensor, weight: torch.Tensor, bias: None = None, out: None = None) -> torch.Tensor:
        return (x.double() @ weight.t().double()).float() * (1.0 if len(x) != odd else 1 + 1e-6)

    monkeypatch.setattr("lora_engine.model.invariant_ops.linear", product)
    assert rows_agree(weight, 100) is agree


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"mode": "auto"}, "--mode unmerged"), ({"backend": "flashinfer"}, "--backend triton")],
)
def test_what_cannot_keep_the_promise_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"--deterministic is not possible here.*{words}"):
        load_model(EngineConfig(model=DEMO, deterministic=True, **settings))


def test_batches_of_one_variant_find_their_graphs() -> None:
    """Whatever adapters are in them; and none that is captured at start is of another variant."""
    rnd, usual = random.Random(4), set(usual_graphs(256, invariant=True))
    assert {shape.lora.variant for shape in usual if shape.lora} == {KernelVariant.GROUPED}
    assert all(shape.lora.invariant for shape in usual if shape.lora)
    assert min(graph_sizes(256, invariant=True)) == LEAST_ROWS
    assert graph_sizes(48, invariant=True) == [48]
    for size in graph_sizes(256, invariant=True):
        for adapters in {1, rnd.randint(1, size), size}:
            used = sorted(rnd.randrange(adapters) for _ in range(size))
            slots = [SimpleNamespace(rank=rnd.choice((8, 64)), groups=frozenset({0, 1}), table_index=i + 1,
                                     has_epilogues=False)
                     for i in range(adapters)]  # fmt: skip
            runs = [(key, list(rows)) for key, rows in groupby(range(size), key=lambda row: used[row])]
            spans = [LoraSpan(slots[key], rows[0], rows[-1] + 1) for key, rows in runs]  # type: ignore[arg-type]
            assert graph_shape(size, spans, merged=False, invariant=True) in usual


# On a GPU.

REAL = {"llama": "Llama-3.1-8B", "gemma2": "Gemma-2-2B", "qwen3": "Qwen3-4B"}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("outputs", "inputs"), [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (1152, 896)])
def test_a_product_s_rows_are_the_same_among_any_number(outputs: int, inputs: int, dtype: torch.dtype) -> None:
    x = torch.randn(2048, inputs, device="cuda").to(dtype)
    weight = (torch.randn(outputs, inputs, device="cuda") * inputs**-0.5).to(dtype)
    whole = invariant_linear.invariant_linear(x, weight)
    torch.testing.assert_close(whole, x @ weight.t(), rtol=2e-2, atol=2e-2)
    forbid_split_sums()
    assert rows_agree(weight, 2048), "cuBLAS without split sums; if not, the kernel is taken"
    counts = [1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511, 1000, 2047]
    for count in counts:
        for first in {0, 7 % count, 2048 - count}:
            rows = slice(first, min(first + count, 2048))
            assert torch.equal(invariant_linear.invariant_linear(x[rows], weight), whole[rows]), (count, first)


# Two layers of Qwen3.5-35B-A3B and of gpt-oss-20b, with fewer experts.
MIXTURES: dict[str, dict[str, Any]] = {
    "qwen3_5_moe_text": {
        "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 64,
        "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    },
    "gpt_oss": {
        "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128,
        "num_local_experts": 32, "num_experts_per_tok": 4,
    },
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("kind", ["bfloat16", "fp8"])
def test_states_and_experts_of_real_sizes(family: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters on every projection and expert; requests of the base beside them."""
    if family == "gpt_oss" and kind == "fp8":
        pytest.skip("its experts are published in MXFP4")
    monkeypatch.setattr("lora_engine.scheduling.scheduler._LEAST_SNAPSHOT_TOKENS", 64)
    common = {"num_hidden_layers": 2, "vocab_size": 32_003, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6}
    config = ModelConfig.from_dict({"model_type": family, "tie_word_embeddings": True, **common, **MIXTURES[family]})
    settings: dict[str, Any] = {"deterministic": True, "pool_mb": 6000}
    if kind == "fp8":
        settings["quantization"] = "fp8"
    check_random_schedules(config, torch.bfloat16, (8, 16, 40), settings)


@pytest.mark.gpu
@pytest.mark.parametrize("family", REAL)
@pytest.mark.parametrize("kind", ["bfloat16", "float32", "fp8"])
def test_real_layers_in_random_schedules(family: str, kind: str) -> None:
    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    quantised = {"quantization": "fp8", "kv_cache_dtype": "fp8"} if kind == "fp8" else {}
    shape = SHAPES[REAL[family]]
    config = ModelConfig.from_dict(
        {
            "model_type": family, "num_hidden_layers": 2, "hidden_size": shape.hidden,
            "intermediate_size": shape.inner, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": 32_003,
            "max_position_embeddings": 4096, "tie_word_embeddings": True, "sliding_window": 150,
        }
    )  # fmt: skip
    check_random_schedules(
        config, dtype, (8, 16, 64, 40, 128), {"deterministic": True, "pool_mb": 3000, **quantised}
    )  # fmt: skip


def check_random_schedules(
    config: ModelConfig, dtype: torch.dtype, ranks: Sequence[int], common: dict[str, Any]
) -> None:
    alone = ShapeRun(config, "cuda", dtype, ranks, **common, max_running=1, step_tokens=2048, cuda_graphs=False)
    lengths = [1, 2, 17, 64, 65, 130, 300, 301, 490, 257, 33, 250] * 4
    requests = requests_of(alone, lengths, new=8, seed=5)
    expected: Answers = {}
    for request in requests:
        expected |= run_steps(alone.engine, [request])
    for seed, settings in enumerate(
        ({"max_running": 48, "step_tokens": 2048}, {"max_running": 20, "step_tokens": 190, "prefix_cache": True})
    ):
        together = ShapeRun(config, "cuda", dtype, ranks, **common, **settings)
        assert_same(run_steps(together.engine, requests), expected)
        assert_same(run_steps(together.engine, requests, random.Random(seed)), expected)
        assert_same(run_steps(together.engine, resumed(requests, expected, 5)), expected, skip=5)
        del together
        torch.cuda.empty_cache()
