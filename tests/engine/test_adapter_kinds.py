"""Kinds of adapters that PEFT writes: which are served, token for token as PEFT does it, and which are refused by name.

`WRITE_TABLES=1` with this file writes the table in the documentation.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.ranks import Run, on_ranks
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, geometry_of, pack_for, save_model
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.adalora import AdaLoraLayer
from peft.tuners.lora.config import BdLoraConfig, KasaConfig

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.parallel import Parallel
from lora_engine.peft_format import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    AdapterLimits,
    Part,
    combined_digest,
    inspect_adapter,
    to_peft_form,
)
from lora_engine.request import GenerationRequest, SamplingParams

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/adapter-forms.md"
FAMILY = "llama3-scaled-rope-tied"
TARGETS = ["q_proj", "v_proj", "down_proj"]
RANK = 512  # that engines of these tests admit
NEW_TOKENS = 8
DIVIDES = {"num_key_value_heads": 4, "intermediate_size": 152}  # by the ranks of these tests
Save = Callable[[Any, Path], None]


@dataclass(frozen=True)
class AdapterKind:
    """``refused`` is a part of what the report says; "" for a kind that is served."""

    name: str
    save: Save
    refused: str = ""


def randomise(model: Any, size: float = 0.08) -> None:
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            trained = "lora_" in key or key.endswith(".bias")
            parameter.data = parameter.data + torch.randn_like(parameter) * (size if trained else 0.01)


def plain(**settings: Any) -> Save:
    """A LoraConfig with these settings, trained to random weights."""

    def save(model: Any, folder: Path) -> None:
        config = {"r": 4, "lora_alpha": 8, "target_modules": TARGETS, "init_lora_weights": False, **settings}
        trained = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **config))
        randomise(trained)
        trained.save_pretrained(folder)

    return save


def of_changed_base(init: str, *, converted: bool, **settings: Any) -> Save:
    """Training that begins with a part of the base's weights taken into A and B, and out of the base."""

    def save(model: Any, folder: Path) -> None:
        config = LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=TARGETS, init_lora_weights=init, **settings
        )
        trained = get_peft_model(copy.deepcopy(model), config)
        own: Any = trained.peft_config["default"]
        own.init_lora_weights = True
        trained.save_pretrained(folder / "before")
        own.init_lora_weights = init
        randomise(trained)
        before = {"path_initial_model_for_weight_conversion": str(folder / "before")} if converted else {}
        trained.save_pretrained(folder, **before)

    return save


def that_says(**settings: Any) -> Save:
    """LoRA's own files, with these settings in the configuration: training by them takes what is not here."""

    def save(model: Any, folder: Path) -> None:
        plain()(model, folder)
        config = folder / "adapter_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))

    return save


def eva(model: Any, folder: Path) -> None:
    """EVA shares the ranks out by what inputs vary, and takes LoRA off modules that are left with rank 0."""
    from peft import EvaConfig, initialize_lora_eva_weights

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=4,
        lora_alpha=8,
        target_modules=TARGETS,
        init_lora_weights="eva",
        eva_config=EvaConfig(rho=2),
    )
    trained: Any = get_peft_model(copy.deepcopy(model), config, low_cpu_mem_usage=True)
    layers = {name: module for name, module in trained.named_modules() if hasattr(module, "lora_A")}
    ranks = dict(zip(layers, [0, 7, 2, 4, 0, 8, 1, 3], strict=False))
    state = {name: torch.randn(rank, layers[name].in_features) for name, rank in ranks.items()}
    initialize_lora_eva_weights(trained, eva_state_dict=state)
    randomise(trained)
    trained.save_pretrained(folder)


def adalora(*ranks: int) -> Save:
    """``ranks``: what its schedule left of eight to the modules, in turn; nothing yet without."""

    def save(model: Any, folder: Path) -> None:
        config = peft.AdaLoraConfig(total_step=10, init_r=8, lora_alpha=12, **ON_TARGETS)
        trained: Any = get_peft_model(copy.deepcopy(model), config)
        randomise(trained)
        if ranks:
            modules = [name for name, module in trained.named_modules() if isinstance(module, AdaLoraLayer)]
            left = zip(modules, itertools.cycle(ranks), strict=False)
            trained.peft_config["default"].rank_pattern = {
                f"{name.removeprefix('base_model.model.')}.lora_E.default": (torch.randperm(8) < rank).tolist()
                for name, rank in left
            }
        trained.save_pretrained(folder)

    return save


