"""On GPUs several ranks give the logits of one, with NCCL inside graphs: all on one device, and, where there are more,
one on each. In float32: sums of another order differ in the last bits.

Each engine has a process of its own, and so compiles its kernels beside the others.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from lorikeet_testing.shape_runs import captured_logits
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, Adapter, adapter_at, geometry_of, save_adapter, save_model

from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.compile_ahead import CompileAhead, compute_capability
from lora_engine.model.base_modules import base_modules
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import PartialSum
from lora_engine.peft_format import AdapterLimits
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, RequestUsage, SamplingParams
from lora_engine.tensor_parallel.leader import Leader
from lora_engine.tensor_parallel.symmetric_sums import SymmetricAddends

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
NEW = 8
GREEDY = SamplingParams(max_tokens=NEW, ignore_eos=True)  # ranks exchange only the likeliest tokens
NCCL = {"small_sum_kb": 0, "fused_sum_mb": 0}
SUMS = pytest.mark.parametrize(
    "sums", [NCCL, NCCL | {"small_sum_kb": 512}, NCCL | {"fused_sum_mb": 64}, {}],
    ids=["nccl", "small sums", "fused sums", "symmetric memory"],
)  # fmt: skip
# Tokens, and the logits that each was chosen from; no tensors, which would go with the process that sent them.
Answers = dict[str, tuple[list[int], npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Case:
    """A model and adapters, on disk."""

    model: Path
    adapters: tuple[Adapter, ...]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = made_case(tmp_path_factory.mktemp("ranks"), "llama2-mha", **SHAPE)
    in_a_process(compile_kernels, case, [(1, "auto"), (2, "outer"), (2, "full")])
    return case


def config_of(case: Case, ranks: int, sharding: str) -> EngineConfig:
    return EngineConfig(
        model=case.model, device="cuda", dtype="float32", pool_mb=128, page_tokens=16, step_tokens=64,
        max_running=32, tensor_parallel=ranks, fast_start=False, lora_sharding=sharding, prefix_cache=False,
    )  # fmt: skip


def compile_kernels(case: Case, kinds: Sequence[tuple[int, str]]) -> None:
    """Compile on all cores what the engines would compile one kernel after another, for minutes."""
    capability = compute_capability("cuda")
    assert capability is not None
    for ahead in [CompileAhead(config_of(case, *kind), capability) for kind in kinds]:
        ahead.wait()


def made_case(root: Path, family: str, **shape: int) -> Case:
    reference = save_model(family, root / "model", **shape)
    adapters = tuple(adapter_at(name, save_adapter(name, reference, root / name)) for name in ADAPTERS)
    return Case(root / "model", adapters)


def requests_of(case: Case) -> list[GenerationRequest]:
    """The base and every adapter, alone in a row and several to an adapter; prompts longer than a step."""
    rnd, digests = random.Random(5), ["", *(adapter.digest for adapter in case.adapters)]
    requests = []
    for index in range(2 * len(digests) + 12):
        digest = digests[min(index, len(digests) - 1)] if index < len(digests) else digests[index % 4]
        prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 9, 40, 90)))]
        # With log-probabilities, every step goes through ``sample``.
        params = SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=True)
        requests.append(GenerationRequest(f"{index}", prompt, params, digest))
    return requests


def packed_for(engine: Engine, leader: Leader | None, case: Case) -> list[PackedAdapter]:
    memory = PageableMemory() if leader is None else leader.host_memory(pinned=True)
    packer = PoolPacker(
        geometry_of(engine), AdapterLimits(), engine.pool.geometry, engine.targets, engine.pool.data.dtype, memory,
        modules=base_modules(engine.config, engine.loaded), fp8=engine.loaded.fp8_adapters,
    )  # fmt: skip
    return [packer.pack(adapter.digest, adapter.folder, check_finite=True) for adapter in case.adapters]


@contextmanager
def norms_that_sum() -> Iterator[list[PartialSum | torch.Tensor]]:
    """Collect the sums over ranks that kernels of norms add up."""
    plain, seen = SymmetricAddends.sum, []

    def watched(self: SymmetricAddends, addend: torch.Tensor) -> PartialSum | torch.Tensor:
        seen.append(plain(self, addend))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SymmetricAddends, "sum", watched)
        yield seen


@contextmanager
def running(
    case: Case, one_device: bool, settings: dict[str, Any], ranks: int, sharding: str
) -> Iterator[tuple[Engine, list[PackedAdapter]]]:
    """An engine as it is started, and the adapters that it has."""
    torch.set_num_threads(2)
    config = replace(config_of(case, ranks, sharding), **settings)
    leader = Leader(config, one_device=one_device) if ranks > 1 else None
    try:
        config = config if leader is None else leader.config
        loaded = load_model(config) if leader is None else load_model(config, leader.join())
        source = LoadedAdapters()
        with norms_that_sum() as summed:
            engine = Engine(config, source, loaded, mirror=leader)
            adapters = packed_for(engine, leader, case)
            for packed in adapters:
                source.add(packed)
            yield engine, adapters
            engine.core.check()
        assert bool(summed) == (ranks > 1 and config.fused_sum_mb > 0), f"norms added up {len(summed)} sums"
    finally:
        if leader is not None:
            began = time.monotonic()
            leader.close()
            assert time.monotonic() - began < 10, "graphs with sums of NCCL are still there"


def answers(case: Case, one_device: bool, settings: dict[str, Any], ranks: int, sharding: str) -> tuple[Answers, int]:
    """And the adapters' bytes on one rank."""
    with running(case, one_device, settings, ranks, sharding) as (engine, adapters):
        found: dict[str, tuple[list[int], list[torch.Tensor]]] = {}
        for request in requests_of(case):
            found[request.request_id] = [], []
            engine.add_request(request)
        with captured_logits() as seen:
            while engine.has_work():
                output = engine.step()
                for delta in output.deltas:
                    tokens, logits = found[delta.request_id]
                    tokens.extend(delta.token_ids)
                    logits.append(seen.pop(0).cpu())
                for end in output.finished:
                    assert end.error is None, end.error
        for request in requests_of(case):
            name = f"greedy {request.request_id}"
            found[name] = [], [torch.zeros(1)] * NEW
            engine.add_request(replace(request, request_id=name, sampling=GREEDY))
        while engine.has_work():
            for delta in engine.step().deltas:
                found[delta.request_id][0].extend(delta.token_ids)
        held = sum(packed.data.nbytes for packed in adapters)
        return {name: (tokens, torch.stack(logits).numpy()) for name, (tokens, logits) in found.items()}, held


