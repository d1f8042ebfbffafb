"""Whatever the bytes, inspection reports; whatever PEFT writes, it is accepted with PEFT's own ranks and scales."""

from __future__ import annotations

import json
import struct
import warnings

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from lorikeet_testing.fuzzing import LONG, examples
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from lora_engine.peft_format import TARGETS, BaseGeometry, SafetensorsFile, inspect_adapter, resolve_patterns
from lora_engine.peft_format.geometry import module_key

pytestmark = [pytest.mark.long] if LONG else []
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=FIXTURES)
@given(weights=st.binary(max_size=400), config=st.binary(max_size=200))
def test_random_bytes_are_reported(tmp_path, geometry, weights, config):
    (tmp_path / "adapter_model.safetensors").write_bytes(weights)
    (tmp_path / "adapter_config.json").write_bytes(config)
    report = inspect_adapter(tmp_path, geometry)
    assert not report.ok
    json.dumps(report.to_json())


@settings(max_examples=examples(200), deadline=None, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_mutated_weights_are_reported(tmp_path, geometry, tensors, save, data):
    path = save(tmp_path, tensors()) / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    header_end = 8 + struct.unpack("<Q", raw[:8])[0]
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, header_end - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    json.dumps(inspect_adapter(tmp_path, geometry).to_json())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["r", "lora_alpha", "target_modules", "exclude_modules", "rank_pattern", "alpha_pattern", "use_rslora", "bias",
          "layers_to_transform", "layers_pattern", "peft_type", "task_type", "use_dora", "lora_bias",
          "init_lora_weights", "base_model_name_or_path", "modules_to_save", "anything"]  # fmt: skip


@settings(max_examples=examples(400), deadline=None, suppress_health_check=FIXTURES)
@given(change=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1))
def test_any_json_in_the_config_is_reported(tmp_path, geometry, tensors, save, change):
    json.dumps(inspect_adapter(save(tmp_path, tensors(), **change), geometry).to_json())


@settings(max_examples=examples(200), deadline=None, suppress_health_check=FIXTURES)
@given(header=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_any_json_in_the_header_is_reported(tmp_path, geometry, tensors, save, raw_safetensors, header):
    save(tmp_path, tensors())
    (tmp_path / "adapter_model.safetensors").write_bytes(raw_safetensors(tensors(), header))
    json.dumps(inspect_adapter(tmp_path, geometry).to_json())


# --- what PEFT writes ---------------------------------------------------------------------------------------------


LAYERS = 3
SHAPE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 64}  # fmt: skip
PEFT_GEOMETRY = BaseGeometry("tiny", "sha256:" + "0" * 64, LAYERS, 16, 24, 4, 2, 4, 32)
PATTERN_KEYS = [*TARGETS, "layers.1.self_attn.q_proj", r"model\.layers\.2\.mlp\.up_proj", r"layers\.(0|2)\..*",
                "^model.layers.0.self_attn.v_proj", r"self_attn\.\w+"]  # fmt: skip
ranks = st.integers(1, 12)
# PEFT sorts the keys when it saves, and the first match wins: only a sorted map means the same before and after.
patterns = st.dictionaries(st.sampled_from(PATTERN_KEYS), ranks, max_size=3).map(lambda d: dict(sorted(d.items())))


