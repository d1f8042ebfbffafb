"""Several adapters as one: token for token what PEFT's ``add_weighted_adapter`` makes of them with "cat"."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import VOCAB, Adapter, adapter_at, geometry_of, pack_for, save_model
from peft import LoraConfig, PeftModel, get_peft_model

from lora_engine.adapters.combining import combine
from lora_engine.adapters.delta_norms import delta_norms
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter, TargetShapes
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.adapters.targets import LoraSharding
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import (
    AdapterLimits,
    Part,
    combined_digest,
    digests_of,
    is_combined,
    parts_of,
)
from lora_engine.request import GenerationRequest, SamplingParams

pytestmark = pytest.mark.usefixtures("few_programs")
FAMILY = "llama3-scaled-rope-tied"
NEW_TOKENS = 8
ADAPTERS: dict[str, dict[str, Any]] = {
    "narrow": {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"]},
    "wide": {"r": 11, "lora_alpha": 7, "target_modules": ["q_proj", "down_proj", "o_proj"]},
    "root": {"r": 8, "lora_alpha": 8, "use_rslora": True, "target_modules": ["v_proj", "gate_proj", "up_proj"]},
    "same scale": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
}
COMBINATIONS: dict[str, dict[str, float]] = {
    "one, halved": {"wide": 0.5},
    "two": {"narrow": 1.0, "wide": 1.0},
    "two, weighted": {"narrow": 0.7, "root": -0.4},
    "of one scale": {"narrow": 1.0, "same scale": 1.0},
    "all": {"narrow": 0.25, "wide": 1.5, "root": 0.6, "same scale": 1.0},
}


class Made:
    def __init__(self, root: Path) -> None:
        self.folder = root / "model"
        self.model = save_model(FAMILY, self.folder)
        self.adapters: dict[str, Adapter] = {}
        kinds = ADAPTERS | {
            "DoRA": ADAPTERS["narrow"] | {"use_dora": True},
            "activated": ADAPTERS["narrow"] | {"alora_invocation_tokens": [1, 2]},
        }
        for number, (name, settings) in enumerate(kinds.items()):
            torch.manual_seed(number)
            config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings)
            trained = get_peft_model(copy.deepcopy(self.model), config)
            for key, parameter in trained.named_parameters():
                if "lora_" in key:
                    parameter.data = torch.randn_like(parameter) * 0.08
            trained.save_pretrained(root / str(number))
            self.adapters[name] = adapter_at(name, root / str(number))

    def digest(self, name: str) -> str:
        if name in COMBINATIONS:
            return combined_digest(Part(self.adapters[part].digest, w) for part, w in COMBINATIONS[name].items())
        return self.adapters[name].digest if name else ""

    def combined(self, engine: Engine, name: str, max_rank: int = 256) -> PackedAdapter:
        packed = {adapter.digest: pack_for(engine, adapter) for adapter in self.adapters.values()}
        digest = self.digest(name)
        parts = [(packed[part.digest], part.weight) for part in parts_of(digest)]
        return combine(digest, parts, engine.pool.geometry, engine.targets, PageableMemory(), max_rank)

    def engine(self, **settings: Any) -> Engine:
        source = LoadedAdapters()
        engine = Engine(EngineConfig(model=self.folder, **{"pool_mb": 32, **settings}), source)
        for name in ADAPTERS:
            source.add(pack_for(engine, self.adapters[name]))
        for name in COMBINATIONS:
            source.add(self.combined(engine, name))
        poison(engine)
        return engine

    def reference(self, name: str) -> Any:
        """PEFT's own combination. It takes ``use_rslora`` from the first, so no such adapter is the first."""
        parts = COMBINATIONS.get(name, {name: 1.0})
        model = copy.deepcopy(self.model)
        first = next(iter(parts))
        peft = PeftModel.from_pretrained(model, str(self.adapters[first].folder), adapter_name=first.replace(" ", "_"))
        for part in list(parts)[1:]:
            peft.load_adapter(str(self.adapters[part].folder), adapter_name=part.replace(" ", "_"))
        names = [part.replace(" ", "_") for part in parts]
        if name in COMBINATIONS:
            peft.add_weighted_adapter(names, list(parts.values()), "combined", combination_type="cat")
            peft.set_adapter("combined")
        return peft.float().eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("combined"))


@pytest.fixture(scope="module")
def references(made: Made) -> dict[str, Any]:
    return {"": made.model} | {name: made.reference(name) for name in (*ADAPTERS, *COMBINATIONS)}


def requests_of(made: Made, names: Iterable[str], copies: int = 1) -> list[GenerationRequest]:
    """Of each with prompts that begin alike, so that a prefix cache could mix them up."""
    rnd = random.Random(7)
    shared = [rnd.randrange(VOCAB) for _ in range(20)]
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    return [
        GenerationRequest(
            f"{name}#{copy_}", [*shared, *(rnd.randrange(VOCAB) for _ in range(9))], params, made.digest(name)
        )
        for copy_, name in itertools.product(range(copies), names)
    ]


