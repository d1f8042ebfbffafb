"""Experts in FP8: checkpoints as published, quantisation at loading, kernels, ranks, adapters, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.expert_adapters import random_factors, save_experts
from lorikeet_testing.fp8_checkpoints import FORMS, in_fp8, plain_values, rounded_to_fp8
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.shape_runs import captured_logits
from lorikeet_testing.tiny_models import VOCAB, Adapter, pack_for, save_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.model import experts_torch
from lora_engine.model.config import ModelConfig
from lora_engine.model.expert_tensors import uneven_blocks
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import Parallel
from lora_engine.model.weight_loading import load_weights
from lora_engine.model.weights import ExpertWeights, of_expert
from lora_engine.request import GenerationRequest, SamplingParams
from lora_kernels.fp8_tensors import BLOCK, Fp8Stack, quantise

pytestmark = pytest.mark.usefixtures("few_programs")
WEIGHTS = "model.safetensors"
# Blocks of scales that no dimension of the experts is a multiple of, beside whole ones.
SIZES: dict[str, Any] = {"hidden_size": 192, "moe_intermediate_size": 160, "num_hidden_layers": 2}
QWEN, MIXTRAL, NEXT = "qwen3-some-layers-with-experts", "mixtral-experts", "qwen3-next-experts"
NEXT_SIZES = {**SIZES, "layer_types": ["linear_attention", "full_attention"], "shared_expert_intermediate_size": 130}
GLM = "glm4-experts"
MODELS = {GLM: SIZES, QWEN: SIZES, NEXT: NEXT_SIZES, MIXTRAL: {"hidden_size": 192, "intermediate_size": 160}}
CPU = torch.device("cpu")


def rewrite(source: Path, folder: Path, form: str) -> None:
    """Write a checkpoint with experts and projections in FP8, and beside it (``plain``) what its weights mean."""
    shape, scale_name, config = FORMS[form]
    raw = json.loads((source / "config.json").read_text())
    tensors, meant = {}, {}
    ignored = ["lm_head", "re:.*gate$", "re:.*shared_expert_gate", "re:.*in_proj_ba"]
    for name, weight in load_file(source / WEIGHTS).items():
        tensors[name] = meant[name] = weight
        module = name.removesuffix(".weight")
        if "layers" not in name or weight.dim() != 2 or module.endswith(("gate", "in_proj_ba")):
            continue
        data, scale = in_fp8(weight, shape)
        tensors[name], tensors[f"{module}.{scale_name}"] = data, scale
        meant[name] = plain_values(data, scale, shape)
        if "static" in form:
            tensors[f"{module}.{'activation_scale' if 'transformers' in form else 'input_scale'}"] = torch.tensor(0.02)
    # Of a layer that predicts several tokens, as published checkpoints of GLM-4.5 have one.
    tensors[f"model.layers.{raw['num_hidden_layers']}.eh_proj.{scale_name}"] = torch.ones(1)
    key = "ignore" if "compressed" in form else "ignored_layers"
    config = {setting: value for setting, value in config.items() if setting != "modules_to_not_convert"}
    for path, of, settings in (
        (folder, tensors, {"quantization_config": {**config, key: ignored}}),
        (folder / "plain", meant, {}),
    ):
        shutil.copytree(source, path, dirs_exist_ok=True)
        (path / "config.json").write_text(json.dumps({**raw, **settings}))
        save_file(of, path / WEIGHTS, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("sources")

    def source(name: str) -> Path:
        if not (root / name).exists():
            save_model(name, root / name, **MODELS[name])
        return root / name

    return source


def engine_of(folder: Path, adapters: Sequence[Adapter] = (), **settings: Any) -> Engine:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=folder, pool_mb=16, **settings), source)
    for adapter in adapters:
        source.add(pack_for(engine, adapter))
    return engine


def requests_of(digests: Sequence[str], tokens: int, **sampling: Any) -> list[GenerationRequest]:
    params = SamplingParams(max_tokens=tokens, **sampling)
    prompts = [[(7 * i * i + 3 * n) % VOCAB for i in range(3 + 4 * n)] for n in range(len(digests))]
    return [
        GenerationRequest(str(n), prompt, params, digest)
        for n, (prompt, digest) in enumerate(zip(prompts, digests, strict=True))
    ]


def run(engine: Engine, requests: Sequence[GenerationRequest]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        assert all(end.error is None for end in output.finished)
    return tokens


def logits_of(engine: Engine, digests: Sequence[str]) -> torch.Tensor:
    with captured_logits() as seen:
        run(engine, requests_of(digests, 1, logprobs=True))
    return torch.stack(seen)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(((got - want).norm(dim=-1) / want.norm(dim=-1)).max())


BLOCKS, CHANNELS = "fp8-block", "compressed-tensors-channel"
SERVED = [
    (GLM, BLOCKS),
    (QWEN, BLOCKS), (QWEN, CHANNELS), (NEXT, BLOCKS), (MIXTRAL, "fp8-tensor-static"),
    (MIXTRAL, "compressed-tensors-tensor-static"), (QWEN, "fp8-tensor-static-transformers"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "form"), SERVED)
def test_checkpoints_have_the_tokens_of_their_plain_values(
    sources: Callable[[str], Path], name: str, form: str, tmp_path: Path
) -> None:
    """On CPUs, weights are dequantised in float32 and activations are not rounded."""
    rewrite(sources(name), tmp_path / "fp8", form)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "fp8" / "plain", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    requests = requests_of(["", "", ""], 4)
    tokens = run(engine_of(tmp_path / "fp8"), requests)
    for request in requests:
        answer = tokens[request.request_id]
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([request.prompt_token_ids + answer[:-1]])).logits[0]
        assert answer == logits.argmax(dim=-1)[-len(answer) :].tolist()


@pytest.mark.parametrize("in_blocks", [True, False])
def test_stacked_experts_in_fp8_load_as_single_ones(
    sources: Callable[[str], Path], in_blocks: bool, tmp_path: Path
) -> None:
    """As `transformers` keeps them; gate and up share the rows of one tensor."""
    save_model(QWEN, tmp_path / "source", **{**SIZES, "moe_intermediate_size": 256})
    rewrite(tmp_path / "source", tmp_path / "fp8", BLOCKS if in_blocks else "fp8-tensor")
    tensors = load_file(tmp_path / "fp8" / WEIGHTS)
    stacked = dict(tensors)
    prefix, count = "model.layers.0.mlp.experts", 8
    for suffix, to in ((".weight", ""), (".weight_scale_inv", "_scale_inv")):
        each = {
            m: [stacked.pop(f"{prefix}.{n}.{m}{suffix}") for n in range(count)]
            for m in ("gate_proj", "up_proj", "down_proj")
        }
        both = [
            torch.cat([g.view(torch.uint8), u.view(torch.uint8)]).view(g.dtype)
            for g, u in zip(each["gate_proj"], each["up_proj"], strict=True)
        ]
        for name, parts in (("gate_up_proj", both), ("down_proj", each["down_proj"])):
            stacked[f"{prefix}.{name}{to}"] = torch.stack([p.view(torch.uint8) for p in parts]).view(parts[0].dtype)
    shutil.copytree(tmp_path / "fp8", tmp_path / "stacked")
    save_file(stacked, tmp_path / "stacked" / WEIGHTS, metadata={"format": "pt"})
    if not in_blocks:
        assert "in a form that is not supported; use a checkpoint with a module" in refusal(tmp_path / "stacked")
        return
    one, other = (experts_of(tmp_path / name) for name in ("fp8", "stacked"))
    for a, b in ((one.gate_up, other.gate_up), (one.down, other.down)):
        assert isinstance(a, Fp8Stack) and isinstance(b, Fp8Stack)
        assert torch.equal(a.data.view(torch.uint8), b.data.view(torch.uint8)) and torch.equal(a.scale, b.scale)


def experts_of(folder: Path, parallel: Parallel | None = None, quantised: bool = False) -> ExpertWeights:
    config = ModelConfig.load(folder)
    weights = load_weights(folder, config, CPU, torch.float32, parallel or Parallel(), quantised)
    experts = weights.layers[0].experts
    assert experts is not None
    return experts


def test_quantisation_at_loading_rounds_each_row_of_each_expert(sources: Callable[[str], Path]) -> None:
    plain, rounded = experts_of(sources(QWEN)), experts_of(sources(QWEN), quantised=True)
    for stack, of in ((plain.gate_up, rounded.gate_up), (plain.down, rounded.down)):
        assert isinstance(of, Fp8Stack) and not of.in_blocks
        for expert in range(len(of)):
            want = quantise(of_expert(stack, expert, torch.float32)).dequantised(torch.float32)
            assert torch.equal(of.dequantised(expert, torch.float32), want)
            assert 0.01 < error(want, stack[expert]) < 0.06  # type: ignore[index]
    assert isinstance(rounded.router, torch.Tensor) and torch.equal(rounded.router, plain.router)


@pytest.mark.parametrize("form", ["plain", BLOCKS, "fp8-tensor-static"])
def test_kernels_and_adapters_on_experts(
    sources: Callable[[str], Path], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same inputs of experts rounded, kernels differ from the reference only by order."""
    source, folder = sources(QWEN), sources(QWEN)
    if form != "plain":
        folder = tmp_path / "fp8"
        rewrite(source, folder, form)
    base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    adapters = [save_experts(tmp_path / f, random_factors(base, n, f), f) for n, f in enumerate(("parameters",))]
    settings = {"quantization": "fp8"} if form == "plain" else {}
    kernels = engine_of(folder, adapters, backend="triton", dtype="float32", cuda_graphs=False, **settings)
    assert kernels.describe()["fp8_matrices"] > 16  # of the experts, and others
    for layer in kernels.loaded.model.weights.layers:  # the other matrices' activations are rounded
        for name in layer.in_fp8():
            setattr(layer, name, getattr(layer, name).dequantised(torch.float32))
    reference = engine_of(folder, adapters, **settings)
    digests = ["", *(adapter.digest for adapter in adapters)]
    got, unrounded = logits_of(kernels, digests), logits_of(reference, digests)
    if form != "plain":
        assert error(unrounded, logits_of(engine_of(folder / "plain", adapters), digests)) < 1e-5
    product, group = experts_torch._product, BLOCK if form == BLOCKS else 10_000
    monkeypatch.setattr(experts_torch, "_product", lambda x, *rest: product(rounded_to_fp8(x, group), *rest))
    # A value between two of FP8 may be rounded up by one and down by the other.
    assert error(got, logits_of(engine_of(folder, adapters, **settings), digests)) < 4e-3 < error(got, unrounded) < 0.06


