"""Models with mixtures of experts beside ``transformers`` and ``peft``: checkpoints, settings, adapters, refusals."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.reference_families import Family, ReferenceFamilies, build_engine, run_all, workload
from lorikeet_testing.tiny_models import VOCAB, adapter_at, geometry_of, save_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import ModelConfig
from lora_engine.peft_format import inspect_adapter
from lora_engine.request import GenerationRequest, SamplingParams

pytestmark = pytest.mark.usefixtures("few_programs")
MIXTRAL, OLMOE, QWEN = "mixtral-experts", "olmoe-experts", "qwen3-some-layers-with-experts"


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> ReferenceFamilies:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module", params=[MIXTRAL, OLMOE, QWEN])
def family(request: pytest.FixtureRequest, families: ReferenceFamilies) -> Family:
    return families(request.param)


def requests_of(count: int, seed: int, tokens: int = 4) -> list[GenerationRequest]:
    rnd = random.Random(seed)
    return [
        GenerationRequest(
            str(n), [rnd.randrange(VOCAB) for _ in range(rnd.choice((5, 33)))], SamplingParams(max_tokens=tokens)
        )
        for n in range(count)
    ]


def tokens_of(folder: Path, requests: list[GenerationRequest]) -> dict[str, list[int]]:
    return run_all(Engine(EngineConfig(model=folder, pool_mb=8), LoadedAdapters()), requests)[0]


def test_preemption_and_chunks_change_nothing(families: ReferenceFamilies) -> None:
    family = families(QWEN)
    requests, adapters = workload(family, 20, seed=3)
    engine = build_engine(family, pool_mb=1, page_tokens=2, step_tokens=23)
    tokens, preemptions = run_all(engine, requests)
    assert preemptions > 0
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_a_cached_prefix_and_a_request_alone_give_the_same_tokens(families: ReferenceFamilies) -> None:
    family = families(OLMOE)
    (request,) = (dataclasses.replace(r, sampling=SamplingParams(max_tokens=4)) for r in workload(family, 8, 1)[0][7:])
    request = dataclasses.replace(
        request, prompt_token_ids=[*range(40)], adapter_digest=family.adapters["qv-r32"].digest
    )
    engine = build_engine(family)
    for cached in (0, 32):
        engine.add_request(request)
        tokens: list[int] = []
        while engine.has_work():
            output = engine.step()
            tokens += [token for delta in output.deltas for token in delta.token_ids]
            assert all(end.usage.cached_prompt_tokens == cached for end in output.finished)
        family.check_greedy(request, tokens, "qv-r32")


def test_stacked_tensors_load_as_published_ones(family: Family, tmp_path: Path) -> None:
    """`transformers` writes them so with ``save_original_format=False``."""
    model = AutoModelForCausalLM.from_pretrained(family.folder, dtype=torch.float32)
    shutil.copytree(family.folder, tmp_path / "stacked")
    model.save_pretrained(tmp_path / "stacked", save_original_format=False)
    stored = load_file(tmp_path / "stacked" / "model.safetensors")
    assert stored["model.layers.0.mlp.experts.gate_up_proj"].dim() == 3
    requests = requests_of(3, seed=1)
    assert tokens_of(tmp_path / "stacked", requests) == tokens_of(family.folder, requests)
    short = {**stored, "model.layers.0.mlp.experts.down_proj": stored["model.layers.0.mlp.experts.down_proj"][:-1]}
    save_file({name: tensor.contiguous() for name, tensor in short.items()}, tmp_path / "stacked" / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"experts\.down_proj is .* config\.json is another"):
        tokens_of(tmp_path / "stacked", requests)


def check_answer(model: Any, request: GenerationRequest, answer: list[int]) -> None:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([request.prompt_token_ids + answer[:-1]])).logits[0]
    assert answer == logits.argmax(dim=-1)[-len(answer) :].tolist()


@pytest.mark.parametrize("settings", [{"norm_topk_prob": False}, {"decoder_sparse_step": 2, "mlp_only_layers": []}])
def test_settings_mean_what_they_mean_to_transformers(settings: dict[str, Any], tmp_path: Path) -> None:
    model = save_model(QWEN, tmp_path, **settings)
    requests = requests_of(3, seed=2)
    tokens = tokens_of(tmp_path, requests)
    for request in requests:
        check_answer(model, request, tokens[request.request_id])


def test_lora_on_a_layer_with_one_mlp_beside_layers_with_experts(families: ReferenceFamilies, tmp_path: Path) -> None:
    """As PEFT wrote it for `transformers` 4; with 5 it turns the names of such modules into parameters of experts."""
    family, module = families(QWEN), "model.layers.1.mlp.down_proj"
    shutil.copytree(family.adapters["attention-r8"].folder, tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps({**config, "target_modules": [module]}))
    model = AutoModelForCausalLM.from_pretrained(family.folder, dtype=torch.float32)
    a, b = torch.randn(8, 150) * 0.3, torch.randn(64, 8) * 0.3
    factors = {f"base_model.model.{module}.lora_{side}.weight": factor for side, factor in (("A", a), ("B", b))}
    save_file(factors, tmp_path / "a" / "adapter_model.safetensors")
    model.model.layers[1].mlp.down_proj.weight.data += 2.0 * b @ a
    adapter = adapter_at("one", tmp_path / "a")
    engine = build_engine(dataclasses.replace(family, adapters={"one": adapter}))
    requests = [dataclasses.replace(request, adapter_digest=adapter.digest) for request in requests_of(2, seed=4)]
    tokens, _ = run_all(engine, requests)
    for request in requests:
        check_answer(model, request, tokens[request.request_id])
    assert geometry_of(engine).layer_kinds == "eae"


OTHER_TENSORS = [
    "mlp.experts.3.gate_proj.lora_magnitude_vector", "mlp.experts.1.up_proj.lora_B.bias",
    "mlp.experts.gate_proj.lora_C.weight", "block_sparse_moe.experts.2.w4.lora_A.weight",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHER_TENSORS)
def test_other_tensors_of_experts_are_refused_by_name(families: ReferenceFamilies, name: str, tmp_path: Path) -> None:
    family, name = families(MIXTRAL), f"base_model.model.model.layers.0.{name}"
    shutil.copytree(family.adapters["attention-r8"].folder, tmp_path / "a")
    tensors = load_file(tmp_path / "a" / "adapter_model.safetensors")
    save_file({**tensors, name: torch.zeros(8, 64)}, tmp_path / "a" / "adapter_model.safetensors")
    report = inspect_adapter(tmp_path / "a", geometry_of(build_engine(family)))
    (problem,) = report.problems
    assert name in problem.message and "is of the experts of" in problem.message
    assert "Train plain LoRA on gate_proj, up_proj and down_proj of experts" in problem.fix


def test_answers_row_by_row(families: ReferenceFamilies) -> None:
    family = families(OLMOE)
    requests, adapters = workload(family, 6, seed=5)
    tokens, _ = run_all(build_engine(family, step_tokens=23, deterministic=True), requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_configurations_that_make_no_model_are_refused(families: ReferenceFamilies) -> None:
    raw = json.loads((families(OLMOE).folder / "config.json").read_text())
    for change, message in (
        ({"num_experts_per_tok": 7}, "7 experts per token, but 6"),
        ({"num_experts": 0}, "num_experts must be a whole number"),
        ({"clip_qkv": 3.0}, "clip_qkv"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            ModelConfig.from_dict({**raw, **change})
