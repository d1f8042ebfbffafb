"""AdaLoRA and block-diagonal LoRA as plain LoRA: exact in every type, and damaged ones refused by what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AdaLoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, AdapterLimits, FormatError, to_peft_form

PLACE = "base_model.model.model.layers.0.self_attn.q_proj"
ADALORA = {"peft_type": "ADALORA", "init_r": 4, "lora_alpha": 6, "target_modules": ["q_proj"], "r": 8, "tfinal": 3}


def written(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Path:
    folder.mkdir()
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    save_file(dict(tensors), folder / WEIGHTS_FILE)
    return folder


def adalora(rank: int = 4, dtype: torch.dtype = torch.float32, place: str = PLACE) -> dict[str, torch.Tensor]:
    shapes = {"A": (rank, 16), "B": (24, rank), "E": (rank, 1)}
    return {f"{place}.lora_{side}": torch.randn(shape).to(dtype) for side, shape in shapes.items()}


def converted(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], tuple[str, ...]]:
    form = to_peft_form(folder, AdapterLimits())
    return json.loads((folder / CONFIG_FILE).read_text()), load_file(folder / WEIGHTS_FILE), form.notes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_adalora_is_rounded_as_peft_rounds_it(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = adalora(dtype=dtype)
    config, made, notes = converted(written(tmp_path / "it", ADALORA, tensors))
    product = tensors[f"{PLACE}.lora_A"] * tensors[f"{PLACE}.lora_E"]
    assert made[f"{PLACE}.lora_A.weight"].dtype == dtype
    assert torch.equal(made[f"{PLACE}.lora_A.weight"], product)
    assert torch.equal(made[f"{PLACE}.lora_B.weight"], tensors[f"{PLACE}.lora_B"])
    assert len(made) == 2 and "AdaLoRA" in notes[-1]
    assert (config["peft_type"], config["r"]) == ("LORA", 4) and not {"init_r", "tfinal"} & set(config)
    assert config["lora_alpha"] / 4 == pytest.approx(6 / (4 + 1e-5), rel=1e-12)


def test_files_that_have_another_name_too_stay_as_they_are(tmp_path: Path) -> None:
    """An upload's own, of which digests are known."""
    folder, sent = written(tmp_path / "it", ADALORA, adalora()), tmp_path / "sent"
    sent.mkdir()
    before = {}
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        (sent / name).hardlink_to(folder / name)
        before[name] = (sent / name).read_bytes()
    converted(folder)
    assert {name: (sent / name).read_bytes() for name in before} == before


def test_a_row_without_finite_numbers_stays_so(tmp_path: Path) -> None:
    """The inspection then names it: it must not become a number by rounding."""
    tensors = adalora(dtype=torch.bfloat16)
    tensors[f"{PLACE}.lora_E"][:3, 0] = torch.tensor([float("nan"), float("inf"), 3e38])
    tensors[f"{PLACE}.lora_A"][2] = 100.0
    _, made, _ = converted(written(tmp_path / "it", ADALORA, tensors))
    finite = made[f"{PLACE}.lora_A.weight"].isfinite().all(dim=1)
    assert finite.tolist() == [False, False, False, True]


@pytest.mark.parametrize("name", ["", ".default"])
@pytest.mark.parametrize("root", ["model", "model.language_model", "language_model.model"])
def test_ranks_that_differ_hold_whatever_the_model_is_called(tmp_path: Path, root: str, name: str) -> None:
    places = [f"base_model.model.{root}.layers.{layer}.self_attn.q_proj" for layer in range(3)]
    ranks = dict(zip(places, [4, 3, 0], strict=True))
    tensors = {
        f"{key}{name}": value for place, rank in ranks.items() for key, value in adalora(rank, place=place).items()
    }
    config, made, _ = converted(written(tmp_path / "it", ADALORA, tensors))
    assert {key.split(".layers.")[1][0] for key in made} == {"0", "1"}
    assert config["rank_pattern"] == {"layers.1.self_attn.q_proj": 3}
    assert config["alpha_pattern"]["layers.1.self_attn.q_proj"] / 3 == pytest.approx(6 / (4 + 1e-5))
    assert config["target_modules"] == ["layers.0.self_attn.q_proj", "layers.1.self_attn.q_proj"]


