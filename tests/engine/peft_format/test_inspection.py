"""What ``inspect_adapter`` accepts, refuses, and how it says so."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace

import numpy as np
import pytest
from lorikeet_testing import peft_files

from lora_engine.peft_format import AdapterLimits, FormatError, SafetensorsFile, adapter_digest, inspect_adapter

Q0_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
Q0_B = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
V1_B = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"


def codes(report):
    return {problem.code for problem in report.problems}


def test_a_plain_adapter_is_accepted(tmp_path, geometry, tensors, save):
    report = inspect_adapter(save(tmp_path, tensors()), geometry)
    assert report.ok, report.problems
    assert [check["name"] for check in report.checks] == [
        "config",
        "features",
        "safetensors",
        "tensors",
        "shapes",
        "modules",
        "finite",
    ]
    manifest = report.manifest
    assert (manifest.rank, manifest.targets, manifest.dtype) == (4, ("q_proj", "v_proj"), "float32")
    assert manifest.num_tensors == 8
    assert manifest.weight_bytes == 4 * manifest.num_parameters
    assert [(m.layer, m.target, m.scale) for m in manifest.modules] == [
        (0, "q_proj", 2.0),
        (0, "v_proj", 2.0),
        (1, "q_proj", 2.0),
        (1, "v_proj", 2.0),
    ]
    json.dumps(report.to_json())


def test_another_bases_adapter_is_named_as_such(tmp_path, geometry, tensors, save):
    wrong = tensors()
    wrong[Q0_A] = np.zeros((4, 4096), np.float32)
    report = inspect_adapter(save(tmp_path, wrong), geometry)
    (problem,) = report.problems
    assert problem.message == (
        "layers.0.q_proj.lora_A is [4, 4096] but tiny-demo needs [4, 16]: "
        "this adapter was trained on another base model."
    )
    assert problem.tensor == Q0_A
    assert problem.fix
    assert report.manifest is None


def test_a_base_with_fused_projections_has_other_targets(tmp_path):
    geometry = replace(peft_files.GEOMETRY, fused_qkv=1, fused_gate_up=1)
    assert geometry.targets == ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")

    def report(*targets):
        folder = tmp_path / "_".join(targets)
        folder.mkdir()
        of = {
            name.replace("self_attn.gate_up_proj", "mlp.gate_up_proj"): value
            for name, value in peft_files.tensors(4, targets, geometry).items()
        }
        (folder / "adapter_model.safetensors").write_bytes(peft_files.safetensors_bytes(of))
        (folder / "adapter_config.json").write_bytes(peft_files.config_bytes(4, targets))
        return inspect_adapter(folder, geometry)

    accepted = report("qkv_proj", "gate_up_proj", "o_proj")
    assert accepted.ok, accepted.problems
    refused = report("q_proj", "v_proj")
    assert "LoRA is served on qkv_proj, o_proj, gate_up_proj, down_proj" in refused.problems[0].fix


def test_fused_projections_of_gated_delta_layers(tmp_path):
    sizes = {"layer_kinds": "da", "delta_channels": 20, "delta_values": 12, "delta_heads": 3, "fused_delta": 1}
    geometry = replace(peft_files.GEOMETRY, **sizes)
    names = ("in_proj_qkvz", "in_proj_ba", "out_proj")
    assert geometry.targets_of(0) == (*names, "gate_proj", "up_proj", "down_proj")
    assert geometry.targets_of(1)[:4] == ("q_proj", "k_proj", "v_proj", "o_proj")

    def report(name, targets, **shapes):
        folder = tmp_path / name
        folder.mkdir()
        prefix = "base_model.model.model.layers.0.linear_attn"
        of = {}
        for target in targets:
            width, height = geometry.features(target) if target in names else (geometry.hidden_size, 20)
            of[f"{prefix}.{target}.lora_A.weight"] = np.ones((4, width), np.float32)
            of[f"{prefix}.{target}.lora_B.weight"] = np.ones((shapes.get(target, height), 4), np.float32)
        (folder / "adapter_model.safetensors").write_bytes(peft_files.safetensors_bytes(of))
        (folder / "adapter_config.json").write_bytes(peft_files.config_bytes(4, targets))
        return inspect_adapter(folder, geometry)

    assert geometry.features("in_proj_qkvz") == (64, 32) and geometry.features("in_proj_ba") == (64, 6)
    accepted = report("whole", names)
    assert accepted.ok, accepted.problems
    assert {(module.layer, module.target) for module in accepted.manifest.modules} == {(0, name) for name in names}
    (problem,) = report("short", names, in_proj_ba=3).problems
    assert "layers.0.in_proj_ba.lora_B is [3, 4] but fake-base needs [6, 4]" in problem.message
    other = report("other", ("in_proj_qkv", "in_proj_z"))
    assert not other.ok and "in_proj_qkvz, in_proj_ba, out_proj" in other.problems[0].fix


def test_many_misfits_are_summed_up_first(tmp_path, geometry, tensors, save):
    wrong = {name: np.zeros((4, 32) if "lora_A" in name else (32, 4), np.float32) for name in tensors()}
    report = inspect_adapter(save(tmp_path, wrong, base_model_name_or_path="other/base"), geometry)
    (problem,) = report.problems
    assert problem.code == "wrong_base_model"
    assert "8 tensors" in problem.message
    assert "other/base" in problem.message
    assert "layers.0.q_proj.lora_A is [4, 32] but tiny-demo needs [4, 16]" in problem.message
    assert report.problem_count == 1


def test_an_adapter_of_a_shallower_base_is_named_as_such(tmp_path, geometry, tensors, save):
    shallow = {name: array for name, array in tensors().items() if ".layers.0." in name}
    report = inspect_adapter(save(tmp_path, shallow), geometry)
    (problem,) = report.problems
    assert problem.code == "wrong_base_model"
    assert "has 1 layers" in problem.message


def test_layers_beyond_the_base_are_refused(tmp_path, geometry, tensors, save):
    extra = {name.replace("layers.1", "layers.7"): array for name, array in tensors().items() if "layers.1" in name}
    report = inspect_adapter(save(tmp_path, tensors() | extra), geometry)
    assert codes(report) == {"wrong_base_model"}
    assert [check["name"] for check in report.checks if not check["ok"]] == ["tensors", "shapes"]


def test_a_mismatch_of_ranks_is_one_finding(tmp_path, geometry, tensors, save):
    report = inspect_adapter(save(tmp_path, tensors(), r=8), geometry)
    (problem,) = report.problems
    assert (problem.code, report.problem_count) == ("rank_mismatch", 1)
    assert "rank 4" in problem.message
    assert "7 more tensors" in problem.message


def test_the_fix_of_overlapping_patterns_names_them(tmp_path, geometry, tensors, save):
    patterns = {".*_proj": 8, "q_proj": 4, r"layers\.0\..*v_proj": 4}
    report = inspect_adapter(save(tmp_path, tensors(), rank_pattern=patterns), geometry)
    (problem,) = report.problems
    assert problem.code == "rank_mismatch"
    assert '".*_proj" (8), "q_proj" (4)' in problem.fix
    assert 'move "q_proj" before' in problem.fix
    moved = {"q_proj": 4, "v_proj": 4, ".*_proj": 8}
    assert inspect_adapter(save(tmp_path, tensors(), rank_pattern=moved), geometry).ok


def test_weights_that_were_saved_empty_are_named_as_such(tmp_path, geometry, tensors, save):
    empty = {name: np.zeros((0,), np.float32) for name in tensors()}
    report = inspect_adapter(save(tmp_path, empty), geometry)
    (problem,) = report.problems
    assert problem.code == "empty_tensor"
    assert "ZeRO-3" in problem.fix


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"use_dora": True}, "missing_tensor", "lora_magnitude_vector"),
        ({"lora_bias": True}, "missing_tensor", "lora_B.bias"),
        ({"use_dora": True, "lora_bias": True}, "unsupported_feature", "lora_bias"),
        ({"use_dora": "yes"}, "invalid_config", "use_dora"),
        ({"bias": "some"}, "invalid_config", "bias"),
        ({"modules_to_save": ["norm"]}, "unsupported_feature", "modules_to_save"),
        ({"modules_to_save": ["lm_head"]}, "missing_tensor", "modules_to_save"),
        ({"alora_invocation_tokens": [0, 10**9]}, "invalid_config", "alora_invocation_tokens"),
        ({"alora_invocation_tokens": "<go>"}, "invalid_config", "alora_invocation_tokens"),
        ({"alora_invocation_tokens": [True]}, "invalid_config", "alora_invocation_tokens"),
        ({"alora_invocation_tokens": [0], "use_dora": True}, "unsupported_feature", "with use_dora"),
        ({"alora_invocation_tokens": [0], "bias": "all"}, "unsupported_feature", "with bias"),
        ({"trainable_token_indices": [1]}, "missing_tensor", "trainable_token_indices"),
        ({"trainable_token_indices": [1, 1]}, "invalid_config", "trainable_token_indices"),
        ({"trainable_token_indices": {"norm": [1]}}, "invalid_config", "trainable_token_indices"),
        ({"trainable_token_indices": [10**9]}, "invalid_config", "trainable_token_indices"),
        ({"trainable_token_indices": 7}, "invalid_config", "trainable_token_indices"),
        ({"layer_replication": [[0, 2]]}, "unsupported_feature", "replicated"),
        ({"peft_type": "IA3"}, "unsupported_feature", "IA3"),
        ({"peft_type": ...}, "unsupported_feature", "peft_type"),
        ({"task_type": "SEQ_CLS"}, "unsupported_feature", "SEQ_CLS"),
        ({"init_lora_weights": "pissa_niter_4"}, "unsupported_feature", "pissa_niter_4"),
        ({"init_lora_weights": "milora"}, "unsupported_feature", "does not know"),
        ({"use_some_new_lora": True}, "unsupported_feature", "use_some_new_lora"),
        ({"target_modules": ["q_proj", "v_proj", "lm_head"]}, "missing_tensor", "lm_head"),
        ({"target_modules": r".*(q_proj|v_proj|lm_head)"}, "missing_tensor", "lm_head"),
        ({"target_modules": None}, "invalid_config", "target_modules"),
        ({"target_modules": 7}, "invalid_config", "target_modules"),
        ({"target_modules": r"(.*)\1_proj"}, "unsupported_pattern", "back references"),
        ({"target_modules": r"(q_proj"}, "unsupported_pattern", "regular expression"),
        ({"target_modules": ["q_proj"]}, "extra_tensor", "v_proj"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, "missing_tensor", "o_proj"),
        ({"r": ...}, "invalid_config", "r is missing or null"),
        ({"r": True}, "invalid_config", "r is true"),
        ({"r": 0}, "invalid_config", "r is 0"),
        ({"r": 8}, "rank_mismatch", "rank 4"),
        ({"lora_alpha": "16"}, "invalid_config", "lora_alpha"),
        ({"lora_alpha": 10**400}, "invalid_config", "lora_alpha"),
        ({"rank_pattern": {"q_proj": "8"}}, "invalid_config", "rank_pattern[q_proj]"),
        ({"rank_pattern": [1]}, "invalid_config", "rank_pattern"),
        ({"layers_to_transform": [-1]}, "invalid_config", "layers_to_transform"),
        ({"layers_to_transform": [0, 1, 30]}, "layer_out_of_range", "30"),
        ({"layers_to_transform": 0}, "extra_tensor", "layers.1.q_proj"),
        ({"target_modules": ".*(q|v)_proj", "layers_to_transform": 0}, "invalid_config", "layers_to_transform"),
        ({"layers_pattern": "layers"}, "invalid_config", "layers_pattern"),
    ],
)
def test_configs_that_cannot_be_served(tmp_path, geometry, tensors, save, change, code, words):
    report = inspect_adapter(save(tmp_path, tensors(), **change), geometry)
    assert not report.ok
    assert report.manifest is None
    assert code in codes(report), report.problems
    assert any(words in problem.message for problem in report.problems), report.problems
    assert all(problem.fix for problem in report.problems)


def test_harmless_unknown_numbers_are_tolerated(tmp_path, geometry, tensors, save):
    report = inspect_adapter(save(tmp_path, tensors(), new_group_size=16, new_switch=False, newer=None), geometry)
    assert report.ok
    assert report.notes == ("new_group_size in adapter_config.json: not known, and not used",)


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "lora", "task_type": "causal_lm"},
        {"peft_type": "PeftType.LORA", "task_type": "TaskType.CAUSAL_LM"},
        {"modules_to_save": ["classifier", "score"]},  # of which there are no tensors
        {"lora_dtype": "bfloat16", "lorap_emb_lr": 1e-6, "lorap_lr_ratio": 16.0, "merge_weights": True},
    ],
)
def test_configs_that_other_programs_write(tmp_path, geometry, tensors, save, change):
    assert inspect_adapter(save(tmp_path, tensors(), **change), geometry).ok


def test_a_config_that_an_editor_saved(tmp_path, geometry, tensors, save):
    path = save(tmp_path, tensors()) / "adapter_config.json"
    text = path.read_text()
    path.write_text(text, encoding="utf-8-sig")
    assert inspect_adapter(tmp_path, geometry).ok
    path.write_text(text, encoding="utf-16")
    (problem,) = inspect_adapter(tmp_path, geometry).problems
    assert (problem.code, "UTF-8" in problem.fix) == ("invalid_config", True)
    path.write_text("<!DOCTYPE html>\n<title>Sign in</title>")
    assert codes(inspect_adapter(tmp_path, geometry)) == {"web_page"}


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"peft_type": "VERA"}, "peft.save_as_lora"),
        ({"peft_type": "TRAINABLE_TOKENS"}, "trainable_token_indices"),
        ({"peft_type": "XLORA"}, "single adapters"),
        ({"peft_type": "PREFIX_TUNING"}, "peft.LoraConfig"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora=None"),
        ({"target_parameters": ["experts.down_proj"], "target_modules": None}, "target_modules instead"),
    ],
)
def test_of_another_kind_only_that_is_said(tmp_path, geometry, save, change, fix):
    """Its tensors are not LoRA's, so what is strange in them is no fault."""
    strange = {"base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight": np.zeros((2, 3, 4), np.float32)}
    (problem,) = inspect_adapter(save(tmp_path, strange, **change), geometry).problems
    assert problem.code == "unsupported_feature"
    assert fix in problem.fix