@pytest.mark.parametrize("form", [BLOCKS, CHANNELS])
def test_ranks_share_what_one_has(form: str, tmp_path: Path) -> None:
    save_model(QWEN, tmp_path / "source", **{**SIZES, "moe_intermediate_size": 256})
    rewrite(tmp_path / "source", tmp_path / "fp8", form)
    whole, *parts = (experts_of(tmp_path / "fp8", Parallel(*at)) for at in ((0, 1), (0, 2), (1, 2)))
    for expert in (0, 7):
        gate, up = of_expert(whole.gate_up, expert, torch.float32).chunk(2)
        halves = [of_expert(part.gate_up, expert, torch.float32).chunk(2) for part in parts]
        assert torch.equal(gate, torch.cat([half[0] for half in halves]))
        assert torch.equal(up, torch.cat([half[1] for half in halves]))
        downs = torch.cat([of_expert(part.down, expert, torch.float32) for part in parts], dim=1)
        assert torch.equal(of_expert(whole.down, expert, torch.float32), downs)


def test_ranks_that_would_cut_blocks_are_refused(tmp_path: Path) -> None:
    save_model(QWEN, tmp_path / "source", **{**SIZES, "moe_intermediate_size": 768, "num_hidden_layers": 1,
                                             "mlp_only_layers": [], "num_experts": 3})  # fmt: skip
    rewrite(tmp_path / "source", tmp_path / "fp8", BLOCKS)
    config = ModelConfig.load(tmp_path / "fp8")
    text = uneven_blocks(config, 4)
    assert "768 inner features with a scale for every 128" in text and "use 1 or 2 or 3, or" in text
    assert not uneven_blocks(config, 2) and not uneven_blocks(ModelConfig.load(tmp_path / "source"), 4)
    with pytest.raises(UnsupportedModel, match="cannot be split over 4 GPUs"):
        experts_of(tmp_path / "fp8", Parallel(1, 4))


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises((UnsupportedModel, ValueError)) as caught:
        load_model(EngineConfig(model=folder, pool_mb=2, **settings))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


