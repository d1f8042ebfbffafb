"""Every way in which PEFT trains and saves embedding layers is served as PEFT loads it, or PEFT itself loses a part.

PEFT trains, saves and loads each adapter here. One whose loaded model answers as the trained model did must be served,
with its log-probabilities and its greedy tokens. One that PEFT saved without a part of the trained model must be
refused, and the refusal's advice must lead to a file that is served.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.grids import grid
from lorikeet_testing.tiny_models import VOCAB, adapter_at, geometry_of, pack_for, save_model
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.peft_format import (
    WEIGHTS_FILE,
    AdapterLimits,
    ValidationReport,
    inspect_adapter,
    resolve_patterns,
    to_peft_form,
)
from lora_engine.request import GenerationRequest, PromptLogprobs, SamplingParams

EMBEDDING, HEAD = "embed_tokens", "lm_head"
LINEAR = ["q_proj", "down_proj"]
TOKENS = [3, 65, 200, 500]
SIZES = {"same": 0, "larger": VOCAB + 11, "smaller": VOCAB - 9}
PLACES = {"embedding": [EMBEDDING], "head": [HEAD], "both": [EMBEDDING, HEAD]}
METHODS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "LoRA": lambda names: {"target_modules": [*LINEAR, *names]},
    "copy": lambda names: {"modules_to_save": [*names]},
    "tokens": lambda names: {"trainable_token_indices": {name: [*TOKENS] for name in names}},
}
PLAIN = {f"{method} {place}": METHODS[method](PLACES[place]) for method, place in itertools.product(METHODS, PLACES)}
# Two methods at once, and other ways to write the same. PEFT refuses to train some of them.
MIXED: dict[str, dict[str, Any]] = {
    **{
        f"{one} {first}, {other} {second}": METHODS[one](PLACES[first]) | METHODS[other](PLACES[second])
        for one, other in (("LoRA", "copy"), ("LoRA", "tokens"), ("copy", "tokens"))
        for first, second in itertools.product(PLACES, PLACES)
    },
    "tokens of the list alone": {"trainable_token_indices": TOKENS},
    "tokens that differ": {"trainable_token_indices": {EMBEDDING: [3, 65], HEAD: [65, 77]}},
    "tokens in another order": {"trainable_token_indices": {EMBEDDING: TOKENS, HEAD: TOKENS[::-1]}},
    "head's tokens first": {"trainable_token_indices": {HEAD: TOKENS, EMBEDDING: TOKENS}},
    "pattern": {"target_modules": r".*(q_proj|embed_tokens)"},
    "full name": {"target_modules": ["q_proj", "model.embed_tokens"]},
    "none": {},
}
KINDS = PLAIN | MIXED
# What was refused before although PEFT loads it, beside the pairs of all settings.
_ORDINARY = {
    (True, "larger", "LoRA embedding", False),
    (True, "larger", "LoRA head", False),
    (True, "same", "tokens both", False),
    (True, "same", "tokens both", True),
    (True, "same", "LoRA embedding, copy head", True),
    (True, "larger", "LoRA head, tokens embedding", False),
    (True, "smaller", "LoRA head, tokens embedding", False),
    (False, "larger", "LoRA embedding, tokens head", True),
    (False, "larger", "LoRA head, copy head", False),
}


def _is_ordinary(tied: bool, size: str, kind: str, tying: bool) -> bool:
    if (tied, size, kind, tying) in _ORDINARY:
        return True
    if kind not in PLAIN:
        return False
    method, place = divmod(list(PLAIN).index(kind), 3)
    number = list(SIZES).index(size)
    return place == (method + number) % 3 and tying == ((method + tied) % 2 == 1)


@dataclass
class Base:
    """A base model as users have it, and an engine that serves it."""

    folder: Path
    model: Any
    engine: Engine
    source: LoadedAdapters

    def resized(self, size: str) -> Any:
        model = copy.deepcopy(self.model)
        if SIZES[size]:
            model.resize_token_embeddings(SIZES[size], mean_resizing=False)
        return model

    def inspect(self, folder: Path) -> ValidationReport:
        to_peft_form(folder, AdapterLimits())
        return inspect_adapter(folder, geometry_of(self.engine))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Base]:
    known: dict[bool, Base] = {}

    def base(tied: bool) -> Base:
        if tied not in known:
            folder = tmp_path_factory.mktemp("tied" if tied else "untied") / "model"
            save_model("llama3-scaled-rope-tied" if tied else "llama2-mha", folder)
            source = LoadedAdapters()
            engine = Engine(EngineConfig(model=folder, pool_mb=32), source)
            known[tied] = Base(folder, AutoModelForCausalLM.from_pretrained(folder), engine, source)
        return known[tied]

    return base


def prompt(size: str) -> torch.Tensor:
    """Trained and other tokens; of a larger vocabulary some new ones, which only PEFT's model reads, at the end."""
    return torch.tensor([[1, 3, 65, 200, 77, 12, 33, 480, 70, 65, 3, *([514, 520] if size == "larger" else [])]])


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model.eval()(input_ids=ids).logits[0].float()
    return logits


def train(model: Any, settings: dict[str, Any], tying: bool) -> Any:
    torch.manual_seed(7)
    config = {"r": 4, "lora_alpha": 8, "target_modules": LINEAR, "init_lora_weights": False, **copy.deepcopy(settings)}
    trained = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", ensure_weight_tying=tying, **config))
    for key, parameter in trained.named_parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.08 if "lora_" in key else 0.2)
        elif (EMBEDDING in key or HEAD in key) and len(
            parameter
        ) > VOCAB:  # as if the new tokens had been trained before
            parameter.data[VOCAB:] += torch.randn_like(parameter[VOCAB:])
    return trained