def test_of_a_model_of_other_names_only_that_is_said(tmp_path, geometry, tensors, save):
    other = {name.replace("model.layers", "transformer.h"): array for name, array in tensors().items()}
    (problem,) = inspect_adapter(save(tmp_path, other), geometry).problems
    assert problem.code == "unexpected_tensor", "that the base's own are missing goes without saying"


def test_the_head_of_a_classifier_is_named(tmp_path, geometry, tensors, save):
    head = {"base_model.model.score.weight": np.zeros((2, 16), np.float32)}
    report = inspect_adapter(save(tmp_path, tensors() | head, modules_to_save=["score"]), geometry)
    (problem,) = report.problems
    assert "head of a classifier" in problem.message


def test_every_problem_is_reported(tmp_path, geometry, tensors, save):
    bad = tensors()
    del bad[V1_B]
    bad[Q0_A][2, 3] = np.nan
    bad["base_model.model.lm_head.lora_A.weight"] = np.zeros((4, 16), np.float32)
    report = inspect_adapter(save(tmp_path, bad, modules_to_save=["norm"]), geometry)
    assert codes(report) == {"unsupported_feature", "missing_tensor", "not_finite", "extra_tensor"}
    assert any("row 2, column 3" in problem.message for problem in report.problems)


def test_problems_are_capped_but_counted(tmp_path, geometry, save):
    many = {f"tensor.{i}": np.zeros((1, 1), np.float32) for i in range(2500)}
    ranks = {f"name{i}": -1 for i in range(2500)}
    report = inspect_adapter(save(tmp_path, many, rank_pattern=ranks), geometry)
    assert len(report.problems) == 2000
    assert report.problem_count == 2501, "every rank, and all tensors as one"


