"""Which sums go through symmetric memory, and what happens where there is none. The sums themselves need GPUs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import Parallel, PartialSum
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel import symmetric_sums
from lora_engine.tensor_parallel.peer_memory import PeerMemory
from lora_engine.tensor_parallel.symmetric_sums import SymmetricAddends, SymmetricSums, with_symmetric_memory
from lora_kernels import peer_sums
from lora_kernels.peer_sums import meeting_places

DEVICE = torch.device("cpu")


@pytest.mark.parametrize(
    ("x", "takes"),
    [
        (torch.zeros(64, 8, dtype=torch.bfloat16), True),
        (torch.zeros(256, dtype=torch.float32), True),  # as much as fits
        (torch.zeros(257 * 2, dtype=torch.bfloat16), False),  # no whole number of 16 bytes
        (torch.zeros(260, dtype=torch.float32), False),  # too large
        (torch.zeros(0, 8), False),
        (torch.zeros(64, dtype=torch.float16), False),
        (torch.zeros(64, dtype=torch.int64), False),
        (torch.zeros(8, 64, dtype=torch.bfloat16)[:, :32], False),
    ],
    ids=lambda value: f"{tuple(value.shape)} {value.dtype}" if isinstance(value, torch.Tensor) else None,
)
def test_sums_are_chosen_by_size_and_type(x: torch.Tensor, takes: bool) -> None:
    assert SymmetricSums(TwoRanks(1024).memory, 0, 1024).takes(x) is takes


class TwoRanks:
    """The memory of two ranks in one process, as rank 0 has it."""

    def __init__(self, num_bytes: int) -> None:
        self.local, self.theirs = (torch.zeros(num_bytes, dtype=torch.uint8) for _ in range(2))
        self.memory = PeerMemory(self.local, (self.local.data_ptr(), self.theirs.data_ptr()), 0)


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The flags' addresses and the rank of each meeting, which waits for nobody."""
    met: list[list[int]] = []
    monkeypatch.setattr(peer_sums, "meet", lambda flags, rank: met.append([*flags.tolist(), rank]))
    return met


def test_sums_before_norms_use_two_buffers_by_turns(meetings: list[list[int]]) -> None:
    ranks = TwoRanks(16 + 128)
    parallel = Parallel(0, 2, shared=SymmetricAddends(ranks.memory, 16, 64))
    for turn in (0, 1, 0):
        place, start = parallel.addend(2, 8, torch.float32), 16 + 64 * turn
        assert place is not None and place.shape == (2, 8) and place.data_ptr() == ranks.local.data_ptr() + start
        partial = parallel.sum(place)
        assert isinstance(partial, PartialSum) and partial.addend is place
        assert partial.addresses.tolist() == [ranks.local.data_ptr() + start, ranks.theirs.data_ptr() + start]
    assert meetings == 3 * [[ranks.local.data_ptr(), ranks.theirs.data_ptr(), 0]]


def test_only_sums_that_fit_are_left_to_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[int] = []
    monkeypatch.setattr(dist, "all_reduce", lambda x, group=None: others.append(x.numel()))
    parallel = Parallel(0, 2, shared=SymmetricAddends(TwoRanks(128).memory, 0, 64))
    assert parallel.addend(2, 9, torch.float32) is None, "too large"
    assert parallel.addend(1, 3, torch.bfloat16) is None, "no whole number of 16 bytes"
    elsewhere = torch.ones(18)
    assert parallel.sum(elsewhere) is elsewhere and others == [18], "it was written to other memory"
    assert Parallel().addend(1, 8, torch.float32) is None


@dataclass
class Doubling:
    """As if two ranks had the same."""

    largest: int
    summed: list[int] = field(default_factory=list)

    def takes(self, x: torch.Tensor) -> bool:
        return x.nbytes <= self.largest

    def all_reduce(self, x: torch.Tensor) -> None:
        self.summed.append(x.numel())
        x.mul_(2)