def other_method(config: Any) -> Save:
    def save(model: Any, folder: Path) -> None:
        get_peft_model(copy.deepcopy(model), config).save_pretrained(folder)

    return save


def as_lora(config: Any) -> Save:
    """What the report says to do with another method's adapter, where it can be done."""

    def save(model: Any, folder: Path) -> None:
        trained = get_peft_model(copy.deepcopy(model), config)
        randomise(trained)
        for name, parameter in trained.named_parameters():
            if "hada_" in name:
                parameter.data = torch.randn_like(parameter) * 0.3
        peft.save_as_lora(folder, trained, rank=32)

    return save


BLOCKS = BdLoraConfig(target_modules_bd_a=["down_proj"], target_modules_bd_b=["q_proj"], nblocks=2, match_strict=False)
ACTIVATED, INVOCATION = "aLoRA (`alora_invocation_tokens`)", [5, 6]
CAUSAL: dict[str, Any] = {"task_type": "CAUSAL_LM"}
ON_TARGETS: dict[str, Any] = {**CAUSAL, "target_modules": TARGETS}
KINDS = [
    AdapterKind("LoRA", plain()),
    AdapterKind("rsLoRA (`use_rslora`)", plain(use_rslora=True)),
    AdapterKind(
        "rank 512 (`--max-lora-rank 512`)", plain(r=512, lora_alpha=16, target_modules=["q_proj", "v_proj", "o_proj"])
    ),
    AdapterKind("ranks and scales by pattern", plain(rank_pattern={"q_proj": 9}, alpha_pattern={"v_proj": 3})),
    AdapterKind("EVA, with modules of rank 0", eva),
    AdapterKind("orthogonal (`init_lora_weights`)", plain(init_lora_weights="orthogonal")),
    AdapterKind("MiCA (`init_lora_weights`)", plain(init_lora_weights="mica")),
    AdapterKind("PiSSA, converted when it was saved", of_changed_base("pissa", converted=True)),
    AdapterKind(
        "PiSSA of rsLoRA, converted when it was saved", of_changed_base("pissa", converted=True, use_rslora=True)
    ),
    AdapterKind("OLoRA, converted when it was saved", of_changed_base("olora", converted=True)),
    AdapterKind("PiSSA, unconverted", of_changed_base("pissa", converted=False), "changed the base model's weights"),
    AdapterKind("OLoRA, unconverted", of_changed_base("olora", converted=False)),
    AdapterKind(
        'OLoRA of rsLoRA, ranks by pattern, `bias="all"`, unconverted',
        of_changed_base("olora", converted=False, use_rslora=True, rank_pattern={"q_proj": 9}, bias="all"),
    ),
    *(
        AdapterKind(f"{name}, unconverted", that_says(init_lora_weights=init), "changed the base model's weights")
        for name, init in (("CorDA", "corda"), ("LoRA-GA", "lora_ga"), ("LoftQ", "loftq"))
    ),
    AdapterKind(
        "an initialisation that is not known", that_says(init_lora_weights="svdinit"), "may have changed the base"
    ),
    AdapterKind("DoRA (`use_dora`)", plain(use_dora=True)),
    AdapterKind("DoRA of rsLoRA, ranks by pattern", plain(use_dora=True, use_rslora=True, rank_pattern={"q_proj": 9})),
    AdapterKind('DoRA and `bias="all"`', plain(use_dora=True, bias="all", target_modules="all-linear")),
    AdapterKind('`bias="lora_only"`', plain(bias="lora_only")),
    AdapterKind('`bias="all"`', plain(bias="all")),
    AdapterKind("`lora_bias`", plain(lora_bias=True)),
    AdapterKind("LoRA on `lm_head`", plain(target_modules=["q_proj", "lm_head"])),
    AdapterKind("LoRA on `embed_tokens`", plain(target_modules=["q_proj", "embed_tokens"])),
    AdapterKind(
        "`modules_to_save` of `lm_head` and `embed_tokens`", plain(modules_to_save=["lm_head", "embed_tokens"])
    ),
    AdapterKind("`modules_to_save` of others", plain(modules_to_save=["norm"]), "fully trained copies of norm"),
    AdapterKind("`trainable_token_indices`", plain(trainable_token_indices=[1, 2])),
    AdapterKind(ACTIVATED, plain(alora_invocation_tokens=INVOCATION)),
    AdapterKind(
        "LoRA on parameters (`target_parameters`)", plain(target_parameters=["up_proj.weight"]), "target_parameters"
    ),
    AdapterKind("QALoRA", that_says(use_qalora=True), "use_qalora"),
    AdapterKind("block-diagonal LoRA (`use_bdlora`)", plain(use_bdlora=BLOCKS)),
    AdapterKind("KaSA", plain(kasa_config=KasaConfig()), "kasa_config"),
    AdapterKind("Arrow", that_says(arrow_config={"top_k": 2}), "arrow_config"),
    AdapterKind("`layer_replication`", plain(layer_replication=[[0, 2], [1, 3]]), "layer_replication"),
    AdapterKind("another task (`SEQ_CLS`)", that_says(task_type="SEQ_CLS"), "trained for SEQ_CLS"),
    AdapterKind("LoHa", other_method(peft.LoHaConfig(**ON_TARGETS)), "LOHA"),
    AdapterKind("LoHa, converted (`peft.save_as_lora`)", as_lora(peft.LoHaConfig(**ON_TARGETS))),
    AdapterKind("LoKr", other_method(peft.LoKrConfig(**ON_TARGETS)), "LOKR"),
    AdapterKind("VeRA", other_method(peft.VeraConfig(**CAUSAL, target_modules=["q_proj"])), "VERA"),
    AdapterKind("RandLoRA", other_method(peft.RandLoraConfig(**CAUSAL, target_modules=["q_proj"])), "RANDLORA"),
    AdapterKind("MiSS", other_method(peft.MissConfig(**CAUSAL, target_modules=["q_proj"])), "MISS"),
    AdapterKind("DeLoRA", other_method(peft.DeloraConfig(**ON_TARGETS)), "DELORA"),
    AdapterKind("AdaLoRA", adalora()),
    AdapterKind("AdaLoRA that its budget left with fewer ranks", adalora(7, 2, 4, 0, 8, 1, 3, 0)),
    AdapterKind("OFT", other_method(peft.OFTConfig(oft_block_size=2, r=0, **ON_TARGETS)), "OFT"),
    AdapterKind("IA³", other_method(peft.IA3Config(**CAUSAL)), "is IA3"),
    AdapterKind(
        "trainable tokens alone", other_method(peft.TrainableTokensConfig(token_indices=[1], **CAUSAL)), "TRAINABLE"
    ),
    AdapterKind("X-LoRA", that_says(peft_type="XLORA"), "XLORA"),
    AdapterKind(
        "prompt tuning", other_method(peft.PromptTuningConfig(num_virtual_tokens=3, **CAUSAL)), "PROMPT_TUNING"
    ),
    AdapterKind(
        "prefix tuning", other_method(peft.PrefixTuningConfig(num_virtual_tokens=3, **CAUSAL)), "PREFIX_TUNING"
    ),
]
SERVED = [kind for kind in KINDS if not kind.refused]