@pytest.mark.parametrize(("dtype", "value"), [("<f4", np.inf), ("<f2", -np.inf), ("<f2", np.nan), ("<f4", np.nan)])
def test_non_finite_weights_are_found(tmp_path, geometry, tensors, save, dtype, value):
    bad = tensors(dtype=dtype)
    bad[V1_B][1, 1] = value
    report = inspect_adapter(save(tmp_path, bad), geometry)
    assert codes(report) == {"not_finite"}
    assert inspect_adapter(tmp_path, geometry, check_finite=False).ok


def test_non_finite_bfloat16_is_found(tmp_path, geometry, tensors, save):
    bits = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in tensors().items()}
    assert inspect_adapter(save(tmp_path, bits), geometry).manifest.dtype == "bfloat16"
    bits[Q0_A][0, 0] = 0x7FC0
    assert codes(inspect_adapter(save(tmp_path, bits), geometry)) == {"not_finite"}


def test_rank_over_the_limit(tmp_path, geometry, tensors, save):
    report = inspect_adapter(save(tmp_path, tensors(rank=300), r=300), geometry)
    assert codes(report) == {"rank_too_high"}
    assert len(report.problems) == 1
    assert inspect_adapter(tmp_path, geometry, AdapterLimits(max_rank=300)).ok


