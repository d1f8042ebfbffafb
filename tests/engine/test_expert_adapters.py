"""Adapters on experts and routers give the tokens of models that have their deltas in the weights."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.expert_adapters import (
    ALPHA,
    FORMS,
    ExpertFactorsOf,
    config_of,
    random_factors,
    save_experts,
    sparse_layers,
    with_deltas,
)
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.reference_families import Family, ReferenceFamilies, build_engine, run_all
from lorikeet_testing.shape_runs import ShapeRun
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, geometry_of, pack_for
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lora_engine.adapters.delta_norms import delta_norms
from lora_engine.adapters.fp8_factors import quantise_experts
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.model.config import ModelConfig
from lora_engine.model.graph_shapes import GraphShape
from lora_engine.model.triton_ops import ALL_GROUPS, lora_shape
from lora_engine.peft_format import AdapterLimits, BaseGeometry, inspect_adapter, resolve_patterns
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.queue_policies.accounts import Prices
from lora_kernels.kernel_variants import KernelVariant

pytestmark = pytest.mark.usefixtures("few_programs")
MIXTRAL, OLMOE, QWEN = "mixtral-experts", "olmoe-experts", "qwen3-some-layers-with-experts"
NEXT, QWEN_3_5, GLM = "qwen3-next-experts", "qwen3.5-experts", "glm4-experts"


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> ReferenceFamilies:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))


def base_of(family: Family) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        family.folder, dtype=torch.float32, experts_implementation="eager"
    ).eval()


def requests_of(adapters: list[str], seed: int, tokens: int = 5) -> list[GenerationRequest]:
    rnd = random.Random(seed)
    return [
        GenerationRequest(
            str(n), [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 9, 33)))],
            SamplingParams(max_tokens=tokens), digest,
        )
        for n, digest in enumerate(adapters)
    ]  # fmt: skip


def check(model: Any, request: GenerationRequest, answer: list[int]) -> None:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([request.prompt_token_ids + answer[:-1]])).logits[0]
    assert answer == logits.argmax(dim=-1)[-len(answer) :].tolist()


def check_all(family: Family, models: dict[str, tuple[Adapter, Any]], per: int = 2, **settings: Any) -> None:
    """Run requests of every adapter, of the base and of attention's adapters in mixed batches."""
    adapters = {**family.adapters, **{name: adapter for name, (adapter, _) in models.items()}}
    engine = build_engine(dataclasses.replace(family, adapters=adapters), **settings)
    base, plain = base_of(family), family.adapters["attention-r8"].digest
    by_digest = {adapter.digest: model for adapter, model in models.values()}
    digests = [*list(by_digest) * per, "", plain, ""]
    requests = requests_of(digests, seed=per)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        answer = tokens[request.request_id]
        if request.adapter_digest == plain:
            family.check_greedy(request, answer, "attention-r8")
        else:
            check(by_digest.get(request.adapter_digest, base), request, answer)


@pytest.mark.parametrize("name", [MIXTRAL, OLMOE, QWEN, NEXT, GLM])
def test_each_form_has_the_tokens_of_a_model_with_its_deltas(
    families: ReferenceFamilies, name: str, tmp_path: Path
) -> None:
    """All forms beside each other, the base and an adapter on attention in one batch."""
    family, models = families(name), {}
    base, block = base_of(family), "block_sparse_moe" if name == MIXTRAL else "mlp"
    for seed, form in enumerate(FORMS):
        factors = random_factors(base, seed, form)
        adapter = save_experts(tmp_path / form, factors, form, block if form == "each expert" else "mlp")
        models[form] = adapter, with_deltas(base, factors)
    check_all(family, models)


@pytest.mark.parametrize("name", [pytest.param(OLMOE, marks=pytest.mark.long), QWEN])
def test_kernels_have_the_tokens_of_the_reference(families: ReferenceFamilies, name: str, tmp_path: Path) -> None:
    """The Triton kernels, with one program for each pair and with blocks of pairs."""
    family, models = families(name), {}
    base = base_of(family)
    for seed, form in enumerate(("parameters", "shared", "uneven")):
        factors = random_factors(base, seed, form)
        models[form] = save_experts(tmp_path / form, factors, form), with_deltas(base, factors)
    check_all(family, models, per=1, backend="triton", step_tokens=64)


