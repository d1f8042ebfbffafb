"""Weights in FP8: every form of checkpoint against transformers and PEFT, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.fp8_checkpoints import FORMS, IGNORED, in_fp8, plain_values
from lorikeet_testing.quantising_ops import QuantisedForAdaptersToo, QuantisingOps
from lorikeet_testing.shape_runs import captured_logits
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, pack_for, save_adapter, save_model
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import Parallel
from lora_engine.model.quantization import read_quantization
from lora_engine.model.weight_loading import load_weights
from lora_engine.model.weights import Matrix
from lora_engine.request import GenerationRequest, SamplingParams
from lora_kernels.fp8_tensors import FP8, Fp8Matrix

WEIGHTS = "model.safetensors"
NEW_TOKENS = 6
# q and k are whole blocks, so that blocks of q, k and v can be one matrix.
SIZES: dict[str, Any] = {"hidden_size": 192, "intermediate_size": 384, "head_dim": 64, "num_hidden_layers": 2}
Q = "model.layers.0.self_attn.q_proj"


def rewrite(source: Path, folder: Path, form: str) -> dict[str, torch.Tensor]:
    """Write a quantised copy of a checkpoint; returns what its weights mean."""
    shutil.copytree(source, folder)
    shape, scale_name, config = FORMS[form]
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, "quantization_config": config}))
    tensors, meant = {}, {}
    for name, weight in load_file(source / WEIGHTS).items():
        module = name.removesuffix(".weight")
        tensors[name] = meant[name] = weight
        if "layers" not in name or weight.dim() != 2 or module == IGNORED:
            continue
        data, scale = in_fp8(weight, shape)
        tensors[name], tensors[f"{module}.{scale_name}"] = data, scale
        if "static" in form:
            called = "activation_scale" if form.endswith("transformers") else "input_scale"
            tensors[f"{module}.{called}"] = torch.tensor(0.02)
        meant[name] = plain_values(data, scale, shape)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return meant


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Adapter]]:
    root = tmp_path_factory.mktemp("fp8")
    model = save_model("llama2-mha", root / "model", **{**SIZES, "num_key_value_heads": 2})
    names = ("attention-r8", "mlp-r5")
    return root / "model", [adapter_at(name, save_adapter(name, model, root / name)) for name in names]


def engine_of(folder: Path, adapters: Sequence[Adapter], **settings: Any) -> Engine:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=folder, pool_mb=16, **settings), source)
    for adapter in adapters:
        source.add(pack_for(engine, adapter))
    return engine


def prompt_of(length: int) -> list[int]:
    return [(7 * index * index + 3) % VOCAB for index in range(length)]


def requests_of(adapters: Sequence[Adapter], tokens: int = NEW_TOKENS) -> list[GenerationRequest]:
    return [
        GenerationRequest(name, prompt_of(9 + 8 * index), SamplingParams(max_tokens=tokens), digest)
        for index, (name, digest) in enumerate([("", ""), *((a.name, a.digest) for a in adapters)])
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


@pytest.mark.parametrize("form", FORMS)
def test_checkpoints_agree_token_for_token(plain: tuple[Path, list[Adapter]], tmp_path: Path, form: str) -> None:
    source, adapters = plain
    meant = rewrite(source, tmp_path / "model", form)
    model = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager").float().eval()
    model.load_state_dict(meant)
    reference: Any = PeftModel.from_pretrained(model, adapters[0].folder, adapter_name=adapters[0].name)
    reference.load_adapter(adapters[1].folder, adapter_name=adapters[1].name)

    def greedy(request: GenerationRequest) -> list[int]:
        if request.request_id:
            reference.set_adapter(request.request_id)
        ids = torch.tensor([request.prompt_token_ids])
        wanted = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        out = reference.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **wanted)
        return list(out[0, ids.shape[1] :].tolist())

    requests = requests_of(adapters)
    tokens = run(engine_of(tmp_path / "model", adapters), requests)
    with reference.disable_adapter():
        assert tokens[""] == greedy(requests[0])
    for request in requests[1:]:
        assert tokens[request.request_id] == greedy(request), request.request_id


def logits_of(engine: Engine, requests: Sequence[GenerationRequest]) -> torch.Tensor:
    with captured_logits() as seen:
        tokens = run(engine, requests)
    assert len(seen) == len(tokens)
    return torch.stack(seen)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(((got - want).norm(dim=-1) / want.norm(dim=-1)).max())


def one_token(adapters: Sequence[Adapter]) -> list[GenerationRequest]:
    """A prompt each; with log-probabilities, since then every step goes through ``sample``."""
    params = SamplingParams(max_tokens=1, logprobs=True)
    return [
        dataclasses.replace(r, sampling=params, prompt_token_ids=prompt_of(3 + index))
        for index, r in enumerate(requests_of(adapters))
    ]


@pytest.mark.parametrize("form", ["plain", "fp8-tensor-static", "fp8-block"])
def test_kernels_quantise_what_products_read_and_not_what_adapters_do(
    plain: tuple[Path, list[Adapter]], tmp_path: Path, form: str
) -> None:
    folder, adapters = plain
    if form != "plain":
        rewrite(folder, tmp_path / "model", form)
        folder = tmp_path / "model"
    settings = {"quantization": "fp8"}
    kernels = engine_of(folder, adapters, backend="triton", dtype="float32", cuda_graphs=False, **settings)
    assert kernels.describe()["fp8_matrices"] == (8 if form == "plain" else 7)
    got = logits_of(kernels, one_token(adapters))

    def reference(ops: type[QuantisingOps]) -> torch.Tensor:
        engine = engine_of(folder, adapters)
        model = engine.loaded.model
        model.weights.layers, model.ops = kernels.loaded.model.weights.layers, ops(model.shape)
        return logits_of(engine, one_token(adapters))

    want = reference(QuantisingOps)
    assert error(got, want) < 0.03  # numbers between two of E4M3 fall to one or the other
    assert error(reference(QuantisedForAdaptersToo), want) > 0.06


def test_what_products_cannot_take_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_model("llama2-mha", tmp_path, **{**SIZES, "intermediate_size": 150})
    loaded = load_model(EngineConfig(model=tmp_path, pool_mb=4, quantization="fp8"))
    assert "4 matrices stay in float32" in caplog.text and "layers.0.mlp" in caplog.text
    layer = loaded.model.weights.layers[0]
    plain = load_weights(tmp_path, loaded.model.config, torch.device("cpu"), torch.float32, Parallel()).layers[0]
    assert isinstance(layer.mixer_in, torch.Tensor) and isinstance(
        plain.mixer_in, torch.Tensor
    )  # of a CPU: dequantised
    assert isinstance(plain.down, torch.Tensor) and torch.equal(layer.down, plain.down)
    assert 0.01 < error(layer.mixer_in, plain.mixer_in) < 0.05


@pytest.mark.parametrize("form", ["fp8-block", "compressed-tensors-channel", "fp8-tensor"])
def test_ranks_share_what_one_has(plain: tuple[Path, list[Adapter]], tmp_path: Path, form: str) -> None:
    rewrite(plain[0], tmp_path / "model", form)
    config, cpu = ModelConfig.load(tmp_path / "model"), torch.device("cpu")
    whole, *parts = (
        load_weights(tmp_path / "model", config, cpu, torch.float32, Parallel(rank, world)).layers[0]
        for rank, world in ((0, 1), (0, 2), (1, 2))
    )
    assert torch.equal(as_plain(whole.down), torch.cat([as_plain(part.down) for part in parts], dim=1))
    gates = [as_plain(part.gate_up).chunk(2) for part in parts]
    both = torch.cat([gates[0][0], gates[1][0], gates[0][1], gates[1][1]])
    assert torch.equal(as_plain(whole.gate_up), both)


def as_plain(matrix: Matrix) -> torch.Tensor:
    return matrix.dequantised(torch.float32) if isinstance(matrix, Fp8Matrix) else matrix


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises((UnsupportedModel, ValueError)) as caught:
        load_model(EngineConfig(model=folder, pool_mb=2, **settings))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at a dotted path replaced."""
    config = json.loads(json.dumps(config))
    *parents, last = path.split(".")
    place = config
    for name in parents:
        place = place[name]
    place[last] = value
    return config