def test_transposed_and_unequal_ranks(tmp_path, geometry, tensors, save):
    bad = tensors()
    bad[Q0_B] = np.zeros((16, 3), np.float32)
    assert codes(inspect_adapter(save(tmp_path, bad), geometry)) == {"rank_mismatch"}


def test_missing_files(tmp_path, geometry):
    report = inspect_adapter(tmp_path / "nowhere", geometry)
    assert codes(report) == {"missing_file"}
    assert len(report.problems) == 2


def test_links_are_not_followed(tmp_path, geometry, tensors, save):
    real = save(tmp_path / "real", tensors())
    fake = tmp_path / "fake"
    fake.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (fake / name).symlink_to(real / name)
    assert codes(inspect_adapter(fake, geometry)) == {"unreadable_file"}


NOT_STRICT = ["", "[]", "{", '{"r": 1, "r": 2}', '{"r": NaN}', "[" * 100_000, '{"r": ' + "9" * 5000 + "}", "\0", "null"]


@pytest.mark.parametrize("text", NOT_STRICT)
def test_configs_that_are_not_strict_json(tmp_path, geometry, tensors, save, text):
    save(tmp_path, tensors())
    (tmp_path / "adapter_config.json").write_text(text)
    assert codes(inspect_adapter(tmp_path, geometry)) == {"invalid_config"}


