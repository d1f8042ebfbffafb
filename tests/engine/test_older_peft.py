"""Adapters that releases of PEFT from 0.4 on wrote (`older_peft/write.py`) answer as with the PEFT of today."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, pack_for, save_model
from peft import PeftModel

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.peft_format import AdapterLimits, to_peft_form, unpack_upload
from lora_engine.request import GenerationRequest, SamplingParams

WRITTEN = Path(__file__).parent / "older_peft"
FOLDERS = sorted(path.parent for path in WRITTEN.glob("*/*/adapter_config.json"))
NAMES = [str(folder.relative_to(WRITTEN)) for folder in FOLDERS]
NEW_TOKENS = 8


class Served:
    """A model, and every adapter as the validation leaves it."""

    def __init__(self, root: Path) -> None:
        self.model = save_model("llama3-scaled-rope-tied", root / "model")
        self.folder = root / "model"
        self.adapters: dict[str, Adapter] = {}
        for name, folder in zip(NAMES, FOLDERS, strict=True):
            made = unpack_upload({path.name: path for path in folder.iterdir()}, root / name)
            to_peft_form(made, AdapterLimits())
            self.adapters[name] = adapter_at(name, made)

    def with_todays_peft(self, name: str, prompt: list[int]) -> list[int]:
        reference: Any = PeftModel.from_pretrained(copy.deepcopy(self.model), str(WRITTEN / name)).float().eval()
        ids = torch.tensor([prompt])
        found = reference.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        return list(found[0, len(prompt) :].tolist())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(tmp_path_factory.mktemp("older"))


def test_five_releases_are_here() -> None:
    assert {name.partition("/")[0] for name in NAMES} == {"0.4.0", "0.7.1", "0.10.0", "0.13.2", "0.17.1"}
    assert len(NAMES) >= 5 * 2


def test_one_batch_of_all_of_them_agrees_with_peft(served: Served) -> None:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=served.folder, pool_mb=32, max_lora_rank=16), source)
    poison(engine)
    prompts = {name: [(31 * n + 7 * number) % VOCAB for n in range(12)] for number, name in enumerate(NAMES)}
    for name, prompt in prompts.items():
        adapter = served.adapters[name]
        source.add(pack_for(engine, adapter))
        params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
        engine.add_request(GenerationRequest(name, prompt, params, adapter.digest))
    tokens: dict[str, list[int]] = {name: [] for name in NAMES}
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
    assert tokens == {name: served.with_todays_peft(name, prompt) for name, prompt in prompts.items()}