def by_engines(
    case: Case, kinds: Sequence[tuple[int, str]], *, one_device: bool, **settings: Any
) -> list[tuple[Answers, int]]:
    """Of ranks and layouts: beside each other, since most of their time is compilation, unless ranks share a device,
    where kernels wait for each other's turn.
    """
    with ThreadPoolExecutor(1 if one_device else len(kinds)) as pool:
        return [*pool.map(lambda kind: in_a_process(answers, case, one_device, settings, *kind), kinds)]


def in_a_process(does: Callable[..., Any], *arguments: Any, timeout_s: float = 200) -> Any:
    """What it returns. The process ends at once, as the engine's does: NCCL would wait for the graphs with its sums."""
    theirs, ours = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_told, args=(ours, does, *arguments))
    process.start()
    ours.close()
    try:
        assert theirs.poll(timeout_s), f"nothing after {timeout_s} s"
        found, problem = theirs.recv()
        assert not problem, problem
        return found
    finally:
        process.join(5)
        process.kill()


def _told(answer: Connection, does: Callable[..., Any], *arguments: Any) -> None:
    try:
        answer.send((does(*arguments), ""))
    except BaseException:
        answer.send((None, traceback.format_exc()))
    os._exit(0)


@pytest.fixture(scope="module")
def alone(case: Case) -> tuple[Answers, int]:
    """By one rank."""
    (found,) = by_engines(case, [(1, "auto")], one_device=False)
    return found


def assert_equal(found: Answers, expected: Answers) -> None:
    """Logits as long as the tokens before them are the same, of answers that have some; nearly all to their end."""
    compared, whole = 0, 0
    for name, (tokens, logits) in found.items():
        want_tokens, want = expected[name]
        same = next((i for i, pair in enumerate(zip(tokens, want_tokens, strict=True)) if pair[0] != pair[1]), NEW)
        rows = min(same + 1, NEW)
        size = np.linalg.norm(want[:rows], axis=-1).clip(min=1e-9)
        error = np.linalg.norm(logits[:rows] - want[:rows], axis=-1) / size
        assert error.max() < 1e-4, (name, error)
        compared, whole = compared + 1, whole + (same == NEW)
    assert whole >= compared - 1, f"{compared - whole} of {compared} answers turned"


@SUMS
def test_two_ranks_on_one_gpu_give_the_logits_of_one(
    case: Case, alone: tuple[Answers, int], sums: dict[str, int]
) -> None:
    """With the same kernels, graphs and sums as on two."""
    expected, whole = alone
    (outer, outer_bytes), (full, full_bytes) = by_engines(case, [(2, "outer"), (2, "full")], one_device=True, **sums)
    assert_equal(outer, expected)
    assert_equal(full, expected)
    assert full_bytes < outer_bytes < whole
    print(f"adapters' bytes on a rank: alone {whole}, outer {outer_bytes}, full {full_bytes}")