REFUSED = [
    ("fp8-tensor", "activation_scheme", "sometimes", "activation_scheme is 'sometimes', but only 'dynamic'"),
    ("fp8-block", "weight_block_size", [64, 64], "weight_block_size is [64, 64], but only [128, 128]"),
    ("fp8-block", "scale_fmt", "ue8m0", "scale_fmt is 'ue8m0'"),
    ("fp8-tensor", "fmt", "e5m2", "fmt is 'e5m2'"),
    ("fp8-tensor", "rotation", "hadamard", "rotation is not a known setting"),
    ("fp8-tensor", "ignored_layers", [3], "3 does not name a module"),
    ("fp8-tensor", "ignored_layers", ["re:("], "quantization_config (fp8)"),
    ("fp8-tensor", "ignored_layers", "lm_head", "'lm_head' is not a list of modules"),
    ("compressed-tensors-channel", "config_groups", {"group_0": "all"}, "config_groups is {'group_0': 'all'}"),
    ("compressed-tensors-channel", "format", "int-quantized", "format is 'int-quantized'"),
    ("compressed-tensors-channel", "kv_cache_scheme", {"num_bits": 8}, "kv_cache_scheme is"),
    ("compressed-tensors-channel", "config_groups", {}, "config_groups has 0 groups"),
    ("compressed-tensors-channel", "config_groups", [1], "quantization_config (compressed-tensors)"),
    ("compressed-tensors-channel", "config_groups.group_0.weights.num_bits", 4, "num_bits is 4"),
    ("compressed-tensors-channel", "config_groups.group_0.weights.type", "int", "type is 'int'"),
    ("compressed-tensors-channel", "config_groups.group_0.input_activations", None, "only quantisation of both"),
    ("compressed-tensors-channel", "config_groups.group_0.targets", ["re:.*mlp.*"], "targets is"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "path", "value", "expected"), REFUSED)