def test_larger_sums_are_nccls(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[int] = []
    monkeypatch.setattr(dist, "all_reduce", lambda x, group=None: others.append(x.numel()))
    small = Doubling(64)
    parallel = Parallel(0, 2, None, small)
    assert torch.equal(parallel.all_reduce(torch.ones(16)), torch.full((16,), 2.0))
    parallel.all_reduce(torch.ones(17))
    assert (small.summed, others) == ([16], [17])
    meta = torch.ones(4, device="meta")
    assert parallel.all_reduce(meta) is meta and small.summed == [16]


@dataclass(frozen=True)
class Ranks(Parallel):
    """Of which another one says what it can, question by question."""

    world: int = 2
    others: Any = None

    def smallest(self, value: int, device: torch.device) -> int:
        return min(int(value), next(self.others))


@pytest.mark.parametrize(
    ("others", "refused", "allocates", "wrong", "words"),
    [
        ((1, 1, 1), "", True, "", ""),
        ((1,), "this GPU cannot", True, "", "this GPU cannot"),
        ((0,), "", True, "", "another rank has no symmetric memory"),
        ((1, 1), "", False, "", "no such operator"),
        ((1, 0), "", True, "", "another rank has no symmetric memory"),
        ((1, 1, 1), "", True, "a sum over symmetric memory is [0.0]", "is [0.0]"),
        ((1, 1, 0), "", True, "", "another rank has no symmetric memory"),
    ],
)
def test_all_ranks_have_it_or_none(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    others: tuple[int, ...],
    refused: str,
    allocates: bool,
    wrong: str,
    words: str,
) -> None:
    def allocate(*_arguments: object) -> symmetric_sums._Made:
        if not allocates:
            raise AttributeError("no such operator\nand more of it")
        memory = TwoRanks(256).memory
        return symmetric_sums._Made(SymmetricSums(memory, 64, 64), SymmetricAddends(memory, 128, 64))

    monkeypatch.setattr(symmetric_sums, "_refused", lambda *_arguments: refused)
    monkeypatch.setattr(symmetric_sums, "_allocate", allocate)
    monkeypatch.setattr(symmetric_sums, "_tried", lambda *_arguments: wrong)
    answers = iter(others)
    with caplog.at_level(logging.INFO):
        parallel = with_symmetric_memory(Ranks(others=answers), DEVICE, 4096, 1 << 20, {0, 1})
    assert next(answers, None) is None, "every rank asks as often"
    assert (parallel.small is not None) == (parallel.shared is not None) == (not words)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "every all-reduce goes through NCCL: "
        if words
        else "sums before norms of up to 1024 KiB, and others of up to 4 KiB,"
    )
    assert words in record.getMessage()


