"""Adapters in every form that training programs write: what becomes of each, and the table of it in the documentation.

`WRITE_TABLES=1` with this file writes the table.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.adapter_forms import ADAPTER, BINARY, FORMS, Files, Form, torch_bytes, torchtune
from lorikeet_testing.peft_files import GEOMETRY, as_candidate, config_bytes, safetensors_bytes, zip_of

from control_plane.adapters.uploads.validation_sandbox import validate
from lora_engine.peft_format import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    AdapterLimits,
    SafetensorsFile,
    file_digest,
    inspect_adapter,
)
from lora_engine.peft_format.canonical import to_peft_form
from lora_engine.peft_format.problems import FormatError

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/adapter-forms.md"


def decide(folder: Path, files: Files) -> dict[str, Any]:
    """The child's answer to an archive of these files."""
    (folder / "upload").write_bytes(zip_of(files))
    return validate(
        {
            "files": {"upload.zip": str(folder / "upload")},
            "into": str(folder / "unpacked"),
            "bases": [as_candidate()],
        }
    )


def refusal(answer: dict[str, Any]) -> dict[str, Any]:
    problems = [answer["problem"]] if "problem" in answer else answer["report"]["problems"]
    (problem,) = problems
    return problem


def identifier(form: Form) -> str:
    return re.sub(r"\W+", "-", f"{form.maker} {form.what}")


@pytest.mark.parametrize("form", FORMS, ids=identifier)
def test_every_form_is_accepted_or_refused_by_what_it_is(tmp_path, form, capsys):
    answer = decide(tmp_path, form.files())
    if form.code:
        problem = refusal(answer)
        assert problem["code"] == form.code, problem
        assert problem["message"]
        assert problem["fix"]
        assert capsys.readouterr().out == "", "nothing of an upload runs"
        return
    assert answer.get("report", answer).get("problems") == []
    folder = tmp_path / "unpacked"
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG_FILE, WEIGHTS_FILE]
    same_adapter(folder)
    if form.as_sent:
        assert (folder / CONFIG_FILE).read_bytes() == config_bytes()
        assert (folder / WEIGHTS_FILE).read_bytes() == safetensors_bytes(ADAPTER)
    else:
        assert answer["report"]["notes"], "what was changed is said"


def same_adapter(folder: Path) -> None:
    """Both matrices of every module, and its scale, as the engine will read them."""
    report = inspect_adapter(folder, GEOMETRY)
    assert report.manifest is not None, report.problems
    weights = SafetensorsFile.open(folder / WEIGHTS_FILE)
    vectors = {vector.name for vector in report.manifest.vectors}
    on_head = {
        name
        for layer in report.manifest.embedding_layers
        if (lora := layer.lora)
        for name in (lora.a_name, lora.b_name)
    }
    assert set(weights.entries) - vectors - on_head == set(ADAPTER)
    assert all((weights.tensor(name) == 1).all() for name in vectors)
    assert len(vectors) == (len(report.manifest.modules) if report.manifest.config.get("use_dora") else 0)
    for name, array in ADAPTER.items():
        assert np.array_equal(weights.tensor(name), array)
    assert {module.scale for module in report.manifest.modules} == {2.0}
    assert not isinstance(report.manifest.config["target_modules"], str), "no pattern is left for engines"


def test_the_table_is_in_the_documentation(tmp_path):
    rows = ["| made by | what is uploaded | outcome | what the report says |", "|---|---|---|---|"]
    for number, form in enumerate(FORMS):
        (tmp_path / str(number)).mkdir()
        rows.append(row(form, decide(tmp_path / str(number), form.files())))
    table = "\n".join(rows)
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- table: written by tests/engine/peft_format/test_forms.py -->\n\n", "\n\n<!-- end of table -->"
    head, rest = text.split(begin)
    if os.environ.get("WRITE_TABLES"):
        PAGE.write_text(f"{head}{begin}{table}{end}{rest.split(end)[1]}")
    assert (table + end) in PAGE.read_text(), "run this file with WRITE_TABLES=1"


def row(form: Form, answer: dict[str, Any]) -> str:
    if form.code:
        outcome, says = f"refused, `{form.code}`", refusal(answer)["message"]
    else:
        outcome = "accepted as it is" if form.as_sent else "accepted, converted"
        says = "; ".join(answer["report"]["notes"])
    return f"| {form.maker} | {form.what} | {outcome} | {says.replace('|', chr(92) + '|')} |"


def test_the_same_weights_have_one_identity_in_every_form(tmp_path):
    """`torch.save` and the safetensors library say the same, so what is stored is the same."""
    from safetensors.numpy import save

    forms = {
        "safetensors": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: save(ADAPTER, metadata={"format": "pt"})},
        "bin": {CONFIG_FILE: config_bytes(), BINARY: torch_bytes(ADAPTER)},
    }
    digests = set()
    for name, files in forms.items():
        (tmp_path / name).mkdir()
        assert decide(tmp_path / name, files)["report"]["ok"]
        digests.add(file_digest(tmp_path / name / "unpacked" / WEIGHTS_FILE))
    assert len(digests) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pickles_of_views_parameters_and_every_type(tmp_path, dtype):
    """A state dict may hold transposed views, parameters, and many tensors in one storage."""
    flat = torch.cat([torch.from_numpy(array).flatten() for array in ADAPTER.values()]).to(dtype)
    state, at = {}, 0
    for name, array in ADAPTER.items():
        view = flat[at : at + array.size].view(array.shape)
        at += array.size
        state[name] = torch.nn.Parameter(view) if "lora_A" in name else view.t().contiguous().t()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    decide(tmp_path, {CONFIG_FILE: config_bytes(), BINARY: buffer.getvalue()})
    weights = SafetensorsFile.open(tmp_path / "unpacked" / WEIGHTS_FILE)
    for name, tensor in state.items():
        wanted = tensor.detach().contiguous()
        found = weights.tensor(name).tobytes()
        assert found == wanted.view(torch.uint8).numpy().tobytes()


