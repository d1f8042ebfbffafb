"""Adapters whose training took a part of the base into A and B, with what it began with beside them: as in training."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_model
from peft import LoraConfig, get_peft_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.peft_format import AdapterLimits, FormatError, to_peft_form, unpack_upload
from lora_engine.request import GenerationRequest, SamplingParams

NEW_TOKENS = 12
TARGETS = ["q_proj", "v_proj", "down_proj"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("base") / "model"
    return save_model("llama3-scaled-rope-tied", folder), folder


def train(model: Any, init: str, folder: Path, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """Writes `trained/` and `{init}_init/`, neither of them converted. Returns the trained model."""
    torch.manual_seed(7)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": TARGETS, **settings}
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=init, **settings)
    changed = copy.deepcopy(model)
    if init == "corda":
        from peft.tuners.lora.config import CordaConfig
        from peft.tuners.lora.corda import preprocess_corda

        config.corda_config = CordaConfig(corda_method="kpm")
        seen = torch.randint(0, VOCAB, (1, 64))
        preprocess_corda(changed, config, run_model=lambda: changed(seen))
    trained: Any = get_peft_model(changed, config)
    for name, parameter in trained.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtype)
    own = trained.peft_config["default"]
    own.init_lora_weights = True
    trained.save_pretrained(folder / f"{init.partition('_')[0]}_init")
    own.init_lora_weights = init
    for name, parameter in trained.named_parameters():
        if "lora_" in name:
            parameter.data += torch.randn_like(parameter) * 0.08
    trained.save_pretrained(folder / "trained")
    return trained.float().eval()


def upload(folder: Path, into: Path, *, nested: bool = False) -> tuple[Path, list[str]]:
    """As the validation takes a zip of both folders, one within or beside the other."""
    archive, notes = into.with_suffix(".zip"), list[str]()
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("adapter_*")):
            name = str(path.relative_to(folder))
            packed.write(path, name.removeprefix("trained/") if nested else name)
    limits = AdapterLimits()
    made = unpack_upload({"both.zip": archive}, into, limits, notes=notes)
    notes += to_peft_form(made, limits).notes
    return made, notes


def tokens_of(folder: Path, prompt: list[int], model: Path) -> list[int]:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=model, pool_mb=16, max_lora_rank=64), source)
    adapter = adapter_at("it", folder)
    source.add(pack_for(engine, adapter))
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    engine.add_request(GenerationRequest("it", prompt, params, adapter.digest))
    tokens: list[int] = []
    while engine.has_work():
        tokens += [token for delta in engine.step().deltas for token in delta.token_ids]
    return tokens


@pytest.mark.parametrize(
    ("init", "settings"),
    [
        ("pissa", {}),
        ("pissa", {"use_rslora": True}),
        ("pissa_niter_4", {}),  # whose decomposition nobody could find again
        ("pissa", {"rank_pattern": {"q_proj": 6}, "alpha_pattern": {"v_proj": 3}}),
        ("olora", {}),
        ("corda", {}),
    ],
    ids=str,
)
def test_it_answers_as_the_trained_model(base: Any, tmp_path: Path, init: str, settings: dict[str, Any]) -> None:
    model, folder = base
    trained = train(model, init, tmp_path / "sent", **settings)
    made, notes = upload(tmp_path / "sent", tmp_path / "into", nested=bool(settings))
    assert any("twice the rank" in note for note in notes)
    assert {path.name for path in made.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    prompt = [(37 * n) % VOCAB for n in range(20)]
    ids = torch.tensor([prompt])
    wanted = trained.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert tokens_of(made, prompt, folder) == wanted[0, len(prompt) :].tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_stay_what_they_were(base: Any, tmp_path: Path, dtype: torch.dtype) -> None:
    from safetensors.torch import load_file

    train(base[0], "olora", tmp_path / "sent", dtype)
    own, first = (
        load_file(tmp_path / "sent" / name / "adapter_model.safetensors") for name in ("trained", "olora_init")
    )
    made, _ = upload(tmp_path / "sent", tmp_path / "into")
    joined = load_file(made / "adapter_model.safetensors")
    for name, value in joined.items():
        assert value.dtype == dtype
        side = 0 if "lora_A" in name else 1
        sign = 1 if side == 0 else -1
        assert torch.equal(value, torch.cat([own[name], sign * first[name]], dim=side))


def test_another_initial_adapter_is_refused(base: Any, tmp_path: Path) -> None:
    train(base[0], "olora", tmp_path / "sent")
    config = tmp_path / "sent" / "olora_init" / "adapter_config.json"
    raw = json.loads(config.read_text())
    config.write_text(json.dumps({**raw, "lora_alpha": 16}))
    with pytest.raises(FormatError, match="differ in lora_alpha") as refused:
        upload(tmp_path / "sent", tmp_path / "one")
    assert refused.value.code == "initial_adapter_differs"
    config.write_text(json.dumps(raw))
    train(base[0], "olora", tmp_path / "other", target_modules=["q_proj"])
    (tmp_path / "other" / "olora_init" / "adapter_model.safetensors").replace(
        config.with_name("adapter_model.safetensors")
    )
    with pytest.raises(FormatError, match="has no base_model"):
        upload(tmp_path / "sent", tmp_path / "two")


def test_it_is_left_out_where_nothing_was_taken_from_the_base(base: Any, tmp_path: Path) -> None:
    train(base[0], "olora", tmp_path / "sent")
    for name in ("trained", "olora_init"):
        config = tmp_path / "sent" / name / "adapter_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "init_lora_weights": True}))
    before = (tmp_path / "sent" / "trained" / "adapter_model.safetensors").read_bytes()
    made, notes = upload(tmp_path / "sent", tmp_path / "into")
    assert (made / "adapter_model.safetensors").read_bytes() == before
    assert any("needs no initial one" in note for note in notes)


def test_alone_it_is_an_adapter_like_others(base: Any, tmp_path: Path) -> None:
    train(base[0], "olora", tmp_path / "sent")
    (tmp_path / "sent" / "trained").rename(tmp_path / "elsewhere")
    made, _ = upload(tmp_path / "sent", tmp_path / "into")
    assert {path.name for path in made.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