def test_tokens_of_adapters_on_experts_are_dearer(families: ReferenceFamilies, tmp_path: Path) -> None:
    """A tenant's counter grows by what its adapter costs a step: its rank, and twice the rank on experts."""
    family = families(OLMOE)
    adapter = save_experts(tmp_path / "dear", random_factors(base_of(family), 1, "parameters"), "parameters")
    plain = family.adapters["attention-r8"]
    engine = build_engine(dataclasses.replace(family, adapters={"dear": adapter, "plain": plain}))
    prices = Prices(1.0, 2.0, 0.01)
    for digest, factor in ((adapter.digest, 3), (plain.digest, 1)):
        engine.add_request(GenerationRequest(digest, [1, 2], SamplingParams(max_tokens=3), digest))
        engine.step()
        sequence = engine.core.requests[digest].sequences[0]
        assert sequence.slot is not None and sequence.slot.priced_rank == factor * sequence.slot.rank
        dearer = 1.0 + 0.01 * factor * sequence.slot.rank
        assert prices.of(sequence) == (dearer, 2.0 * dearer)


def test_64_adapters_on_experts_in_one_batch_answer_as_alone() -> None:
    """Of random ranks, beside adapters that leave the experts alone, and beside the base."""
    rnd = random.Random(5)
    config = ModelConfig.from_dict(
        {
            "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 64,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 100,
            "max_position_embeddings": 512, "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
            "norm_topk_prob": True,
        }
    )  # fmt: skip
    ranks = [rnd.randint(1, 20) for _ in range(64)]
    run = ShapeRun(config, "cpu", torch.float32, ranks, backend="torch", pool_mb=64, max_running=80, page_tokens=4)
    digests = [*run.packed, *(run.add_adapter(rnd.randint(1, 9), on_experts=False) for _ in range(8)), *[""] * 8]
    rnd.shuffle(digests)
    params = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=True)
    requests = [
        GenerationRequest(str(n), [rnd.randrange(100) for _ in range(rnd.choice((1, 3, 8)))], params, digest)
        for n, digest in enumerate(digests)
    ]
    most, step = 0, run.engine.runner.launch

    def spy(chunks: Any, *others: Any, **more: Any) -> Any:
        nonlocal most
        ordered = list(chunks)
        most = max(most, len({chunk.sequence.request.adapter_digest for chunk in ordered}))
        return step(ordered, *others, **more)

    run.engine.runner.launch = spy  # type: ignore[method-assign]
    together = run.generate(requests)
    assert most == 64 + 8 + 1, "all are in one step"
    answers = set()
    for request in requests:
        ((tokens, logits),) = run.generate([request]).values()
        assert together[request.request_id][0] == tokens
        torch.testing.assert_close(together[request.request_id][1], logits, rtol=1e-4, atol=1e-5)
        answers.add((tuple(request.prompt_token_ids), tuple(tokens)))
    assert len(answers) > 60


def in_fp8(factors: dict[int, ExpertFactorsOf]) -> dict[int, ExpertFactorsOf]:
    """Round factors as ``--adapter-dtype fp8`` does where A and B have a module's own form."""
    rounded = {}
    for layer, of in factors.items():
        gate_up_b = of.gate_up_b.transpose(1, 2).chunk(2, dim=2)
        a, (gate, up), scale = quantise_experts(of.gate_up_a, gate_up_b)
        down_a, (down,), of_down = quantise_experts(of.down_a, [of.down_b.transpose(1, 2)])
        outputs = scale * torch.cat((gate, up), dim=2).transpose(1, 2), of_down * down.transpose(1, 2)
        rounded[layer] = ExpertFactorsOf(a, outputs[0], down_a, outputs[1])
    return rounded