def test_a_pickle_under_the_right_name_is_refused_by_name(tmp_path, geometry, tensors, save):
    save(tmp_path, tensors())
    (tmp_path / "adapter_model.safetensors").write_bytes(b"PK\x03\x04" + bytes(100))
    assert codes(inspect_adapter(tmp_path, geometry)) == {"pickle_refused"}


@pytest.mark.parametrize(
    ("header", "tail", "words"),
    [
        ({}, b"x", "follow the last tensor"),
        ({Q0_A: {"dtype": "F32", "shape": [4, 16], "data_offsets": [0, 255]}}, b"", "takes 256 bytes"),
        ({Q0_A: {"dtype": "F32", "shape": [4, 16], "data_offsets": [256, 512]}}, b"", "hole"),
        ({Q0_A: {"dtype": "F32", "shape": [4, 16], "data_offsets": [-1, 255]}}, b"", "data_offsets"),
        ({Q0_A: {"dtype": "F32", "shape": [4, True], "data_offsets": [0, 16]}}, b"", "shape"),
        ({Q0_A: {"dtype": "F32", "shape": [1 << 40, 1 << 40, 0], "data_offsets": [0, 0]}}, b"", "hole"),
        ({Q0_A: {"dtype": "F32", "shape": [4, 16]}}, b"", "exactly dtype"),
        ({"late": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 40, (1 << 40) + 4]}}, b"", "hole"),
        ({"__metadata__": {"format": 3}}, b"", "__metadata__"),
        ({"__metadata__": []}, b"", "__metadata__"),
        ({Q0_A: []}, b"", "exactly dtype"),
    ],
)
def test_headers_that_lie(tmp_path, geometry, tensors, save, raw_safetensors, header, tail, words):
    save(tmp_path, tensors())
    (tmp_path / "adapter_model.safetensors").write_bytes(raw_safetensors(tensors(), header, tail))
    report = inspect_adapter(tmp_path, geometry)
    assert codes(report) == {"invalid_safetensors"}
    assert words in report.problems[0].message