@pytest.mark.parametrize(("small_bytes", "fused_bytes"), [(8192, 4096), (0, 4096), (8192, 0)])
def test_flags_and_all_sums_share_an_allocation(
    monkeypatch: pytest.MonkeyPatch, meetings: list[list[int]], small_bytes: int, fused_bytes: int
) -> None:
    made: list[TwoRanks] = []

    def share(parallel: Parallel, device: torch.device, num_bytes: int) -> PeerMemory:
        made.append(TwoRanks(num_bytes))
        return made[-1].memory

    monkeypatch.setattr(symmetric_sums, "share_memory", share)
    sums = symmetric_sums._allocate(Parallel(0, 2), DEVICE, small_bytes, fused_bytes)
    ((local, theirs),) = [each.memory.addresses for each in made]
    part = 1 << 16
    of_small, of_addends = local + part, local + part + (part if small_bytes else 0)
    assert made[0].local.nbytes == of_addends - local + 2 * fused_bytes
    assert (sums.small is not None, sums.shared is not None) == (small_bytes > 0, fused_bytes > 0)
    if sums.small is not None:
        calls: list[Any] = []
        monkeypatch.setattr(peer_sums, "sum_in_place", lambda *arguments: calls.append(arguments))
        sums.small.all_reduce(torch.zeros(4))
        ((_, addresses, flags, rank),) = calls
        assert addresses.tolist() == [of_small, theirs + part] and (flags.tolist(), rank) == ([local, theirs], 0)
        assert 4 * 2 * meeting_places(small_bytes) <= part
    if sums.shared is not None:
        places = [sums.shared.addend(4, fused_bytes // 16, torch.float32) for _ in range(1)]
        assert places[0] is not None and places[0].data_ptr() == of_addends


def test_nothing_is_tried_on_one_rank_or_if_it_is_switched_off() -> None:
    alone, two = Parallel(), Ranks()
    assert with_symmetric_memory(alone, DEVICE, 4096, 4096, {0}) is alone
    assert with_symmetric_memory(two, DEVICE, 0, 0, {0, 1}) is two


def test_on_cpus_it_is_refused() -> None:
    assert "symmetric memory needs GPUs" in symmetric_sums._refused(DEVICE, {0, 1})


@pytest.mark.parametrize("is_stale", [False, True])
def test_the_check_at_start_sums_by_the_norms_kernel(monkeypatch: pytest.MonkeyPatch, *, is_stale: bool) -> None:
    """The second rank of this process writes what rank 1 would, when rank 0 waits for it; or only the first time."""
    monkeypatch.setattr(symmetric_sums, "_CHECKED", ((4, 64),))
    ranks, barriers = TwoRanks(2 * 4 * 64 * 2), count()

    def meet(flags: torch.Tensor, rank: int) -> None:
        number = next(barriers)
        if not is_stale or number == 0:
            numbers = torch.arange(4 * 64)
            theirs = ((numbers * 4 + number) % 13).bfloat16()
            ranks.theirs.view(2, -1)[number % 2].view(torch.bfloat16).copy_(theirs)

    monkeypatch.setattr(peer_sums, "meet", meet)
    made = symmetric_sums._Made(None, SymmetricAddends(ranks.memory, 0, 4 * 64 * 2))
    problem = symmetric_sums._tried(made, Parallel(0, 2), DEVICE)
    assert problem.startswith("a sum over symmetric memory is off by ") if is_stale else not problem


@dataclass
class OneAddend:
    """The addends of a group of one rank: norms add up one tensor, as they would add up several."""

    sums: int = 0

    def addend(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        self.place = torch.full((rows, columns), float("nan"), dtype=dtype)
        return self.place

    def contains(self, x: torch.Tensor) -> bool:
        return x.data_ptr() == self.place.data_ptr()

    def sum(self, addend: torch.Tensor) -> PartialSum:
        self.sums += 1
        return PartialSum(addend, torch.tensor([addend.data_ptr()]))


@pytest.mark.parametrize(
    ("family", "settings", "sums_a_layer"),
    [
        pytest.param("llama3-scaled-rope-tied", {}, 2, marks=pytest.mark.long),
        pytest.param("qwen2-qkv-bias", {"deterministic": True}, 2, marks=pytest.mark.long),
        ("glm4-norms-around", {}, 2),  # norms behind attention and MLP
        ("cohere2-parallel", {"deterministic": True}, 1),  # attention and MLP side by side
        pytest.param("cohere2-parallel", {}, 1, marks=pytest.mark.long),
    ],
)
def test_norms_that_add_up_sums_change_no_token(
    tmp_path: Path, family: str, settings: dict[str, Any], sums_a_layer: int
) -> None:
    """In the Triton backend, interpreted, with adapters on every target: prompts in parts, and decode steps."""
    reference = save_model(family, tmp_path / "model")
    adapter = adapter_at("all-linear-r16-rslora", save_adapter("all-linear-r16-rslora", reference, tmp_path / "a"))
    answers = []
    for shared in (None, OneAddend()):
        source = LoadedAdapters()
        config = EngineConfig(
            model=tmp_path / "model", backend="triton", dtype="float32", pool_mb=16, max_running=2, step_tokens=12,
            prefix_cache=False, **settings,
        )  # fmt: skip
        engine = Engine(config, source, load_model(config, Parallel(shared=shared)))
        source.add(pack_for(engine, adapter))
        steps = 0
        for name, digest in (("base", ""), ("adapted", adapter.digest)):
            prompt = [index * 7 % VOCAB for index in range(9)]
            engine.add_request(GenerationRequest(name, prompt, SamplingParams(max_tokens=3, ignore_eos=True), digest))
        tokens: dict[str, list[int]] = {}
        while engine.has_work():
            output = engine.step()
            steps += 1
            for delta in output.deltas:
                tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
        answers.append(tokens)
        if shared is not None:
            layers = engine.model_config.num_layers
            assert shared.sums >= 4 * sums_a_layer * layers and shared.sums % (sums_a_layer * layers) == 0
    assert answers[0] == answers[1] and set(map(len, answers[0].values())) == {3}