def uploaded(written: Path, folder: Path) -> Path:
    """The files as the platform keeps them."""
    folder.mkdir()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        shutil.copy(written / name, folder)
    to_peft_form(folder, AdapterLimits(max_rank=RANK))
    return folder


class Made:
    """A model and an adapter of every kind, written by PEFT."""

    def __init__(self, root: Path) -> None:
        self.model = save_model(FAMILY, root / "model", attention_bias=True, mlp_bias=True, **DIVIDES)
        self.folder = root / "model"
        self.adapters: dict[str, Adapter] = {}
        self._written: dict[str, Path] = {}
        for number, kind in enumerate(KINDS):
            torch.manual_seed(number)
            self._written[kind.name] = written = root / f"{number}-written"
            kind.save(self.model, written)
            self.adapters[kind.name] = adapter_at(kind.name, uploaded(written, root / str(number)))

    def engine(self, **settings: Any) -> Engine:
        source = LoadedAdapters()
        config = {"pool_mb": 32, "max_lora_rank": RANK, **settings}
        engine = Engine(EngineConfig(model=self.folder, **config), source)
        for kind in SERVED:
            source.add(pack_for(engine, self.adapters[kind.name]))
        return engine

    def greedy(self, prompt: list[int], name: str) -> list[int]:
        model = copy.deepcopy(self.model)
        reference: Any = PeftModel.from_pretrained(model, str(self._written[name])).float().eval()
        ids = torch.tensor([prompt])
        out = reference.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return list(out[0, len(prompt) :].tolist())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def wanted(made: Made) -> dict[str, tuple[list[int], list[int]]]:
    """Of each kind that is served: a prompt, and what PEFT makes of it."""
    prompts = {
        kind.name: [random.Random(n).randrange(VOCAB) for _ in range(9 + 5 * (n % 12))] for n, kind in enumerate(SERVED)
    }
    prompts[ACTIVATED][30:30] = INVOCATION
    return {name: (prompt, made.greedy(prompt, name)) for name, prompt in prompts.items()}


