"""Vectors beside the matrices: DoRA's magnitudes, biases of lora_B, biases instead of the base's."""

from __future__ import annotations

import numpy as np
import pytest
from lorikeet_testing.adapter_files import GEOMETRY, make_tensors

from lora_engine.peft_format import inspect_adapter
from lora_engine.peft_format.tensor_names import read_name

Q0, V0 = (f"base_model.model.model.layers.0.self_attn.{target}" for target in ("q_proj", "v_proj"))
MODULES = [name.removesuffix(".lora_A.weight") for name in make_tensors() if name.endswith(".lora_A.weight")]


def outs(module: str) -> int:
    return GEOMETRY.features(module.rsplit(".", 1)[1])[1]


def with_vectors(suffix: str, modules: list[str] | None = None) -> dict[str, np.ndarray]:
    places = MODULES if modules is None else modules
    return make_tensors() | {f"{place}.{suffix}": np.ones(outs(place), np.float32) for place in places}


@pytest.mark.parametrize(
    ("config", "suffix", "note"),
    [
        ({"use_dora": True}, "lora_magnitude_vector", "DoRA"),
        ({"use_dora": True}, "lora_magnitude_vector.weight", "DoRA"),  # of a state_dict
        ({"lora_bias": True}, "lora_B.bias", "lora_bias"),
        ({"bias": "lora_only"}, "base_layer.bias", 'bias="lora_only": 4 biases'),
        ({"bias": "lora_only"}, "bias", 'bias="lora_only": 4 biases'),  # of PEFT before 0.6
        ({"bias": "all"}, "base_layer.bias", 'bias="all": 4 biases'),
    ],
)
def test_they_are_accepted_with_a_note(tmp_path, save, config, suffix, note):
    report = inspect_adapter(save(tmp_path, with_vectors(suffix), **config), GEOMETRY)
    assert report.ok, report.problems
    assert len(report.manifest.vectors) == len(MODULES) == 4
    (said,) = report.notes
    assert note in said


def test_biases_of_modules_without_lora(tmp_path, save):
    """``bias="all"`` trains them too; ``"lora_only"`` does not."""
    k = Q0.replace("q_proj", "k_proj")
    folder = save(tmp_path, with_vectors("bias", [k]), bias="all")
    assert inspect_adapter(folder, GEOMETRY).ok
    report = inspect_adapter(save(tmp_path, with_vectors("bias", [k]), bias="lora_only"), GEOMETRY)
    assert [problem.code for problem in report.problems] == ["extra_tensor"]


def test_a_file_without_the_biases_that_were_trained_is_noted(tmp_path, save):
    report = inspect_adapter(save(tmp_path, make_tensors(), bias="lora_only"), GEOMETRY)
    assert report.ok and "no biases are in the file" in report.notes[0]


@pytest.mark.parametrize(
    ("change", "config", "code", "words"),
    [
        ({f"{Q0}.lora_magnitude_vector": None}, {}, "missing_tensor", "q_proj.lora_magnitude_vector"),
        ({f"{Q0}.lora_magnitude_vector": np.ones(3)}, {}, "shape_mismatch", "[3]"),
        ({f"{Q0}.lora_magnitude_vector": np.ones((1, outs(Q0)))}, {}, "shape_mismatch", "[1, "),
        ({f"{Q0}.lora_magnitude_vector": np.full(outs(Q0), np.nan)}, {}, "not_finite", "the first at 0"),
        ({f"{Q0}.lora_magnitude_vector.weight": np.ones(outs(Q0))}, {}, "duplicate_tensor", "two names"),
        ({f"{Q0}.lora_B.bias": np.ones(outs(Q0))}, {}, "extra_tensor", "does not ask for it"),
        ({f"{Q0}.bias": np.ones(outs(Q0))}, {}, "extra_tensor", "does not ask for it"),
        ({}, {"use_dora": False}, "extra_tensor", "does not ask for it"),
        ({"base_model.model.lm_head.bias": np.ones(8)}, {"bias": "all"}, "unexpected_tensor", "lm_head.bias"),
        ({"base_model.model.model.norm.bias": np.ones(8)}, {"bias": "all"}, "unexpected_tensor", "is a bias"),
        ({Q0.replace("layers.0", "layers.99") + ".bias": np.ones(8)}, {"bias": "all"}, "unexpected_tensor", "a bias"),
    ],
)
def test_what_is_wrong_with_them_is_named(tmp_path, save, change, config, code, words):
    tensors = with_vectors("lora_magnitude_vector") | change
    tensors = {name: np.asarray(value, np.float32) for name, value in tensors.items() if value is not None}
    report = inspect_adapter(save(tmp_path, tensors, **({"use_dora": True} | config)), GEOMETRY)
    assert not report.ok and report.manifest is None and not report.notes
    assert any(problem.code == code and words in problem.message for problem in report.problems), report.problems
    assert all(problem.fix for problem in report.problems)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"{Q0}.lora_magnitude_vector.default.weight", f"{Q0}.lora_magnitude_vector.weight"),
        (f"{Q0}.lora_B.default.bias", f"{Q0}.lora_B.bias"),
        ("module." + f"{Q0}.base_layer.bias", f"{Q0}.base_layer.bias"),
        ("model.layers.0.self_attn.q_proj.bias", f"{Q0}.bias"),
        (f"{Q0}.lora_magnitude_vector", f"{Q0}.lora_magnitude_vector"),
    ],
)
def test_names_are_brought_to_one_form(sent, kept):
    assert read_name(sent).name == kept