def check(engine: Engine, references: dict[str, Any], requests: list[GenerationRequest]) -> int:
    """That every token is PEFT's; how often a sequence was pre-empted."""
    for request in requests:
        engine.add_request(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    preemptions = 0
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None, end.error.message
            preemptions += end.usage.preemptions
    for request in requests:
        ids = torch.tensor([[*request.prompt_token_ids, *tokens[request.request_id][:-1]]])
        name, new = request.request_id.partition("#")[0], request.sampling.max_tokens
        with torch.inference_mode():
            best = references[name](input_ids=ids).logits[0].argmax(dim=-1)[-new:]
        assert tokens[request.request_id] == best.tolist(), name
    return preemptions


EVERYTHING = ("", *ADAPTERS, *COMBINATIONS)


@pytest.mark.parametrize("settings", [{"step_tokens": 37}, {"mode": "auto"}, {"deterministic": True}], ids=str)
def test_one_batch_agrees_with_peft(made: Made, references: dict[str, Any], settings: dict[str, Any]) -> None:
    check(made.engine(**settings), references, requests_of(made, EVERYTHING))


def test_merged_into_the_weights(made: Made, references: dict[str, Any]) -> None:
    check(made.engine(mode="merged"), references, requests_of(made, ["all"], copies=2))


def test_a_small_pool_changes_nothing(made: Made, references: dict[str, Any]) -> None:
    engine = made.engine(pool_mb=1, page_tokens=2)
    assert check(engine, references, requests_of(made, EVERYTHING, copies=12))
    assert engine.core.device_tier.stats.adapters > len(ADAPTERS) + len(COMBINATIONS)


def test_the_triton_backend_agrees_with_peft(made: Made, references: dict[str, Any]) -> None:
    requests = [
        GenerationRequest(
            r.request_id, r.prompt_token_ids[:5], SamplingParams(max_tokens=2, ignore_eos=True), r.adapter_digest
        )
        for r in requests_of(made, ["narrow", "two, weighted", "all"])
    ]
    check(made.engine(backend="triton", dtype="float32", cuda_graphs=False), references, requests)


@pytest.mark.gpu
def test_gpu_one_batch_agrees_with_peft(made: Made, references: dict[str, Any]) -> None:
    engine = made.engine(device="cuda", backend="triton", dtype="float32")
    for _ in range(2):
        check(engine, references, requests_of(made, EVERYTHING))


def test_only_plain_lora_is_combined(made: Made) -> None:
    engine = made.engine()
    for kind in ("DoRA", "activated"):
        part = pack_for(engine, made.adapters[kind])
        with pytest.raises(StageError) as refused:
            combine("x", [(part, 1.0)], engine.pool.geometry, engine.targets, PageableMemory(), 256)
        assert refused.value.code == "adapters_cannot_be_combined" and refused.value.fix
    with pytest.raises(StageError, match="Together the adapters have rank 18; the limit is 16") as refused:
        made.combined(engine, "all", max_rank=16)
    assert refused.value.code == "rank_too_high"


def test_dropping_a_part_drops_what_is_made_of_it(made: Made, references: dict[str, Any]) -> None:
    engine = made.engine()
    check(engine, references, requests_of(made, ["two", "of one scale", "one, halved"]))
    assert engine.drop_adapter(made.digest("wide"))
    assert [slot.digest for slot in engine.core.device_tier.slots()] == [made.digest("of one scale")]


@pytest.mark.parametrize("sharding", LoraSharding)
def test_every_tensor_parallel_rank_has_its_part(made: Made, sharding: LoraSharding) -> None:
    """Combined for all ranks at once, each rank's pages are what it would combine itself, and add the same."""
    engine, digest = made.engine(), made.digest("two, weighted")
    geometry, shapes = engine.pool.geometry, engine.model_config.target_shapes(0, 2)
    halves = PoolGeometry(geometry.num_layers, geometry.page_tokens, geometry.kv_heads // 2, geometry.head_dim)

    def combined(rank: int, *, all_ranks: bool) -> PackedAdapter:
        targets, parts = TargetShapes(shapes, rank, 2, sharding=sharding), []
        packer = PoolPacker(geometry_of(engine), AdapterLimits(), halves, targets, torch.float32, PageableMemory())
        for part in parts_of(digest):
            folder = next(a.folder for a in made.adapters.values() if a.digest == part.digest)
            packed = packer.pack(part.digest, folder)
            if not all_ranks:
                assert packed.of_ranks is not None
                packed = replace(packed, data=packed.of_ranks[rank], of_ranks=None)
            parts.append((packed, part.weight))
        return combine(digest, parts, halves, targets, PageableMemory(), 256)

    together = combined(0, all_ranks=True)
    assert together.of_ranks is not None and torch.equal(together.data, together.of_ranks[0])
    for rank in range(2):
        alone = combined(rank, all_ranks=False)
        assert alone.layout == together.layout and torch.equal(alone.data, together.of_ranks[rank])
    whole = delta_norms(made.combined(engine, "two, weighted"), geometry)
    for norms, expected in zip(delta_norms(together, halves), whole, strict=True):
        assert norms == pytest.approx(expected)


def test_a_combination_is_called_by_its_content() -> None:
    one, two = ("sha256:" + digit * 64 for digit in "12")
    digest = combined_digest([Part(two, 0.5), Part(one, -1.25)])
    assert digest == combined_digest([Part(one, -1.25), Part(two, 0.5)]) == f"{one}*-1.2500+{two}*0.5000"
    assert parts_of(digest) == (Part(one, -1.25), Part(two, 0.5)) and digests_of(digest) == (one, two)
    assert combined_digest([Part(one, 1.0)]) == one and not is_combined(one)
    for odd in ("", one, "sha256:x*1.0", f"{one}*nan", f"{one}*1.0+", "+".join([f"{one}*1.0"] * 5), "*"):
        assert parts_of(odd) == (Part(odd, 1.0),)