def run(engine: Engine, made: Made, prompts: dict[str, list[int]]) -> tuple[dict[str, list[int]], int]:
    """Tokens of each kind's prompt ("kind#copy" for more of them) in one batch; how often a sequence was pre-empted."""
    for name, prompt in prompts.items():
        params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
        engine.add_request(GenerationRequest(name, prompt, params, made.adapters[name.partition("#")[0]].digest))
    tokens: dict[str, list[int]] = {name: [] for name in prompts}
    preemptions = 0
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None
            preemptions += end.usage.preemptions
    return tokens, preemptions


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.name)
def test_what_is_served_agrees_with_peft(made: Made, wanted: Any, kind: AdapterKind) -> None:
    prompt, tokens = wanted[kind.name]
    engine = made.engine()
    poison(engine)
    assert run(engine, made, {kind.name: prompt})[0] == {kind.name: tokens}


def test_one_batch_of_all_kinds_agrees_with_peft(made: Made, wanted: Any) -> None:
    engine = made.engine(step_tokens=37)
    poison(engine)
    tokens, _ = run(engine, made, {name: prompt for name, (prompt, _) in wanted.items()})
    assert tokens == {name: expected for name, (_, expected) in wanted.items()}


def test_a_small_pool_changes_nothing(made: Made, wanted: Any) -> None:
    """Sequences are pre-empted and adapters evicted, among them the one of rank 512."""
    engine = made.engine(pool_mb=3, page_tokens=2, prefix_cache=False)
    poison(engine)
    prompts = {f"{name}#{copy}": prompt for name, (prompt, _) in wanted.items() for copy in range(12)}
    tokens, preemptions = run(engine, made, prompts)
    assert tokens == {request: wanted[request.partition("#")[0]][1] for request in prompts}
    assert preemptions
    again, _ = run(engine, made, {name: prompt for name, (prompt, _) in wanted.items()})
    assert again == {name: expected for name, (_, expected) in wanted.items()}
    assert engine.core.device_tier.stats.adapters > len(SERVED)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_several_ranks_agree_with_peft(made: Made, wanted: Any, tmp_path: Path, world: int) -> None:
    """All kinds in one batch, and combined ones as one rank has them, in both layouts; then in a pool that is too small
    for them, but for the one of rank 512. The ordinary run does that in the layout with more exchanges only."""
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    digests = {kind.name: made.adapters[kind.name].digest for kind in SERVED}
    asked = {
        f"{name}#{copy}": GenerationRequest(f"{name}#{copy}", prompt, params, digests[name])
        for copy in range(4)
        for name, (prompt, _) in wanted.items()
    }
    one, other, wide = (
        digests[name] for name in ("LoRA", "ranks and scales by pattern", "EVA, with modules of rank 0")
    )
    combined = [
        combined_digest([Part(one, 0.5), Part(other, -1.0)]), combined_digest([Part(wide, 1.5), Part(other, 0.3)])
    ]  # fmt: skip
    requests = [request for name, request in asked.items() if name.endswith("#0")]
    requests += [GenerationRequest(digest, [*range(20)], params, digest) for digest in combined]
    small = [request for name, request in asked.items() if "512" not in name]
    adapters = [made.adapters[kind.name] for kind in SERVED]
    runs = []
    for sharding in ("outer", "full"):
        settings = {"max_lora_rank": RANK, "page_tokens": 2, "lora_sharding": sharding}
        runs.append(Run(made.folder, adapters, requests, {**settings, "pool_mb": 8}, combined))
        if sharding == "full" or world == 4:
            runs.append(Run(made.folder, adapters, small, {**settings, "pool_mb": 1}))
    alone = runs[0].on(Parallel()).tokens
    tokens = {name: wanted[name.partition("#")[0]][1] for name in asked} | {name: alone[name] for name in combined}
    for run, ranks in zip(runs, on_ranks(world, tmp_path, runs), strict=True):
        assert ranks[0].tokens == {request.request_id: tokens[request.request_id] for request in run.requests}
        assert all(ran.tokens == ranks[0].tokens and ran.pages == ranks[0].pages for ran in ranks)
        if run.requests is small and world == 2:  # of four, each has as many bytes for half as much
            assert ranks[0].preemptions and ranks[0].loads >= len(SERVED), "one came twice"


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        pytest.param((SERVED[2].name, SERVED[4].name, SERVED[5].name), id="ranks"),
        pytest.param(("LoRA", "DoRA (`use_dora`)", "`lora_bias`"), id="epilogues"),
        pytest.param(('DoRA and `bias="all"`', '`bias="all"`', "LoRA"), id="more epilogues"),
    ],
)
def test_the_triton_backend_agrees_with_peft(made: Made, wanted: Any, names: tuple[str, ...]) -> None:
    """Through Triton's interpreter: a prompt, and a decode step beside others."""
    engine = made.engine(backend="triton", dtype="float32", cuda_graphs=False)
    poison(engine)
    for name in names:
        params = SamplingParams(max_tokens=2, ignore_eos=True)
        engine.add_request(GenerationRequest(name, wanted[name][0], params, made.adapters[name].digest))
    tokens: dict[str, list[int]] = {name: [] for name in names}
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
    assert tokens == {name: wanted[name][1][:2] for name in names}


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
def test_gpu_one_batch_of_all_kinds_agrees_with_peft(made: Made, wanted: Any, graphs: bool) -> None:
    """Kernels beside each other, decode steps in graphs that are captured when the batch comes, or without."""
    engine = made.engine(device="cuda", dtype="float32", cuda_graphs=graphs, step_tokens=64, max_running=24)
    poison(engine)
    tokens, _ = run(engine, made, {name: prompt for name, (prompt, _) in wanted.items()})
    assert tokens == {name: expected for name, (_, expected) in wanted.items()}


def outcome(made: Made, engine: Engine, kind: AdapterKind) -> str:
    report = inspect_adapter(made.adapters[kind.name].folder, geometry_of(engine), AdapterLimits(max_rank=RANK))
    if report.ok:
        return "served"
    problem = report.problems[0]
    assert problem.code == "unsupported_feature" and problem.fix
    return f"refused: {problem.message} {problem.fix}"


def test_every_kind_has_its_outcome_and_the_documentation_says_it(made: Made) -> None:
    engine = made.engine()
    rows = ["| kind | outcome |", "|---|---|"]
    for kind in KINDS:
        found = outcome(made, engine, kind)
        assert (kind.refused in found) if kind.refused else found == "served", (kind.name, found)
        rows.append(f"| {kind.name} | {found} |")
    table = "\n".join(rows)
    begin, end = "<!-- table: written by tests/engine/test_adapter_kinds.py -->\n\n", "\n\n<!-- end of kinds -->"
    if os.environ.get("WRITE_TABLES"):
        head, rest = PAGE.read_text().split(begin)
        PAGE.write_text(f"{head}{begin}{table}{end}{rest.split(end)[1]}")
    assert (table + end) in PAGE.read_text(), "run this file with WRITE_TABLES=1"