def test_configurations_that_are_refused(form: str, path: str, value: Any, expected: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        read_quantization({"quantization_config": changed(FORMS[form][2], path, value)})
    text = str(caught.value)
    assert expected in text and "; use a checkpoint" in text and text.endswith(".") and "\n" not in text


def test_no_configuration_ends_in_a_traceback() -> None:
    rnd = random.Random(1)
    values: list[Any] = [None, True, 0, 8, 1.5, "", "fp8", [], ["re:["], [[1]], {}, {"a": 1}, float("nan")]
    refused = 0
    for _ in range(3000):
        config = json.loads(json.dumps(rnd.choice(list(FORMS.values()))[2]))
        for _ in range(rnd.randint(1, 3)):
            place = config
            while True:
                key = rnd.choice([*place, "unknown"])
                if not isinstance(place.get(key), dict) or rnd.random() < 0.2:
                    break
                place = place[key] or place
            place[key] = rnd.choice(values)
        try:
            read_quantization({"quantization_config": config})
        except UnsupportedModel as error:
            refused += 1
            assert "\n" not in str(error) and str(error).endswith(".")
    assert refused > 1500


@pytest.mark.parametrize("form", FORMS)
def test_modules_that_are_ignored(form: str) -> None:
    quantization = read_quantization({"quantization_config": FORMS[form][2]})
    assert quantization is not None
    assert not quantization.covers(IGNORED)
    assert quantization.covers("model.layers.0.mlp.down_proj") and quantization.covers("model.layers.1.mlp.up_proj")


DAMAGES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "no scale": (lambda t: t.pop(f"{Q}.weight_scale"), f"lacks {Q}.weight_scale"),
    "another's scale": (lambda t: t.update({f"{Q}.weight_scale": torch.ones(3, 1)}), "is [3, 1] of F32"),
    "not in FP8": (lambda t: t.update({f"{Q}.weight": torch.ones(256, 192)}), "is in FP8, but it is stored as F32"),
    "an ignored module in FP8": (
        lambda t: t.update({f"{IGNORED}.weight": t[f"{IGNORED}.weight"].to(FP8)}), "is stored as F8_E4M3",
    ),
    "a scale of an ignored module": (lambda t: t.update({f"{IGNORED}.weight_scale": torch.ones(1)}), "holds"),
    "NaN": (lambda t: t[f"{Q}.weight"].view(torch.uint8)[3].fill_(0x7F), "holds NaN"),
    "an infinite scale": (lambda t: t[f"{Q}.weight_scale"].fill_(float("inf")), "holds NaN or infinite"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints(plain: tuple[Path, list[Adapter]], tmp_path: Path, damage: str) -> None:
    folder, (change, expected) = tmp_path / "model", DAMAGES[damage]
    rewrite(plain[0], folder, "compressed-tensors-channel")
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    assert expected in refusal(folder)


@pytest.mark.parametrize("mode", ["merged", "auto"])
def test_modes_that_merge_are_refused_before_anything_is_loaded(
    plain: tuple[Path, list[Adapter]], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("lora_engine.model.loading.load_weights")
    assert "choose --mode unmerged" in refusal(plain[0], quantization="fp8", mode=mode)


def test_an_unknown_setting(plain: tuple[Path, list[Adapter]]) -> None:
    assert "choose one of auto, fp8" in refusal(plain[0], quantization="int4")