@st.composite
def lora_configs(draw):
    targets = draw(st.lists(st.sampled_from(TARGETS), min_size=1, unique=True))
    as_regex = draw(st.booleans())
    names = draw(st.sampled_from([targets, [f"self_attn.{t}" if t[0] in "qkvo" else t for t in targets]]))
    some_layers = st.integers(0, LAYERS - 1) | st.lists(st.integers(0, LAYERS - 1), min_size=1)
    layers = None if as_regex else draw(st.none() | some_layers)
    everything = draw(st.integers(0, 9)) == 0
    return LoraConfig(
        r=draw(ranks),
        lora_alpha=draw(st.integers(1, 64)),
        target_modules="all-linear" if everything and layers is None else (
            rf".*\.({'|'.join(targets)})" if as_regex else names),
        exclude_modules=draw(st.none() | st.sampled_from([r".*layers\.1\..*up_proj", ["o_proj", "lm_head"]])),
        rank_pattern=draw(patterns),
        alpha_pattern=draw(patterns),
        use_rslora=draw(st.booleans()),
        layers_to_transform=layers,
        layers_pattern=draw(st.none() | st.sampled_from(["layers", ["h", "layers"]])) if layers is not None else None,
        init_lora_weights=draw(st.sampled_from([False, "gaussian"])),
        task_type=draw(st.sampled_from([None, "CAUSAL_LM"])),
    )  # fmt: skip


def peft_model(config: LoraConfig, family: str):
    kinds = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
    config_class, model_class = kinds[family]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model_class(config_class(**SHAPE)), config)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=FIXTURES)
@given(
    config=lora_configs(),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    family=st.sampled_from(["llama", "qwen2"]),
)
def test_what_peft_writes_is_read_as_peft_means_it(tmp_path_factory, config, dtype, family):
    try:
        model = peft_model(config, family)
    except ValueError as error:  # the drawn patterns left nothing to train
        assume("target" not in str(error).lower() and "exclude" not in str(error).lower())
        raise
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))
    folder = tmp_path_factory.mktemp("adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    report = inspect_adapter(folder, PEFT_GEOMETRY)
    assert report.ok, report.problems
    assert report.manifest.dtype == dtype
    layers = {name: module for name, module in model.base_model.model.named_modules() if hasattr(module, "lora_A")}
    assert {module_key(m.layer, m.target) for m in report.manifest.modules} == set(layers)
    file = SafetensorsFile.open(folder / "adapter_model.safetensors")
    for found in report.manifest.modules:
        layer = layers[module_key(found.layer, found.target)]
        assert found.rank == layer.r["default"]
        assert found.alpha == layer.lora_alpha["default"]
        assert found.scale == pytest.approx(layer.scaling["default"], rel=1e-12)
        raw = torch.from_numpy(file.tensor(found.a_name).copy())
        weight = raw.view(torch.bfloat16) if file.entries[found.a_name].dtype == "BF16" else raw
        assert torch.equal(weight, layer.lora_A["default"].weight.data)
    if resolve_patterns(folder, report.manifest, PEFT_GEOMETRY):
        assert_same_without_patterns(folder, report.manifest, layers, family)


def assert_same_without_patterns(folder, manifest, layers, family):
    """The config that is stored means the same, to us and to PEFT, and holds no expression any more."""
    again = inspect_adapter(folder, PEFT_GEOMETRY).manifest
    assert again.modules == manifest.modules
    assert not resolve_patterns(folder, again, PEFT_GEOMETRY)
    model = peft_model(LoraConfig.from_pretrained(folder), family)
    found = {name: module for name, module in model.base_model.model.named_modules() if hasattr(module, "lora_A")}
    assert {name: (m.r, m.lora_alpha, m.scaling) for name, m in found.items()} == {
        name: (m.r, m.lora_alpha, m.scaling) for name, m in layers.items()
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modules_to_save": ["norm"]}, "modules_to_save"),
        ({"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}, "use_dora on embed_tokens"),
        ({"target_modules": ["q_proj", "lm_head"], "lora_bias": True}, "lora_bias on lm_head"),
        ({"init_lora_weights": "pissa"}, "pissa"),
    ],
)
def test_what_peft_writes_and_we_do_not_serve(tmp_path, change, words):
    config = LoraConfig(**({"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"} | change))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft_model(config, "llama").save_pretrained(tmp_path)
    report = inspect_adapter(tmp_path, PEFT_GEOMETRY)
    assert {problem.code for problem in report.problems} <= {"unsupported_feature", "unexpected_tensor"}
    assert any(words in problem.message for problem in report.problems), report.problems