@pytest.mark.parametrize(
    ("name", "backend"),
    [(OLMOE, "torch"), (GLM, "torch"), (OLMOE, "triton"), pytest.param(GLM, "triton", marks=pytest.mark.long)],
)
def test_factors_in_fp8(families: ReferenceFamilies, name: str, backend: str, tmp_path: Path) -> None:
    """The tokens are those of a model with the rounded deltas, and pages half as many as in 16 bits."""
    family, models = families(name), {}
    base = base_of(family)
    for seed, form in enumerate(("parameters", "stacked")):
        factors = random_factors(base, seed, form)
        models[form] = save_experts(tmp_path / form, factors, form), with_deltas(base, in_fp8(factors))
    alone = dataclasses.replace(family, adapters={})
    engine = build_engine(dataclasses.replace(alone, adapters={n: a for n, (a, _) in models.items()}),
                          adapter_dtype="fp8", backend=backend, step_tokens=64)  # fmt: skip
    requests = requests_of([adapter.digest for adapter, _ in models.values()], seed=2, tokens=3)
    tokens, _ = run_all(engine, requests)
    for request, (_, model) in zip(requests, models.values(), strict=True):
        check(model, request, tokens[request.request_id])
    adapter = models["parameters"][0]
    small, large = pack_for(engine, adapter), pack_for(build_engine(alone), adapter)
    assert small.layout.fp8_rows == 4 and small.num_pages <= -(-large.num_pages // 4) + 1  # float32 here
    geometry = engine.pool.geometry
    norms = zip(delta_norms(small, geometry), delta_norms(large, geometry), strict=True)
    for got, want in norms:
        for group, norm in want.items():
            assert norm == 0 or abs(got[group] / norm - 1) < 0.05


@pytest.mark.parametrize("experts_of_a", [1, 5])
@pytest.mark.parametrize("experts_of_b", [1, 5])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e5])
def test_rounded_factors_of_experts_keep_their_products(experts_of_a: int, experts_of_b: int, size: float) -> None:
    """Rows, experts and modules differ in size, also where a factor is the same for all experts."""
    generator = torch.Generator().manual_seed(4)
    of_rows = torch.exp2(torch.linspace(-6, 6, 7))[:, None]
    a = torch.randn(experts_of_a, 7, 40, generator=generator) * of_rows * size
    outputs = [torch.randn(experts_of_b, 7, 30, generator=generator) / of_rows * s for s in (1.0, 1 / 16)]
    rounded, rounded_outputs, scale = quantise_experts(a, outputs)
    for want, got in zip(outputs, rounded_outputs, strict=True):
        for factor in (rounded, got):
            assert torch.equal(factor, factor.to(torch.float8_e4m3fn).float())
        plain = want.double().transpose(1, 2) @ a.double()
        error = scale * got.double().transpose(1, 2) @ rounded.double() - plain
        assert float((error.flatten(1).norm(dim=1) / plain.flatten(1).norm(dim=1)).max()) < 0.05


def test_preemption_chunks_and_cached_prefixes_change_nothing(families: ReferenceFamilies, tmp_path: Path) -> None:
    family = families(QWEN)
    base, models = base_of(family), {}
    for seed, form in enumerate(("parameters", "w1 w2 w3")):
        factors = random_factors(base, seed, form)
        models[form] = save_experts(tmp_path / form, factors, form), with_deltas(base, factors)
    check_all(family, models, per=4, pool_mb=2, page_tokens=2, step_tokens=11)


def test_an_mlp_beside_experts_and_one_of_another_width_instead_of_them(
    families: ReferenceFamilies, tmp_path: Path
) -> None:
    """Both have modules of the same names; the MLP beside experts has targets of its own."""
    family = families(GLM)
    base, changed, models = base_of(family), base_of(family), {}
    generator = torch.Generator().manual_seed(6)
    for rank, blocks in ((4, ("shared_experts.",)), (5, ("", "shared_experts."))):
        tensors, folder = {}, tmp_path / str(rank)
        changed = base_of(family)
        for layer, block in ((layer, block) for layer in range(3) for block in blocks):
            if (layer == 0) == bool(block):
                continue
            for part in ("gate_proj", "up_proj", "down_proj"):
                module = f"model.layers.{layer}.mlp.{block}{part}"
                weight = changed.get_submodule(module).weight
                a, b = (torch.randn(*shape, generator=generator) * 0.3 for shape in
                        ((rank, weight.shape[1]), (weight.shape[0], rank)))  # fmt: skip
                weight.data += ALPHA / rank * b @ a
                tensors |= {f"base_model.model.{module}.lora_{s}.weight": f for s, f in (("A", a), ("B", b))}
        folder.mkdir()
        save_file(tensors, folder / "adapter_model.safetensors")
        targets = r".*shared_experts\..*_proj" if len(blocks) == 1 else r".*mlp\.(shared_experts\.)?(gate|up|down)_proj"
        config = config_of("", target_modules=targets, r=rank)
        (folder / "adapter_config.json").write_text(json.dumps(config))
        models[str(rank)] = adapter_at(str(rank), folder), changed
    assert base.config.intermediate_size != base.config.moe_intermediate_size * base.config.n_shared_experts
    check_all(family, models)
    check_all(family, {"5": models["5"]}, per=1, backend="triton", step_tokens=64)