def test_other_dtypes_are_refused(tmp_path, geometry, tensors, save):
    wide = {name: array.astype(np.float64) for name, array in tensors().items()}
    report = inspect_adapter(save(tmp_path, wide), geometry)
    assert codes(report) == {"unsupported_dtype"}
    assert "F64" in report.problems[0].message


@pytest.mark.parametrize("cut", [0, 4, 8, 100, -1])
def test_truncated_files(tmp_path, geometry, tensors, save, cut):
    path = save(tmp_path, tensors()) / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    assert codes(inspect_adapter(tmp_path, geometry)) == {"invalid_safetensors"}


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 24])
def test_absurd_header_lengths(tmp_path, length):
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(FormatError, match="truncated"):
        SafetensorsFile.open(path)


def test_a_header_full_of_brackets_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.delattr("lora_engine.peft_format.safetensors_file.load_strict")
    path = tmp_path / "adapter_model.safetensors"
    header = b"{" + b'"a":{},' * 1_000_000
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(FormatError, match="more than"):
        SafetensorsFile.open(path)


def test_size_limit(tmp_path, geometry, tensors, save):
    problems = codes(inspect_adapter(save(tmp_path, tensors()), geometry, AdapterLimits(max_bytes=100)))
    assert problems == {"file_too_large"}


def test_tensors_are_exact(tmp_path, tensors, save):
    written = tensors()
    file = SafetensorsFile.open(save(tmp_path, written) / "adapter_model.safetensors")
    for name, array in written.items():
        assert np.array_equal(file.tensor(name), array)
        assert np.array_equal(np.concatenate(list(file.blocks(name, max_bytes=64))), array.ravel())


def test_unprintable_names_are_escaped(tmp_path, geometry, save):
    report = inspect_adapter(save(tmp_path, {"\x1b[31m\n" + "x" * 500: np.zeros((1, 1), np.float32)}), geometry)
    name = report.problems[0].tensor
    assert name.isprintable()
    assert len(name) <= 160


def test_hostile_patterns_do_not_hang(tmp_path, geometry, tensors, save):
    started = time.monotonic()
    hostile = {"(" * 20 + "a|[a-z_.0-9]*" + ")*" * 20 + str(i): 4 for i in range(2000)}
    report = inspect_adapter(save(tmp_path, tensors(), rank_pattern=hostile), geometry)
    assert codes(report) == {"unsupported_pattern"}
    report = inspect_adapter(save(tmp_path, tensors(), target_modules="(.*.*)*" * 50 + "x"), geometry)
    assert not report.ok
    assert time.monotonic() - started < 60


def test_digest_is_canonical():
    one, two = "a" * 64, "b" * 64
    plain = {"adapter_config.json": one, "adapter_model.safetensors": two}
    prefixed = {"adapter_model.safetensors": f"sha256:{two}", "adapter_config.json": f"sha256:{one}"}
    assert adapter_digest(plain) == adapter_digest(prefixed)
    assert adapter_digest(plain).startswith("sha256:")
    with pytest.raises(ValueError, match="exactly"):
        adapter_digest({"adapter_config.json": one})
    with pytest.raises(ValueError, match="hex"):
        adapter_digest(plain | {"adapter_config.json": "A" * 64})