def test_a_pickle_larger_than_its_storages_is_refused(tmp_path):
    one = torch.zeros(1)
    buffer = io.BytesIO()
    torch.save({name: one.expand(1 << 14, 1 << 14) for name in ADAPTER}, buffer)
    answer = decide(tmp_path, {CONFIG_FILE: config_bytes(), BINARY: buffer.getvalue()})
    assert refusal(answer)["code"] == "file_too_large"


def test_other_types_in_a_pickle_are_named(tmp_path):
    wide = {name: array.astype(np.float64) for name, array in ADAPTER.items()}
    answer = decide(tmp_path, {CONFIG_FILE: config_bytes(), BINARY: torch_bytes(wide)})
    assert refusal(answer)["code"] == "unsupported_dtype"


def test_a_pickle_whose_values_were_changed_is_refused(tmp_path):
    files = torchtune()
    binary = bytearray(files[BINARY])
    place = binary.index(next(iter(ADAPTER.values())).tobytes())
    binary[place] ^= 1
    assert refusal(decide(tmp_path, {**files, BINARY: bytes(binary)}))["code"] == "damaged_pickle"


def test_an_index_that_names_another_shard(tmp_path):
    files = next(form for form in FORMS if form.what == "shards and their index").files()
    index = json.loads(files[f"{WEIGHTS_FILE}.index.json"])
    index["weight_map"]["x"] = "adapter_model-00003-of-00003.safetensors"
    answer = decide(tmp_path, {**files, f"{WEIGHTS_FILE}.index.json": json.dumps(index).encode()})
    assert refusal(answer)["code"] == "missing_shard"


def test_loose_files_of_a_folder(tmp_path):
    """A browser sends a folder's files one by one."""
    paths = {}
    for number, (name, content) in enumerate(torchtune().items()):
        (tmp_path / str(number)).write_bytes(content)
        paths[name] = str(tmp_path / str(number))
    validate({"files": paths, "into": str(tmp_path / "out"), "bases": [as_candidate()]})
    same_adapter(tmp_path / "out")


def test_many_ignored_files_are_one_note(tmp_path):
    files = {**torchtune(), **{f"events.{i}": b"" for i in range(40)}}
    notes = decide(tmp_path, files)["report"]["notes"]
    assert len(notes) == 2
    assert "42 files" in notes[0]


def test_the_zip_around_a_pickle_is_torchs(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    answer = decide(tmp_path, {CONFIG_FILE: config_bytes(), BINARY: buffer.getvalue()})
    assert refusal(answer)["code"] == "damaged_pickle"


def names(*tensors: str) -> Files:
    return {WEIGHTS_FILE: safetensors_bytes({name: np.ones((2, 2), np.float32) for name in tensors})}


LAYER = "layers.0.self_attn.q_proj.lora_A"
SHARDS = [f"adapter_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
NOT_ONE: dict[str, tuple[Files, str]] = {
    "two adapters": (names(f"model.{LAYER}.a.weight", f"model.{LAYER}.b.weight"), "several_adapters"),
    "two models": (names(f"model.{LAYER}.weight", f"model.language_model.{LAYER}.weight"), "mixed_names"),
    "two names": (names(f"base_model.model.model.{LAYER}.weight", f"module.base_model.model.model.{LAYER}.weight"),
                  "duplicate_tensor"),
    "half the shards": ({SHARDS[0]: names("a")[WEIGHTS_FILE]}, "missing_shard"),
    "an index of nothing": ({**{shard: names(shard[16])[WEIGHTS_FILE] for shard in SHARDS},
                             f"{WEIGHTS_FILE}.index.json": b"[]"}, "invalid_index"),
    "an index that is damaged": ({**{shard: names(shard[16])[WEIGHTS_FILE] for shard in SHARDS},
                                  f"{WEIGHTS_FILE}.index.json": b"{"}, "invalid_index"),
    "no weights": ({}, "missing_file"),
    "weights of mlx-lm with PEFT's config": ({"adapters.safetensors": names("a")[WEIGHTS_FILE]}, "missing_file"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "code"), NOT_ONE.values(), ids=NOT_ONE)
def test_what_is_not_one_adapter_is_refused_by_what_it_is(tmp_path, files, code):
    for name, content in {CONFIG_FILE: config_bytes(), **files}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError) as refused:
        to_peft_form(tmp_path, AdapterLimits())
    assert refused.value.code == code
    assert refused.value.fix


def test_weights_that_would_become_too_large(tmp_path):
    """Read from a pickle, which has no header that takes room."""
    for limits in (
        AdapterLimits(max_bytes=1 << 20, max_header_bytes=1 << 20),
        AdapterLimits(max_tensors=0, max_expert_tensors=0),
    ):
        (tmp_path / CONFIG_FILE).write_bytes(config_bytes())
        torch.save({f"base_model.model.model.{LAYER}.weight": torch.ones(2, 2)}, tmp_path / BINARY)
        with pytest.raises(FormatError) as refused:
            to_peft_form(tmp_path, limits)
        assert refused.value.code in ("file_too_large", "too_many_tensors")
        assert not (tmp_path / WEIGHTS_FILE).exists()