@pytest.mark.parametrize(
    ("name", "targets", "parts"),
    [
        (OLMOE, "all-linear", {"experts", "gate"}),
        (OLMOE, ["gate_proj", "up_proj", "down_proj", "q_proj"], {"experts"}),
        (QWEN_3_5, "all-linear", {"shared_expert", "shared_expert_gate"}),
        (NEXT, ["gate_proj", "up_proj", "down_proj", "in_proj_ba"], {"experts"}),
        (NEXT, ["shared_expert_gate", "in_proj_qkvz", "v_proj"], {"shared_expert_gate"}),
        (GLM, "all-linear", {"experts", "gate"}),
    ],
)
def test_what_peft_writes_is_served_as_peft_does(
    families: ReferenceFamilies, name: str, targets: str | list[str], parts: set[str], tmp_path: Path
) -> None:
    """PEFT trains the experts' parameters by the names of an MLP, and the router's for ``all-linear``."""
    family = families(name)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(3)
    trained = get_peft_model(base_of(family), config)
    for parameter in trained.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.15)
    trained.save_pretrained(str(tmp_path / "peft"))
    names = " ".join(load_file(tmp_path / "peft" / "adapter_model.safetensors"))
    assert set(re.findall(r"\.mlp\.(\w+)\.", names)) == parts
    reference = PeftModel.from_pretrained(base_of(family), str(tmp_path / "peft")).eval()
    check_all(family, {"peft": (adapter_at("peft", tmp_path / "peft"), reference)}, per=4)


def test_a_router_of_a_checkpoint_of_mixtral(families: ReferenceFamilies, tmp_path: Path) -> None:
    family = families(MIXTRAL)
    base, changed = base_of(family), base_of(family)
    generator, tensors = torch.Generator().manual_seed(2), {}
    for layer in sparse_layers(base):
        gate = changed.model.layers[layer].mlp.gate
        a, b = (torch.randn(*shape, generator=generator) for shape in ((4, 64), (len(gate.weight), 4)))
        gate.weight.data += 2.0 * b @ a
        prefix = f"base_model.model.model.layers.{layer}.block_sparse_moe.gate"
        tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    (tmp_path / "a").mkdir()
    save_file(tensors, tmp_path / "a" / "adapter_model.safetensors")
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config_of("", target_modules=["gate"])))
    check_all(family, {"a": (adapter_at("a", tmp_path / "a"), changed)})