@pytest.mark.parametrize("family", ["qwen3.5-gated-delta", "qwen3-next-experts", "qwen3-some-layers-with-experts"])
def test_two_ranks_give_the_logits_of_one_where_layers_are_of_several_kinds(tmp_path: Path, family: str) -> None:
    """Recurrent layers and mixtures of experts: on two GPUs where there are two."""
    case, one_device = made_case(tmp_path, family), torch.cuda.device_count() < 2
    (expected, _), (found, _) = by_engines(case, [(1, "auto"), (2, "outer")], one_device=one_device)
    assert_equal(found, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@SUMS
def test_several_gpus_give_the_logits_of_one(case: Case, alone: tuple[Answers, int], sums: dict[str, int]) -> None:
    """With sums inside of captured graphs."""
    counts = [count for count in (2, 4) if count <= torch.cuda.device_count()]
    kinds = [(count, sharding) for count in counts for sharding in ("outer", "full")]
    for found, _ in by_engines(case, kinds, one_device=False, **sums):
        assert_equal(found, alone[0])


def finished(engine: Engine) -> dict[str, tuple[list[int], RequestUsage]]:
    """Tokens and usage of all that was asked."""
    tokens: dict[str, list[int]] = {}
    ended = {}
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
        for end in output.finished:
            assert end.error is None, end.error
            ended[end.request_id] = tokens.get(end.request_id, []), end.usage
    return ended


@pytest.mark.parametrize(("ranks", "sharding"), [(1, "auto"), (2, "outer"), (2, "full")])
def test_what_is_pinned_stays_under_pressure(case: Case, ranks: int, sharding: str) -> None:
    """An adapter and a prefix of it; answers after that many others evicted each other are those of before."""
    in_a_process(pinned_under_pressure, case, ranks, sharding)


def pinned_under_pressure(case: Case, ranks: int, sharding: str) -> None:
    settings = {"pool_mb": 12, "prefix_cache": True}
    with running(case, True, settings, ranks, sharding) as (engine, adapters):
        digest, prefix = adapters[0].digest, [index % (VOCAB - 1) for index in range(100)]
        asks = GenerationRequest("before", [*prefix, 5], GREEDY, digest, tenant="a")
        engine.add_request(asks)
        before, _ = finished(engine)["before"]
        pin = PinnedPrefix("p", "a", digest, "", prefix)
        assert engine.pin_adapters([digest]) == [digest]
        engine.pin_prefixes([pin])
        engine.add_request(
            GenerationRequest("pin", prefix, adapter_digest=digest, tenant="a", prompt_only=True, pin="p")
        )
        finished(engine)
        assert engine.pinned_prefixes() == {"p": PinState.KEPT}
        alone = {name: tokens for name, (tokens, _) in crowd(engine, case).items()}
        engine.add_request(replace(asks, request_id="after"))
        after, usage = finished(engine)["after"]
        assert after == before and usage.cached_prompt_tokens == 96 and not usage.adapter_loaded_from, usage
        assert {name: tokens for name, (tokens, _) in crowd(engine, case).items()} == alone


def crowd(engine: Engine, case: Case) -> dict[str, tuple[list[int], RequestUsage]]:
    """More than the pool has room for, of every adapter."""
    for index, digest in enumerate([adapter.digest for adapter in case.adapters] * 3):
        prompt = [index % (VOCAB - 1)] * 180
        engine.add_request(GenerationRequest(f"{index}", prompt, GREEDY, digest, tenant="z"))
    return finished(engine)


ENDS = """
import os
import sys
import time
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.compile_ahead import CompileAhead, compute_capability
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader

if __name__ == "__main__":
    config = EngineConfig(
        model=Path(sys.argv[1]), device="cuda", dtype="float32", pool_mb=64, tensor_parallel=2, max_context=512,
        fast_start=False, step_tokens=64, max_running=4,
    )
    leader = Leader(config, one_device=True)
    engine = Engine(leader.config, LoadedAdapters(), load_model(leader.config, leader.join()), mirror=leader)
    engine.add_request(GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=400, ignore_eos=True)))
    tokens = 0
    (rank,) = leader._ranks
    print(rank.process.pid, flush=True)
    while engine.has_work():
        tokens += sum(len(delta.token_ids) for delta in engine.step().deltas)
        if tokens == 8:
            print(time.monotonic(), flush=True)
            os.kill(rank.process.pid, int(sys.argv[2]))
            tokens += 1
"""


@pytest.mark.parametrize(
    ("blow", "reason"), [(signal.SIGKILL, "ended with status -9"), (signal.SIGSTOP, "has not answered for 10 s")]
)
def test_a_rank_that_is_gone_ends_all_and_leaves_nothing_on_the_gpu(tmp_path: Path, blow: int, reason: str) -> None:
    """Within seconds, while kernels of NCCL wait for it on the device."""
    (tmp_path / "ends.py").write_text(ENDS)
    save_model("llama2-mha", tmp_path / "model", **SHAPE)
    free, _ = torch.cuda.mem_get_info()
    command = [sys.executable, str(tmp_path / "ends.py"), str(tmp_path / "model"), str(int(blow))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    ended = time.monotonic()
    assert done.returncode == 70 and reason in done.stderr, done.stderr
    rank, began = done.stdout.split()
    assert ended - float(began) < 15
    assert not Path(f"/proc/{rank}").exists() or not Path(f"/proc/{rank}/cmdline").read_text()
    assert torch.cuda.mem_get_info()[0] > free - (64 << 20)
    print(f"{reason}: ended after {ended - float(began):.1f} s")
