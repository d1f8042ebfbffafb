"""GPT-OSS beside ``transformers`` and ``peft``: adapters on its experts and router, and checkpoints in MXFP4."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.expert_adapters import (
    FORMS_ALTERNATING,
    config_of,
    random_factors,
    save_experts,
    tensors_of,
    with_deltas,
)
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.reference_families import Family, ReferenceFamilies, build_engine, run_all, workload
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, geometry_of
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import ModelConfig
from lora_engine.model.parallel import Parallel
from lora_engine.model.weight_loading import load_weights, random_weights, weight_bytes
from lora_engine.peft_format import inspect_adapter
from lora_engine.request import GenerationRequest, SamplingParams
from lora_kernels.fp8_tensors import quantise
from lora_kernels.mxfp4 import Mxfp4Stack, dequantised

pytestmark = pytest.mark.usefixtures("few_programs")
NAME, CPU = "gpt-oss-sinks-and-experts", torch.device("cpu")
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))(NAME)


def base_of(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def requests_of(
    adapters: list[str], seed: int, tokens: int = 5, lengths: tuple[int, ...] = (1, 9, 33, 70)
) -> list[GenerationRequest]:
    """Prompts within the window of 24 tokens and beyond it."""
    rnd = random.Random(seed)
    return [
        GenerationRequest(
            str(n), [rnd.randrange(VOCAB) for _ in range(rnd.choice(lengths))],
            SamplingParams(max_tokens=tokens), digest,
        )
        for n, digest in enumerate(adapters)
    ]  # fmt: skip


def check(model: Any, request: GenerationRequest, answer: list[int]) -> None:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([request.prompt_token_ids + answer[:-1]])).logits[0]
    assert answer == logits.argmax(dim=-1)[-len(answer) :].tolist(), request.adapter_digest


def check_all(
    family: Family, models: dict[str, tuple[Adapter, Any]], per: int = 2, new: int = 5, **settings: Any
) -> None:
    """Run requests of every adapter and of the base in mixed batches."""
    engine = build_engine(dataclasses.replace(family, adapters={n: a for n, (a, _) in models.items()}), **settings)
    by_digest = {"": base_of(family.folder)} | {adapter.digest: model for adapter, model in models.values()}
    lengths = (1, 9, 33, 70) if new > 2 else (3, 27)
    requests = requests_of(list(by_digest) * per, per, new, lengths)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        check(by_digest[request.adapter_digest], request, tokens[request.request_id])


def experts_in(family: Family, forms: tuple[str, ...], root: Path) -> dict[str, tuple[Adapter, Any]]:
    base, models = base_of(family.folder), {}
    for seed, form in enumerate(forms):
        factors = random_factors(base, seed, form)
        models[form] = save_experts(root / form, factors, form, **LISTED.get(form, {})), with_deltas(base, factors)
    return models


# As Unsloth's users name them.
LISTED = {"listed": {"target_modules": r".*\.(gate_up_projs|down_projs)\.\d+"}}


def test_each_form_has_the_tokens_of_a_model_with_its_deltas(family: Family, tmp_path: Path) -> None:
    check_all(family, experts_in(family, FORMS_ALTERNATING, tmp_path))


def test_kernels_have_the_tokens_of_the_reference(family: Family, tmp_path: Path) -> None:
    models = experts_in(family, ("parameters",), tmp_path)
    check_all(family, models, per=1, new=2, backend="triton", dtype="float32", step_tokens=64, cuda_graphs=False)


def test_preemption_chunks_and_cached_prefixes_change_nothing(family: Family, tmp_path: Path) -> None:
    check_all(family, experts_in(family, ("parameters", "shared"), tmp_path), per=4, pool_mb=2, step_tokens=11)
    requests, adapters = workload(family, 20, seed=3)
    tokens, preemptions = run_all(build_engine(family, pool_mb=1, page_tokens=2, step_tokens=23), requests)
    assert preemptions > 0
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])
    engine, base = build_engine(family), base_of(family.folder)
    (request,) = requests_of([""], seed=1)
    request = dataclasses.replace(request, prompt_token_ids=[*range(40)])
    for cached in (0, 32):
        engine.add_request(request)
        answer: list[int] = []
        while engine.has_work():
            output = engine.step()
            answer += [token for delta in output.deltas for token in delta.token_ids]
            assert all(end.usage.cached_prompt_tokens == cached for end in output.finished)
        check(base, request, answer)


@pytest.mark.parametrize("whole_vocabulary", [False, True])
def test_what_peft_writes_is_served_as_peft_does(family: Family, whole_vocabulary: bool, tmp_path: Path) -> None:
    """Attention, the router and all experts; or LoRA of the head and an own embedding beside experts."""
    modules = ["lm_head", "q_proj"] if whole_vocabulary else ["q_proj", "k_proj", "v_proj", "o_proj"]
    config = LoraConfig(
        r=4, lora_alpha=8, task_type="CAUSAL_LM", init_lora_weights=False, target_modules=modules,
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.router.weight"],
        modules_to_save=["embed_tokens"] if whole_vocabulary else None,
    )  # fmt: skip
    torch.manual_seed(3)
    trained = get_peft_model(base_of(family.folder), config)
    for parameter in trained.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.15)
    trained.save_pretrained(str(tmp_path / "peft"))
    reference = PeftModel.from_pretrained(base_of(family.folder), str(tmp_path / "peft")).eval()
    check_all(family, {"peft": (adapter_at("peft", tmp_path / "peft"), reference)}, per=4)


def test_a_router_with_a_module_of_its_own(family: Family, tmp_path: Path) -> None:
    """As Unsloth writes it for a base in 4 bits."""
    changed, tensors = base_of(family.folder), Tensors()
    for index, layer in enumerate(changed.model.layers):
        a, b = torch.randn(4, 64), torch.randn(6, 4)
        layer.mlp.router.weight.data += 2.0 * b @ a
        prefix = f"base_model.model.model.layers.{index}.mlp.router.linear"
        tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    (tmp_path / "a").mkdir()
    save_file(tensors, tmp_path / "a" / "adapter_model.safetensors")
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config_of("", target_modules=["router.linear"])))
    check_all(family, {"a": (adapter_at("a", tmp_path / "a"), changed)}, per=3)


def only_down(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if "base_layer" not in name}


@pytest.mark.parametrize(
    ("form", "keep", "config", "words"),
    [
        ("doubled", dict, {}, "the order of its outputs is unknown"),
        ("parameters", only_down, {"peft_version": "0.19.1"}, "which of both reads the input cannot be seen"),
        ("parameters", dict, {"target_parameters": ["mlp.experts.gate_up_proj_bias"]}, "other than those of experts"),
        ("listed", dict, {"use_dora": True}, "DoRA on experts"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(
    family: Family, form: str, keep: Callable[[Tensors], Tensors], config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    tensors = keep(tensors_of(random_factors(base_of(family.folder), 1, form), form))
    only = {"target_parameters": ["mlp.experts.down_proj"]} if keep is only_down else {}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config_of(form, **(LISTED.get(form, {}) | only | config))))
    report = inspect_adapter(tmp_path, geometry_of(build_engine(family)))
    assert any(words in problem.message for problem in report.problems), report.problems


def test_a_square_parameter_alone_is_read_as_older_releases_of_peft_wrote_it(family: Family, tmp_path: Path) -> None:
    base = base_of(family.folder)
    factors = random_factors(base, 1, "parameters")
    tensors = only_down(tensors_of(factors, "parameters"))
    for of in factors.values():
        of.gate_up_a.zero_()
    root = tmp_path / "down"
    root.mkdir()
    save_file(tensors, root / "adapter_model.safetensors")
    config = config_of("parameters", target_parameters=["mlp.experts.down_proj"], peft_version="0.18.0")
    (root / "adapter_config.json").write_text(json.dumps(config))
    check_all(family, {"down": (adapter_at("down", root), with_deltas(base, factors))})


def test_the_modules_of_unsloth_are_not_those_of_other_families(tmp_path: Path) -> None:
    engine = build_engine(ReferenceFamilies(tmp_path / "models")("olmoe-experts"))
    name = "base_model.model.model.layers.0.mlp.experts.gate_up_projs.1.lora_A.weight"
    save_file({name: torch.zeros(4, 64)}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config_of("listed")))
    problems = inspect_adapter(tmp_path, geometry_of(engine)).problems
    assert any(name in problem.message and "is of the experts of" in problem.message for problem in problems)


# Checkpoints in MXFP4.


@pytest.fixture(scope="module")
def published(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as it is published: experts in MXFP4, all else in bfloat16."""
    folder = tmp_path_factory.mktemp("mxfp4") / "model"
    shutil.copytree(family.folder, folder)
    tensors, generator = Tensors(), torch.Generator().manual_seed(1)
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith((".gate_up_proj", ".down_proj")):
            tensors[name] = tensor.bfloat16()
            continue
        count, ins, outs = tensor.shape
        sizes = count, outs, ins // 32
        tensors[f"{name}_blocks"] = torch.randint(256, (*sizes, 16), dtype=torch.uint8, generator=generator)
        tensors[f"{name}_scales"] = torch.randint(121, 126, sizes, dtype=torch.uint8, generator=generator)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    return folder


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_mxfp4_is_dequantised_as_transformers_does(dtype: torch.dtype) -> None:
    """Every byte with every scale but the last one, which is no number."""
    scales = torch.arange(255, dtype=torch.uint8)[:, None, None].expand(-1, 2, 16).contiguous()
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(255, 2, 1, 1)
    want = convert_moe_packed_tensors(blocks, scales, dtype=dtype).transpose(1, 2).contiguous()
    got = dequantised(blocks, scales, dtype)
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    assert torch.equal(got.view(bits), want.view(bits))
    assert not dequantised(blocks[:1], torch.full_like(scales[:1], 255), dtype).isfinite().any()
    with pytest.raises(ValueError, match="blocks are"):
        dequantised(blocks, scales[:, :, :1], dtype)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_weights_of_a_published_checkpoint(published: Path, world: int) -> None:
    """A rank of four has half a scale's values of each row of down: it dequantises its part."""
    config = ModelConfig.load(published)
    stored = load_file(published / "model.safetensors")
    ranks = [load_weights(published, config, CPU, torch.bfloat16, Parallel(rank, world)) for rank in range(world)]
    for index in range(config.num_layers):
        layers = [weights.layers[index] for weights in ranks]
        prefix = f"model.layers.{index}.mlp.experts."
        gate_up, down = (
            convert_moe_packed_tensors(stored[f"{prefix}{name}_blocks"], stored[f"{prefix}{name}_scales"])
            for name in ("gate_up_proj", "down_proj")
        )
        of_ranks = [layer.experts.dequantised(torch.bfloat16) for layer in layers]  # type: ignore[union-attr]
        assert [layer.experts_in_mxfp4() for layer in layers] == [12 if world < 4 else 0] * world
        halves = [experts.gate_up.chunk(2, dim=1) for experts in of_ranks]  # type: ignore[union-attr]
        for part, first in ((0, 0), (1, 1)):
            assert torch.equal(torch.cat([half[part] for half in halves], dim=1), gate_up[:, :, first::2].mT)
        assert torch.equal(torch.cat([experts.down for experts in of_ranks], dim=2), down.mT)  # type: ignore[misc]
        assert [experts.down_bias is None for experts in of_ranks] == [rank > 0 for rank in range(world)]
        sinks = torch.cat([layer.sinks for layer in layers])  # type: ignore[misc]
        assert torch.equal(sinks, stored[f"model.layers.{index}.self_attn.sinks"].float())