def test_decode_graphs_find_each_rows_adapter(
    families: ReferenceFamilies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(
        "lora_engine.engine.build_runner",
        lambda config, loaded, mirror: GraphRunner(loaded.model, loaded.pool, config.max_running, loaded.max_context),
    )
    family = families(OLMOE)
    base, adapters, models = base_of(family), dict(family.adapters), {}
    for seed in range(2):
        factors = random_factors(base, seed, "w1 w2 w3")
        adapters[f"e{seed}"] = save_experts(tmp_path / f"e{seed}", factors, "w1 w2 w3")
        models[adapters[f"e{seed}"].digest] = with_deltas(base, factors)
    engine = build_engine(dataclasses.replace(family, adapters=adapters), step_tokens=64, backend="triton")
    graphs = engine.runner.graphs  # type: ignore[attr-defined]
    graphs.steps_between = 1 << 30
    graphs.choose(GraphShape(4, lora_shape(KernelVariant.GEMV_1, 64), 4, ALL_GROUPS), [])
    requests = requests_of([*models, ""], seed=8, tokens=3)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        check(models.get(request.adapter_digest, base), request, tokens[request.request_id])
    assert len(graphs) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("name", [MIXTRAL, OLMOE, QWEN])
def test_gpu_tokens(families: ReferenceFamilies, name: str, graphs: bool, tmp_path: Path) -> None:
    family, models = families(name), {}
    base = base_of(family)
    for seed, form in enumerate(("parameters", "shared", "uneven", "each expert")):
        factors = random_factors(base, seed, form)
        models[form] = save_experts(tmp_path / form, factors, form), with_deltas(base, factors)
    check_all(family, models, per=6, device="cuda", dtype="float32", step_tokens=64, max_running=24, cuda_graphs=graphs)


@pytest.mark.parametrize("name", [OLMOE, NEXT, GLM])
def test_configs_without_expressions_mean_the_same(families: ReferenceFamilies, name: str, tmp_path: Path) -> None:
    """Modules of experts in each form, with ranks and scales of their own, beside an MLP that all tokens use."""
    model, of = base_of(families(name)), geometry_of(build_engine(families(name)))
    shared = [] if name == OLMOE else [module for module, _ in model.named_modules() if "shared_expert" in module
                                       and module.endswith("up_proj")]  # fmt: skip
    for seed, form in enumerate(FORMS):
        folder, factors = tmp_path / form, random_factors(model, seed, form)
        parameters = {r".*experts\.down_proj": 3, r".*shared_experts?\.up_.*": 5, r".*layers\.2\..*w[13].*": 7}
        config = config_of(form, alpha_pattern=parameters | config_of(form).get("alpha_pattern", {}))
        targets = config["target_modules"] or r"(?!.*)"
        config["target_modules"] = rf"{targets}|.*shared_experts?\.up_proj"
        save_experts(folder, factors, form, **config)
        tensors = load_file(folder / "adapter_model.safetensors")
        for module in shared:
            tensors[f"base_model.model.{module}.lora_A.weight"] = torch.ones(4, model.config.hidden_size)
            tensors[f"base_model.model.{module}.lora_B.weight"] = torch.ones(len(model.get_submodule(module).weight), 4)
        save_file(tensors, folder / "adapter_model.safetensors")
        before = inspect_adapter(folder, of).manifest
        assert before is not None and before.experts
        if not resolve_patterns(folder, before, of):
            continue
        after = inspect_adapter(folder, of).manifest
        assert after is not None, form
        assert (after.experts, after.modules) == (before.experts, before.modules), form
        assert not resolve_patterns(folder, after, of)
        assert {module.alpha for module in before.modules} <= {5.0} and len(before.modules) == len(shared)


def test_an_adapter_for_each_of_many_experts(tmp_path: Path) -> None:
    """A file of Qwen3-30B-A3B's has 36,864 tensors, this one more than a file without experts may have."""
    of = geometry(num_layers=28, layer_kinds="e" * 28, experts=128)
    tensors = {}
    for layer in range(28):
        for expert in range(128):
            prefix = f"base_model.model.model.layers.{layer}.mlp.experts.{expert}."
            for module, (ins, outs) in (("gate_proj", (8, 6)), ("up_proj", (8, 6)), ("down_proj", (6, 8))):
                tensors[f"{prefix}{module}.lora_A.weight"] = torch.ones(1, ins)
                tensors[f"{prefix}{module}.lora_B.weight"] = torch.ones(outs, 1)
    report = report_of(tmp_path, tensors, of, r=1, target_modules=r".*experts\..*", target_parameters=None)
    assert report.manifest is not None, report.problems
    assert len(tensors) == 21504 and len(report.manifest.experts) == 3 * 28
    assert resolve_patterns(tmp_path, report.manifest, of)
    assert inspect_adapter(tmp_path, of).manifest.experts == report.manifest.experts  # type: ignore[union-attr]


def test_the_largest_file_follows_the_base() -> None:
    """Rank 32 on all experts of Qwen3-30B-A3B takes 3.1 GB in 16 bits."""
    of = geometry(num_layers=48, layer_kinds="e" * 48, experts=128, hidden_size=2048, expert_features=768)
    largest = 2 * 32 * 48 * 128 * 3 * (2048 + 768)
    assert AdapterLimits.of_base(geometry(layer_kinds="", experts=0), 64) == AdapterLimits(max_rank=64)
    assert AdapterLimits().max_bytes < largest < AdapterLimits.of_base(of, 256).max_bytes < 3 * largest
    assert AdapterLimits.of_base(of, 8).max_bytes < largest


def geometry(**changes: Any) -> BaseGeometry:
    sizes = {"num_layers": 2, "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 4, "vocab_size": 32, "experts": 4, "expert_features": 6}
    return BaseGeometry("tiny", "", **({"layer_kinds": "ee"} | sizes | changes))  # type: ignore[arg-type]


def stacked_parameters(gate_up: tuple[int, int], down: tuple[int, int] | None = None) -> dict[str, torch.Tensor]:
    """Parameters of four experts and rank 4, by their inputs and outputs in the file."""
    tensors = {}
    for layer in range(2):
        prefix = f"base_model.model.model.layers.{layer}.mlp.experts"
        for name, sizes in ((".base_layer", gate_up), ("", down)):
            if sizes is not None:
                tensors[f"{prefix}{name}.lora_A.weight"] = torch.ones(16, sizes[0])
                tensors[f"{prefix}{name}.lora_B.weight"] = torch.ones(sizes[1], 16)
    return tensors


def report_of(folder: Path, tensors: dict[str, torch.Tensor], of: BaseGeometry, **config: Any) -> Any:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config_of("parameters", **config)))
    return inspect_adapter(folder, of)