def load(base: Base, size: str, folder: Path) -> Any:
    return PeftModel.from_pretrained(base.resized(size), str(folder))


def is_loaded_whole(loaded: Any, trained: Any, size: str) -> bool:
    ids = prompt(size)
    return torch.allclose(logits_of(loaded, ids), logits_of(trained, ids), atol=1e-5)


def check_served(base: Base, report: ValidationReport, folder: Path, loaded: Any) -> None:
    """The engine's log-probabilities of a prompt and its greedy tokens are the loaded model's."""
    assert report.manifest is not None, report.problems
    resolve_patterns(folder, report.manifest, geometry_of(base.engine))
    adapter = adapter_at(folder.name, folder)
    base.source.add(pack_for(base.engine, adapter))
    ids = prompt("same")[0].tolist()
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    base.engine.add_request(GenerationRequest(folder.name, ids, params, adapter.digest, prompt_logprobs=1))
    tokens: list[int] = []
    logprobs: list[float] = []
    while base.engine.has_work():
        output = base.engine.step()
        for delta in output.deltas:
            tokens += delta.token_ids
            if isinstance(delta.of_prompt, PromptLogprobs):
                logprobs += delta.of_prompt.logprobs
        assert all(end.error is None for end in output.finished)
    logits = logits_of(loaded, torch.tensor([[*ids, *tokens[:-1]]]))
    theirs = logits.log_softmax(dim=-1)
    want = [float(theirs[place, token]) for place, token in enumerate(ids[1:])]
    np.testing.assert_allclose(logprobs[1:], want, atol=2e-4, rtol=1e-5)
    assert tokens == logits.argmax(dim=-1)[len(ids) - 1 :].tolist()


def follow_advice(report: ValidationReport, trained: Any, folder: Path) -> None:
    """Put the matrices into the file that the refusal names."""
    weights = load_file(folder / WEIGHTS_FILE)
    assert {problem.code for problem in report.problems} == {"vocabulary_mismatch"}, report.problems
    for problem in report.problems:
        name = re.search(r'name = "([\w.]+)"', problem.fix)
        assert name is not None, problem
        weights[name[1]] = trained.state_dict()[name[1]].clone()
    save_file(weights, folder / WEIGHTS_FILE)


@pytest.mark.parametrize(
    ("tied", "size", "kind", "tying"), grid([False, True], SIZES, KINDS, [False, True], ordinary=_is_ordinary)
)
def test_what_peft_saves_of_embedding_layers_is_served(
    bases: Callable[[bool], Base], tmp_path: Path, tied: bool, size: str, kind: str, tying: bool
) -> None:
    base = bases(tied)
    refusals: tuple[type[Exception], ...] = (TypeError, ValueError) if kind in MIXED else ()  # PEFT trains plain ones
    try:
        trained = train(base.resized(size), KINDS[kind], tying)
        logits_of(trained, prompt(size))
    except refusals:
        return
    folder = tmp_path / f"{tied} {size} {kind} {tying}"
    trained.save_pretrained(folder)
    loaded = load(base, size, folder)
    report = base.inspect(folder)
    if not is_loaded_whole(loaded, trained, size):
        assert size == "larger"
        follow_advice(report, trained, folder)
        loaded, report = load(base, size, folder), base.inspect(folder)
        assert is_loaded_whole(loaded, trained, size)
    check_served(base, report, folder, loaded)


@pytest.mark.parametrize("kind", ["none", "copy head", "tokens embedding", "LoRA embedding"])
def test_the_advice_to_save_both_matrices_is_right(bases: Callable[[bool], Base], tmp_path: Path, kind: str) -> None:
    """PEFT leaves them out where it does not find the base's configuration, which says that they were resized."""
    base = bases(kind == "LoRA embedding")
    folder = tmp_path / kind
    settings = dict(KINDS[kind])
    if "trainable_token_indices" in settings:
        settings["trainable_token_indices"] = [3, VOCAB + 2]
    trained = train(base.resized("larger"), settings, tying=False)
    trained.save_pretrained(folder, save_embedding_layers=False)
    report = base.inspect(folder)
    if kind == "none":  # nothing in the files tells of new tokens: it is the base's vocabulary, as it is for PEFT
        check_served(base, report, folder, load(base, "same", folder))
    else:
        assert {problem.code for problem in report.problems} == {"vocabulary_mismatch"}
        assert all("save_embedding_layers=True" in problem.fix for problem in report.problems)
    trained.save_pretrained(folder, save_embedding_layers=True)
    loaded = load(base, "larger", folder)
    assert is_loaded_whole(loaded, trained, "larger")
    check_served(base, base.inspect(folder), folder, loaded)


def test_tokens_of_a_tied_pair_do_not_fit_an_untied_base(bases: Callable[[bool], Base], tmp_path: Path) -> None:
    """PEFT saves the embedding's rows alone for both; a head of its own would be left as it is."""
    trained = train(bases(True).resized("same"), KINDS["tokens both"], tying=False)
    trained.save_pretrained(tmp_path)
    geometry = geometry_of(bases(True).engine)
    assert inspect_adapter(tmp_path, geometry).ok
    (problem,) = inspect_adapter(tmp_path, geometry_of(bases(False).engine)).problems[-1:]
    assert problem.code == "missing_tensor" and "different matrices" in problem.message