UP = "model.layers.0.mlp.experts.3.up_proj"
DAMAGES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "no scale": (lambda t: t.pop(f"{UP}.weight_scale_inv"), f"lacks {UP}.weight_scale"),
    "another's scale": (lambda t: t.update({f"{UP}.weight_scale_inv": torch.ones(3, 2)}), "is [3, 2] of F32"),
    "not in FP8": (lambda t: t.update({f"{UP}.weight": torch.ones(160, 192)}), "is in FP8, but it is stored as F32"),
    "NaN": (lambda t: t[f"{UP}.weight"].view(torch.uint8)[3].fill_(0x7F), "holds NaN"),
    "an infinite scale": (lambda t: t[f"{UP}.weight_scale_inv"].fill_(float("inf")), "holds NaN or infinite"),
    "a router's scale": (
        lambda t: t.update({"model.layers.0.mlp.gate.weight_scale_inv": torch.ones(1, 2)}), "the checkpoint holds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints(sources: Callable[[str], Path], damage: str, tmp_path: Path) -> None:
    folder, (change, expected) = tmp_path / "fp8", DAMAGES[damage]
    rewrite(sources(QWEN), folder, BLOCKS)
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    assert expected in refusal(folder)


def test_merging_is_refused(sources: Callable[[str], Path]) -> None:
    assert "choose --mode unmerged" in refusal(sources(QWEN), quantization="fp8", mode="merged")