def test_exchanged_factors_of_equal_sizes_are_told_apart_by_the_other_parameter_or_the_release(tmp_path: Path) -> None:
    """Of OLMoE's parameters, gate_up_proj has as many outputs as inputs."""
    base, square = geometry(hidden_size=12), stacked_parameters((12, 12))
    only = {"target_parameters": ["mlp.experts.gate_up_proj"]}

    def first_of_a(report: Any) -> str:
        module = next(lora for lora in report.manifest.experts if lora.module == "gate_up_proj")
        return str(re.search(r"lora_[AB]", module.a.names[0])[0])  # type: ignore[index]

    assert first_of_a(report_of(tmp_path, stacked_parameters((12, 12), (6, 12)), base)) == "lora_A"
    assert first_of_a(report_of(tmp_path, stacked_parameters((12, 12), (12, 6)), base)) == "lora_B"
    assert first_of_a(report_of(tmp_path, square, base, peft_version="0.19.1", **only)) == "lora_A"
    assert first_of_a(report_of(tmp_path, square, base, peft_version="0.18.0", **only)) == "lora_B"
    (problem,) = report_of(tmp_path, square, base, **only).problems
    assert problem.code == "ambiguous_tensor" and "peft_version" in problem.fix


def each(experts: range, rank: int = 4, inner: int = 6) -> dict[str, torch.Tensor]:
    tensors = {}
    for layer in range(2):
        for expert in experts:
            prefix = f"base_model.model.model.layers.{layer}.mlp.experts.{expert}.gate_proj"
            tensors |= {
                f"{prefix}.lora_A.weight": torch.ones(rank, 8),
                f"{prefix}.lora_B.weight": torch.ones(inner, rank),
            }
    return tensors


@pytest.mark.parametrize(
    ("tensors", "config", "code", "words"),
    [
        (each(range(3)), {}, "missing_tensor", "experts.gate_proj.3.lora_A is missing"),
        (each(range(5)), {}, "shape_mismatch", "expert 4, but tiny has 4"),
        (each(range(4), rank=2), {}, "rank_mismatch", "is rank 2, but"),
        (each(range(4), inner=5), {}, "shape_mismatch", r"tiny needs \[rank, 8\] and \[6, rank\]"),
        (each(range(4)), {"use_dora": True}, "unsupported_feature", "DoRA on experts"),
        (stacked_parameters((8, 12), (6, 8)), {"target_parameters": ["self_attn.q_proj.weight"]}, "unsupported_feature",
         "other than those of experts"),
        (stacked_parameters((8, 12)), {}, "missing_tensor", "down_proj.lora_A is missing"),
        (stacked_parameters((9, 12), (6, 8)), {}, "shape_mismatch", "fits no parameter"),
        (each(range(4)) | stacked_parameters((8, 12), (6, 8)), {}, "duplicate_tensor", "both have LoRA"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_reason(
    tensors: dict[str, torch.Tensor], config: dict[str, Any], code: str, words: str, tmp_path: Path
) -> None:
    names = {} if any("experts.lora" in name or "base_layer" in name for name in tensors) else {
        "target_modules": ["gate_proj"], "target_parameters": None
    }  # fmt: skip
    report = report_of(tmp_path, tensors, geometry(), **names, **config)
    assert not report.ok
    assert any(problem.code == code and re.search(words, problem.message) for problem in report.problems), [
        (problem.code, problem.message) for problem in report.problems
    ]


def test_experts_of_a_base_without_any_are_refused(families: ReferenceFamilies, tmp_path: Path) -> None:
    report = report_of(tmp_path, stacked_parameters((8, 12), (6, 8)), geometry(experts=0, layer_kinds=""))
    assert {problem.code for problem in report.problems} == {"unsupported_feature"}
    assert geometry_of(build_engine(families(OLMOE))).experts == 6