def test_large_scales_of_a_product_are_known(published: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(published, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    scales = tensors["model.layers.1.mlp.experts.down_proj_scales"]
    scales[2, 3, 1] = 129
    save_file(tensors, folder / "model.safetensors")
    layers = load_weights(folder, ModelConfig.load(folder), CPU, torch.bfloat16, Parallel()).layers
    experts = [layer.experts for layer in layers[:2]]
    assert [[each.gate_up.wide, each.down.wide] for each in experts] == [[False, False], [False, True]]  # type: ignore[union-attr]


def test_projections_alone_are_rounded_to_fp8_beside_mxfp4(published: Path) -> None:
    config = ModelConfig.load(published)
    layer = load_weights(published, config, CPU, torch.bfloat16, Parallel(), quantised=True).layers[0]
    assert layer.experts_in_mxfp4() == 12 and layer.in_fp8() == ("mixer_in", "mixer_out")


def test_random_weights_in_mxfp4(published: Path) -> None:
    """For measurements: as large as those in bfloat16. A plan has their bytes."""
    config = ModelConfig.load(published)
    loaded = load_weights(published, config, CPU, torch.bfloat16, Parallel())
    assert weight_bytes(config, torch.bfloat16, Parallel()) == loaded.num_bytes()
    experts = random_weights(config, CPU, torch.float32, Parallel()).layers[0].experts
    assert experts is not None and isinstance(experts.gate_up, Mxfp4Stack)
    assert 0.01 < float(experts.gate_up.dequantised(0, torch.float32).std()) < 0.1


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_a_published_checkpoint_has_the_tokens_of_transformers(published: Path, backend: str) -> None:
    """Which dequantises it itself where it has no kernels for MXFP4."""
    requests = requests_of([""] * (4 if backend == "torch" else 2), seed=3, tokens=3)
    config = EngineConfig(model=published, pool_mb=8, dtype="float32", backend=backend, cuda_graphs=False)
    engine = Engine(config, LoadedAdapters())
    assert bool(engine.loaded.model.weights.layers[0].experts_in_mxfp4()) == (backend == "triton")
    tokens, _ = run_all(engine, requests)
    reference = base_of(published)
    assert reference.model.layers[0].mlp.experts.down_proj.dtype is torch.float32
    for request in requests:
        check(reference, request, tokens[request.request_id])


def damage(folder: Path, change: Callable[[Tensors], Any]) -> str:
    """Change the tensors of a checkpoint; returns the refusal."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(UnsupportedModel) as refusal:
        load_weights(folder, ModelConfig.load(folder), CPU, torch.bfloat16, Parallel())
    return str(refusal.value)


BLOCKS, SCALES = (f"model.layers.1.mlp.experts.down_proj_{part}" for part in ("blocks", "scales"))
DAMAGES: dict[str, Callable[[Tensors], Any]] = {
    f"lacks {SCALES}": lambda tensors: tensors.pop(SCALES),
    f"{BLOCKS} is [6, 64, 1, 16], but": lambda tensors: tensors.update({BLOCKS: tensors[BLOCKS][:, :, :1]}),
    f"{BLOCKS} is in MXFP4, but it is stored as BF16": lambda t: t.update({BLOCKS: t[BLOCKS].bfloat16()}),
    "holds NaN or infinite values": lambda tensors: tensors[SCALES].fill_(255),
    "self_attn.sinks is [3], but": lambda t: t.update({"model.layers.0.self_attn.sinks": torch.zeros(3)}),
    "lacks model.layers.2.mlp.gate.bias": lambda tensors: tensors.pop("model.layers.2.mlp.router.bias"),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_checkpoint_is_refused(published: Path, words: str, tmp_path: Path) -> None:
    folder = shutil.copytree(published, tmp_path / "model")
    assert words in damage(folder, DAMAGES[words])


def test_configurations_that_make_no_model_are_refused(published: Path) -> None:
    raw = json.loads((published / "config.json").read_text())
    for change, message in (
        ({"swiglu_limit": 0.0}, "swiglu_limit must be above 0"),
        ({"swiglu_alpha": "x"}, "swiglu_alpha must be a number"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"the weights are quantised \(gptq\)"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            ModelConfig.from_dict({**raw, **change})
    odd = ModelConfig.from_dict({**raw, "intermediate_size": 40})
    with pytest.raises(UnsupportedModel, match="experts of 40, but MXFP4 needs multiples of 32"):
        load_weights(published, odd, CPU, torch.bfloat16, Parallel())


def test_experts_are_rounded_to_fp8_at_loading(family: Family) -> None:
    config = ModelConfig.load(family.folder)
    plain, rounded = (
        load_weights(family.folder, config, CPU, torch.float32, Parallel(), each) for each in (False, True)
    )
    assert rounded.layers[0].experts_in_fp8() == 12
    rounded.dequantise()
    for layer, whole in zip(rounded.layers, plain.layers, strict=True):
        ours, theirs = layer.experts, whole.experts
        assert ours is not None and theirs is not None
        for expert in range(6):
            for part, of in ((ours.gate_up, theirs.gate_up), (ours.down, theirs.down)):
                assert torch.equal(part[expert], quantise(of[expert]).dequantised(torch.float32))  # type: ignore[index]
        assert torch.equal(ours.gate_up_bias, theirs.gate_up_bias)  # type: ignore[arg-type]
        assert torch.equal(ours.down_bias, theirs.down_bias)  # type: ignore[arg-type]


def test_settings_that_the_model_does_not_have_are_refused_at_start(family: Family) -> None:
    with pytest.raises(ValueError, match=r"--backend.*flashinfer"):
        build_engine(family, backend="flashinfer")