def test_peft_loads_what_it_became(tmp_path: Path) -> None:
    """The same numbers by PEFT's own LoRA, of an alpha that is not above 0 too, for which PEFT takes the rank."""
    for number, alpha in enumerate((6, 0)):
        torch.manual_seed(number)
        base = torch.nn.Sequential(torch.nn.Linear(16, 24))
        config = AdaLoraConfig(init_r=4, lora_alpha=alpha, target_modules=["0"], total_step=10)
        model = get_peft_model(base, config)
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(parameter)
        folder = tmp_path / str(number)
        model.save_pretrained(folder)
        inputs = torch.randn(5, 16)
        wanted = model.eval()(inputs)
        converted(folder)
        again = PeftModel.from_pretrained(model.unload(), str(folder)).eval()
        torch.testing.assert_close(again(inputs), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"init_r": 0}, "init_r"), ({"init_r": "4"}, "init_r"), ({"init_r": 2.5}, "init_r"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"-": "lora_E"}, "lora_E missing"), ({"-": "lora_A"}, "lora_A missing"), ({"-": "lora_B"}, "lora_B missing"),
    ],
)  # fmt: skip
def test_a_damaged_adalora_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    tensors = {key: value for key, value in adalora().items() if not key.endswith(change.get("-", "?"))}
    folder = written(tmp_path / "it", {**ADALORA, **change}, tensors)
    with pytest.raises(FormatError, match=says) as found:
        to_peft_form(folder, AdapterLimits())
    assert found.value.fix


def test_matrices_of_other_ranks_are_refused(tmp_path: Path) -> None:
    tensors = adalora() | {f"{PLACE}.lora_E": torch.randn(3, 1)}
    with pytest.raises(FormatError, match=r"lora_E \[3, 1\]"):
        to_peft_form(written(tmp_path / "it", ADALORA, tensors), AdapterLimits())


BLOCKS = {"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": None, "nblocks": 2, "match_strict": False}
PLAIN = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj"]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_lie_on_the_diagonal(tmp_path: Path, dtype: torch.dtype) -> None:
    a, b = torch.randn(4, 8).to(dtype), torch.randn(24, 4).to(dtype)
    tensors = {f"{PLACE}.lora_A.weight": a, f"{PLACE}.lora_B.weight": b}
    config, made, notes = converted(written(tmp_path / "it", {**PLAIN, "use_bdlora": BLOCKS}, tensors))
    assert torch.equal(made[f"{PLACE}.lora_A.weight"], torch.block_diag(*a.chunk(2)).to(dtype))
    assert torch.equal(made[f"{PLACE}.lora_B.weight"], b)
    assert config["use_bdlora"] is None and "block-diagonal" in notes[-1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nblocks": 3}, "shape_mismatch"), ({"nblocks": 0}, "invalid_config"), ({"nblocks": True}, "invalid_config"),
        ({"nblocks": "2"}, "invalid_config"), ({"target_modules_bd_a": "q_proj"}, "invalid_config"),
        ({"target_modules_bd_a": [1]}, "invalid_config"), ({"nblocks": 10**9}, "shape_mismatch"),
    ],
)  # fmt: skip
def test_blocks_that_are_none_are_refused(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    tensors = {f"{PLACE}.lora_A.weight": torch.randn(4, 8), f"{PLACE}.lora_B.weight": torch.randn(24, 4)}
    folder = written(tmp_path / "it", {**PLAIN, "use_bdlora": {**BLOCKS, **change}}, tensors)
    with pytest.raises(FormatError) as found:
        to_peft_form(folder, AdapterLimits())
    assert found.value.code == code and found.value.fix


def test_what_would_be_too_large_is_refused_before_it_is_made(tmp_path: Path) -> None:
    blocks = {**BLOCKS, "nblocks": 1 << 12}
    tensors = {f"{PLACE}.lora_A.weight": torch.randn(1 << 12, 512), f"{PLACE}.lora_B.weight": torch.randn(24, 1 << 12)}
    folder = written(tmp_path / "it", {**PLAIN, "use_bdlora": blocks}, tensors)
    with pytest.raises(FormatError) as found:
        to_peft_form(folder, AdapterLimits())
    assert found.value.code == "file_too_large"


@pytest.mark.parametrize("config", [b"{", b"[]", b'{"peft_type": 3}', b'{"peft_type": "ADALORA"}'])
def test_a_broken_config_is_named_by_the_inspection_or_here(tmp_path: Path, config: bytes) -> None:
    folder = written(tmp_path / "it", ADALORA, adalora())
    (folder / CONFIG_FILE).write_bytes(config)
    try:
        to_peft_form(folder, AdapterLimits())
    except FormatError as error:
        assert error.code == "invalid_config" and error.fix
