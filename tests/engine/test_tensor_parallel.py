"""Two and four ranks, each with its share of the base model, the pool and the adapters, give the tokens of one."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401
from lorikeet_testing.draft_heads import save_head
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following, tokens_of
from lorikeet_testing.expert_adapters import config_of, random_factors, save_experts, sparse_layers
from lorikeet_testing.forked import ForkedProcess
from lorikeet_testing.mtp_layers import add_mtp
from lorikeet_testing.ranks import Run, answers, led, on_ranks, recorded
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, Adapter, adapter_at, pack_for, save_adapter, save_model
from safetensors.torch import load_file, save_file

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import DeviceSteps, Exchanges, Parallel, SmallSums
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, SamplingParams
from lora_engine.tensor_parallel import group
from lora_engine.tensor_parallel.meeting_folder import MeetingFolder
from lora_engine.tensor_parallel.stillness import STILL_BEATS, DeviceStillness, Still, Stillness, device_beats
from lora_kernels.fp8_tensors import quantise


def workload(adapters: dict[str, Adapter], count: int = 18, new: int = 8) -> list[GenerationRequest]:
    """Every adapter and the base, greedy and sampled, with prompts longer than a step; some begin alike."""
    rnd = random.Random(7)
    common = [rnd.randrange(VOCAB) for _ in range(90)]
    requests = []
    for index in range(count):
        name = ["", *adapters][index % (1 + len(adapters))]
        tokens = new if count >= 18 else 3
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.9 * (index % 3 == 2), seed=index)
        length = rnd.choice((1, 9, 40, 90)) if count >= 18 else 3 + 2 * index
        alike = length // 2 if index % 2 else 0
        prompt = common[:alike] + [rnd.randrange(VOCAB) for _ in range(length - alike)]
        digest = adapters[name].digest if name else ""
        requests.append(GenerationRequest(f"r{index}", prompt, sampling, digest))
    return requests


@dataclass(frozen=True)
class Case:
    """A family's model and adapters in a folder of their own."""

    folder: Path
    adapters: dict[str, Adapter]

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def run(self, requests: int = 18, new: int = 8, **settings: Any) -> Run:
        return Run(self.model, [*self.adapters.values()], workload(self.adapters, requests, new), settings)


def make_case(folder: Path, family: str, names: Sequence[str] = (), **shape: Any) -> Case:
    """With the adapters that are named, or all and one that changes the embedding and the head."""
    reference = save_model(family, folder / "model", **{"intermediate_size": 152, **shape})
    adapters = {name: adapter_at(name, save_adapter(name, reference, folder / name)) for name in names or ADAPTERS}
    if names:
        return Case(folder, adapters)
    name = "embedding_layers"
    return Case(folder, adapters | {name: adapter_at(name, save_embedding_layers(reference, folder / name))})


def save_embedding_layers(model: Any, folder: Path) -> Path:
    """LoRA on the head, and an embedding of its own."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "lm_head"], modules_to_save=["embed_tokens"],
        init_lora_weights=False,
    )  # fmt: skip
    trained = get_peft_model(model, config)
    for parameter in trained.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    trained.save_pretrained(str(folder))
    trained.unload()
    return folder


@pytest.mark.parametrize(
    ("world", "families"),
    [
        # Biases and states of gated delta on two ranks, four ranks once. Other tests of this file run llama2-mha and
        # qwen3.5-gated-delta on two.
        (2, ["qwen2-qkv-bias", "qwen3-next-experts", "gpt-oss-sinks-and-experts", "glm4-experts"]),
        (4, ["llama3-scaled-rope-tied"]),
        pytest.param(4, ["llama2-mha", "qwen3.5-gated-delta"], marks=pytest.mark.long),
        pytest.param(2, ["qwen3-some-layers-with-experts"], marks=pytest.mark.long),
        pytest.param(
            2,
            ["llama2-mha", "llama-biases", "gemma3-two-ropes", "cohere2-parallel", "qwen3.5-gated-delta"],
            marks=pytest.mark.long,
        ),
    ],
    ids=str,
)
def test_ranks_give_the_tokens_of_one(tmp_path: Path, world: int, families: list[str]) -> None:
    # Of each vocabulary but the first, the last rank has fewer tokens.
    heads = {"num_key_value_heads": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8} if world == 4 else {}
    cases = [make_case(tmp_path / f, f, vocab_size=VOCAB + index, **heads) for index, f in enumerate(families)]
    for case in cases:
        if "experts" in case.folder.name:
            case.adapters.update(on_experts(case))
    room = {"pool_mb": 6} if "qwen3.5-gated-delta" in families else {}
    runs = [case.run(lora_sharding=sharding, **room) for case in cases for sharding in ("outer", "full")]
    found = on_ranks(world, tmp_path, runs)
    for case, outer, full in zip(cases, found[::2], found[1::2], strict=True):
        alone = case.run(**room).on(Parallel())
        for ranks in (outer, full):
            assert [ran.tokens for ran in ranks] == [alone.tokens] * world, case.folder.name
            assert len({ran.pages for ran in ranks}) == 1, "pages are the same on all ranks"
        assert full[0].adapter_bytes < outer[0].adapter_bytes < alone.adapter_bytes


@pytest.mark.long
@pytest.mark.parametrize(("world", "key_heads", "value_heads"), [(2, 2, 6), (4, 4, 12)])
def test_gated_delta_layers_with_one_key_head_on_each_rank(
    tmp_path: Path, world: int, key_heads: int, value_heads: int
) -> None:
    """Three value heads share a key head; targets of a layer's input are split by part, and its gates by head."""
    heads = {"linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "num_key_value_heads": world}
    case = make_case(tmp_path / "model", "qwen3.5-gated-delta", **heads)
    runs = [case.run(9, lora_sharding=sharding, pool_mb=6) for sharding in ("outer", "full")]
    alone = runs[0].on(Parallel())
    for ranks in on_ranks(world, tmp_path, runs):
        assert [ran.tokens for ran in ranks] == [alone.tokens] * world


@pytest.mark.parametrize(
    ("family", "sizes", "world", "words"),
    [
        ("qwen3.5-gated-delta", {"linear_num_key_heads": 1, "linear_num_value_heads": 4}, 2, "key heads of gated"),
        ("qwen3.5-gated-delta", {"linear_num_key_heads": 3, "linear_num_value_heads": 6}, 2, "key heads of gated"),
        ("qwen3.5-gated-delta", {"num_key_value_heads": 1}, 2, r"key-value heads \(1\)"),
        ("olmo-hybrid", {}, 2, "family olmo_hybrid cannot be split"),
    ],
)
def test_hybrids_that_cannot_be_split_are_refused_before_they_are_loaded(
    tmp_path: Path, family: str, sizes: dict[str, int], world: int, words: str
) -> None:
    save_model(family, tmp_path, **sizes)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=f"{words}.*tensor-parallel"):
        load_model(EngineConfig(tmp_path, tensor_parallel=world), Parallel(world - 1, world))


def on_experts(case: Case) -> dict[str, Adapter]:
    """Adapters on all experts, which every rank has by inner features, and on routers, which it has in full."""
    from transformers import AutoModelForCausalLM  # slow to import, also for workers that run no test of this file

    model = AutoModelForCausalLM.from_pretrained(case.model, dtype=torch.float32)
    forms = {f"experts-{form}": form for form in ("parameters", "shared")}
    adapters = {
        name: save_experts(case.folder / name, random_factors(model, seed, form), form)
        for seed, (name, form) in enumerate(forms.items())
    }
    router, tensors = case.folder / "router", {}
    module = "router" if model.config.model_type == "gpt_oss" else "gate"
    for layer in sparse_layers(model):
        prefix = f"base_model.model.model.layers.{layer}.mlp.{module}"
        rows = len(getattr(model.model.layers[layer].mlp, module).weight)
        a, b = torch.randn(4, model.config.hidden_size), torch.randn(rows, 4)
        tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    router.mkdir()
    save_file(tensors, router / "adapter_model.safetensors")
    (router / "adapter_config.json").write_text(json.dumps(config_of("", target_modules=[module])))
    return adapters | {"router": adapter_at("router", router)}


def test_whatever_else_an_engine_is_set_to(tmp_path: Path) -> None:
    """Rows computed one by one, weights in FP8, keys and values in FP8, no cached prefixes, a pool in which nothing
    stays, and the kernels, in Triton's interpreter."""
    sizes = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 128, "num_hidden_layers": 2}
    few = ("dora-r6", "all-linear-r16-rslora", "mlp-r5", "v-only-r1", "lora-bias-r4")
    plain = make_case(tmp_path / "plain", "llama2-mha", few, **sizes)
    in_fp8(plain, tmp_path / "fp8")
    quantised = Case(tmp_path / "fp8", plain.adapters)
    experts = make_case(tmp_path / "experts", "qwen3-some-layers-with-experts", ("attention-r8",), vocab_size=VOCAB)
    in_fp8(experts, tmp_path / "fp8 experts")
    quantised_experts = Case(tmp_path / "fp8 experts", experts.adapters | on_experts(experts))
    runs = []
    for sharding in ("outer", "full"):
        runs += [
            plain.run(6, lora_sharding=sharding, deterministic=True),
            quantised.run(6, lora_sharding=sharding),
            quantised_experts.run(6, lora_sharding=sharding, adapter_dtype="fp8" if sharding == "full" else "auto"),
            plain.run(6, lora_sharding=sharding, kv_cache_dtype="fp8"),
        ]
    runs.append(plain.run(60, 40, lora_sharding="outer", pool_mb=1, page_tokens=2, prefix_cache=False))
    runs.append(plain.run(2, lora_sharding="full", backend="triton"))
    for run, ranks in zip(runs, on_ranks(2, tmp_path, runs), strict=True):
        alone = run.on(Parallel(), backend="torch")
        assert [ran.tokens for ran in ranks] == [alone.tokens] * 2, run.settings
        assert ranks[0].pages == ranks[1].pages and ranks[0].adapter_bytes < alone.adapter_bytes
        if "pool_mb" in run.settings:
            assert ranks[0].preemptions


def in_fp8(case: Case, folder: Path) -> None:
    """A copy of the model whose layers' matrices are in FP8, with a scale for each output."""
    shutil.copytree(case.model, folder / "model")
    config = json.loads((case.model / "config.json").read_text())
    of_weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
    of_inputs = {**of_weights, "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": of_weights, "input_activations": of_inputs, "output_activations": None}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"], "kv_cache_scheme": None, "config_groups": {"group_0": group},
    }  # fmt: skip
    (folder / "model" / "config.json").write_text(json.dumps(config))
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(case.model / "model.safetensors").items():
        if "layers" in name and weight.dim() == 2:
            matrix = quantise(weight)
            tensors[f"{name}_scale"], weight = matrix.scale[:, None].contiguous(), matrix.data
        tensors[name] = weight
    save_file(tensors, folder / "model" / "model.safetensors", metadata={"format": "pt"})


def test_a_model_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    save_model("llama2-mha", tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be split over 3 tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 3))


@pytest.mark.parametrize("family", ["phi3-fused", "glm-partial-interleaved", "olmo2-norms-after"])
def test_families_that_cannot_be_split_are_refused(tmp_path: Path, family: str) -> None:
    save_model(family, tmp_path / "model", intermediate_size=152)
    with pytest.raises(ValueError, match="cannot be split over tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 2))


LEAVES = """
import sys
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.model.loading import load_model
from lora_engine.tensor_parallel.leader import Leader

if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32")
    leader = Leader(config)
    load_model(leader.config, leader.join())
    print([rank.process.pid for rank in leader._ranks])
"""


def test_a_program_that_just_ends_does_not_wait_for_its_ranks(tmp_path: Path) -> None:
    """As benchmarks do; a rank ignores the signal by which multiprocessing ends its children."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    command = [sys.executable, str(tmp_path / "leaves.py"), str(Path(__file__).parents[2] / "demo" / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (rank,) = json.loads(done.stdout)
    assert not Path(f"/proc/{rank}").exists()


def test_folders_of_ranks_that_were_killed_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "lora-meeting-file").write_text("somebody's")
    (tmp_path / "lora-meeting-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    killed, alive = MeetingFolder(), MeetingFolder()
    (killed.path / "meet").write_text("")
    os.close(killed._lock)  # as the end of a process does
    other = MeetingFolder()
    assert not killed.path.exists() and alive.path.exists() and other.path.exists()
    for _ in range(2):
        alive.remove()
    assert not alive.path.exists() and other.path.exists() and len([*tmp_path.iterdir()]) == 4
    other.remove()


FAILS = """
import sys
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader


def load(config, parallel):
    loaded = load_model(config, parallel)
    if parallel.rank == int(sys.argv[2]):
        def hidden(*arguments):
            raise RuntimeError("its device is gone")
        loaded.model.hidden = hidden
    return loaded


if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32")
    leader = Leader(config, load, forks=True)
    engine = Engine(leader.config, LoadedAdapters(), load(leader.config, leader.join()), mirror=leader)
    engine.add_request(GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=4)))
    print([rank.process.pid for rank in leader._ranks], flush=True)
    while engine.has_work():
        engine.step()
"""


def forked(program: str, folder: Path, *arguments: str) -> ForkedProcess:
    """Run a program with the demo model. It forks its ranks, as the engine does."""
    command = ["-c", program, str(Path(__file__).parents[2] / "demo" / "model"), *arguments]
    name = " ".join(arguments)
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as errors:
        return ForkedProcess(command, env=os.environ, folder=folder, log=out, errors=errors, engine=True)


def printed(folder: Path, name: str) -> tuple[str, str]:
    """Return what a program wrote to its two streams."""
    return (folder / f"{name}.out").read_text(), (folder / f"{name}.err").read_text()


def test_a_rank_that_fails_in_a_step_ends_all_with_its_reason(tmp_path: Path) -> None:
    """Within seconds, though the other one waits for it in the midst of a sum."""
    running = [forked(FAILS, tmp_path, rank) for rank in "01"]
    for number, process in enumerate(running):
        status = process.wait(100)
        out, errors = printed(tmp_path, str(number))
        assert status == 70, errors
        who = "rank 1 failed: " if number else "rank 0 failed in a step that the other ranks began: "
        assert who in errors and "its device is gone" in errors
        (rank,) = json.loads(out)
        assert not Path(f"/proc/{rank}").exists() or not Path(f"/proc/{rank}/cmdline").read_text()


STANDS = """
import os
import signal
import sys
import time
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.model.parallel import DeviceSteps, Exchanges
from lora_engine.tensor_parallel.leader import Leader
from lora_engine.tensor_parallel.stillness import Progress

WAY, RANK = sys.argv[2], int(sys.argv[3])
steps, stuck = [], []


class Mark:
    def query(self):
        return not stuck


if WAY == "device":  # as ranks on GPUs, whose hosts have nothing to wait for
    Progress.on = lambda device: Progress(Exchanges(), DeviceSteps(Mark))


def load(config, parallel):
    loaded = load_model(config, parallel)
    whole = loaded.model.hidden

    def hidden(*arguments):
        steps.append(1)
        if len(steps) == 3:
            print(time.monotonic(), file=sys.stderr, flush=True)
            if WAY == "device":
                stuck.append(parallel.rank)
                return whole(*arguments)
            if WAY == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            while WAY == "busy":
                pass
            with parallel.exchanges:
                time.sleep(1000)
        return whole(*arguments)

    if parallel.rank == RANK:
        loaded.model.hidden = hidden
    return loaded


if __name__ == "__main__":
    config = EngineConfig(
        model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32", step_timeout_s=24.0
    )
    leader = Leader(config, load, forks=True)
    engine = Engine(leader.config, LoadedAdapters(), load(leader.config, leader.join()), mirror=leader)
    engine.add_request(GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=40, ignore_eos=True)))
    print([rank.process.pid for rank in leader._ranks], flush=True)
    while engine.has_work():
        engine.step()
    time.sleep(1000)
"""
STANDS_STILL = {
    "stopped 1": r"rank 1 \(process [0-9]+\) was stopped by a signal for 2 s",
    "busy 1": "made no progress for 6 s within a step",
    "in an exchange 1": "an exchange between all ranks has not ended for 6 s within a step",
    "stopped 0": "Rank 0 has not answered for 6 s; this rank kills it",
    "busy 0": "rank 0 .* made no progress for 6 s within a step",
    "device 1": "the device of rank 1 .* has worked for 4 s on a step that every rank had launched",
}


@pytest.mark.parametrize(
    "ways", [["stopped 1", "busy 1", "device 1"], pytest.param([*STANDS_STILL], marks=pytest.mark.long)], ids=len
)
def test_a_rank_that_stands_still_within_a_step_ends_all_in_ten_seconds(tmp_path: Path, ways: list[str]) -> None:
    running = {way: forked(STANDS, tmp_path, *way.rsplit(" ", 1)) for way in ways}
    ended = {}
    until = time.monotonic() + 100
    while len(ended) < len(running) and time.monotonic() < until:
        ended |= {way: time.monotonic() for way, at in running.items() if way not in ended and at.poll() is not None}
        time.sleep(0.05)
    for way, process in running.items():
        out, errors = printed(tmp_path, way)
        assert process.poll() == (-9 if way == "stopped 0" else 70), errors
        assert re.search(STANDS_STILL[way], errors), errors
        stood_at = float(next(line for line in errors.splitlines() if re.fullmatch(r"[0-9.]+", line)))
        assert ended[way] - stood_at <= 10, errors
        (rank,) = json.loads(out)
        assert not Path(f"/proc/{rank}").exists() or not Path(f"/proc/{rank}/cmdline").read_text()


def test_who_stands_still_is_the_one_that_others_wait_for() -> None:
    stillness = Stillness()
    idle = [stillness.beat([(5, 5), (5, 5), (5, 5)]) for _ in range(50)]
    moving = [stillness.beat([(n, n - 1), (n, n), (n - 1, n - 1)]) for n in range(6, 50)]
    behind = [stillness.beat([(50, 49), (50, 49), (49, 49)]) for _ in range(STILL_BEATS + 1)]
    assert {*idle, *moving, *behind[:-1]} == {None} and behind[-1] == Still(2, all_wait=False)
    together = [stillness.beat([(51, 50)] * 3) for _ in range(STILL_BEATS + 1)]
    assert together[-2:] == [None, Still(0, all_wait=True)]


class Device:
    """One that is through with what it was given when it is told to be, and whose rank says how far it is."""

    def __init__(self) -> None:
        self.marks: list[Device.Mark] = []
        self.steps = DeviceSteps(self.mark)

    class Mark:
        is_over: bool | None = False  # None: the device failed

        def query(self) -> bool:
            if self.is_over is None:
                raise RuntimeError("an illegal memory access was encountered")
            return self.is_over

    def mark(self) -> Mark:
        self.marks.append(self.Mark())
        return self.marks[-1]

    def through(self, steps: int) -> None:
        for mark in self.marks[:steps]:
            mark.is_over = True


def test_a_device_hangs_if_it_is_not_through_with_what_every_rank_has_given() -> None:
    one, other = Device(), Device()
    most = int(device_beats(60.0))
    stillness = DeviceStillness(most)

    def beats(count: int) -> list[Still | None]:
        return [stillness.beat([one.steps.counts, other.steps.counts]) for _ in range(count)]

    assert most == 10 and device_beats(0.0) == float("inf") and device_beats(300.0) == 50
    assert {*beats(60)} == {None}, "idle"
    one.steps.launched()
    assert {*beats(60)} == {None}, "one compiles, or waits for masks, and the other's device for it"
    other.steps.launched()
    assert {*beats(most - 1)} == {None}, "as long as that, a device may work"
    for step in range(1, 30):
        one.through(step)
        assert {*beats(most)} == {None}, "the other is slower"
        other.through(step)
        one.steps.launched(), other.steps.launched()
        assert {*beats(most - 1)} == {None}, "slow, and going on"
    one.through(30)
    one.steps.launched()
    assert beats(most + 1) == [None] * most + [Still(1, all_wait=False)]
    other.marks[-1].is_over = None
    assert beats(1) == [Still(1, all_wait=False)], "that failed, too"
    other.through(30)
    other.steps.launched()
    assert beats(most + 1) == [None] * most + [Still(0, all_wait=True)], "an exchange of devices"
    assert one.steps.counts == other.steps.counts == (31, 30)


def test_a_rank_that_follows_has_the_same_pages_whatever_is_pinned(tmp_path: Path) -> None:
    """Rank 0 plans: what it merges, pins, evicts and pre-empts, the other one does too, in a pool full of NaN."""
    case = make_case(tmp_path, "llama2-mha")
    adapters, requests = [*case.adapters.values()], workload(case.adapters, 24, 30)
    alone = Run(case.model, adapters, requests).on(Parallel()).tokens
    config = EngineConfig(
        model=case.model, data_dir=tmp_path, pool_mb=1, page_tokens=4, step_tokens=64, threads=2, tensor_parallel=2,
        lora_sharding="full", mode="merged",
    )  # fmt: skip
    with led(config, adapters) as engine:
        pinned = case.adapters["dora-r6"].digest
        prefix = PinnedPrefix("beginning", "", pinned, "", requests[3].prompt_token_ids[:8])
        engine.pin_adapters([pinned])
        engine.pin_prefixes([prefix])
        computes = GenerationRequest("pin", prefix.token_ids, adapter_digest=pinned, prompt_only=True, pin=prefix.name)
        answers(engine, [computes])
        for _ in range(2):  # then from what is cached
            tokens, usages = answers(engine, requests)
            assert tokens == alone
            assert engine.pinned_adapters() == [pinned]
            assert engine.pinned_prefixes() == {prefix.name: PinState.KEPT}
        assert any(usage.preemptions for usage in usages) and any(usage.cached_prompt_tokens for usage in usages)
        assert engine.merge_report().merges
        rnd = random.Random(2)  # drafts are rows of steps, which the other rank repeats
        known = following(lambda sequence: alone[sequence.request.request_id], rnd)
        engine.core.scheduler.speculation = AlwaysDrafts(RandomDrafter(rnd, known, 0.8), 3, 100)
        tokens, usages = answers(engine, requests)
        assert tokens == alone and all(usage.accepted_tokens for usage in usages)
    assert recorded(config, 1) == recorded(config, 0) and len(recorded(config, 0)) > len(adapters)


@pytest.mark.parametrize(
    ("world", "family", "form"),
    [
        (2, "llama3-scaled-rope-tied", {"with_lm_head": False}),
        (4, "llama2-mha", {"draft_vocab": 200}),
        (2, "glm4-experts", None),  # its own layer
    ],
)
def test_rank_0_drafts_with_a_head_what_one_rank_drafts(
    tmp_path: Path, world: int, family: str, form: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has the hidden states after the sums, and whole matrices for the head; the others get drafts as rows."""
    case = make_case(tmp_path, family, ("all-linear-r16-rslora",))
    adapters, requests = [*case.adapters.values()], workload(case.adapters, 6, 12)
    requests = [replace(one, sampling=replace(one.sampling, max_tokens=12)) for one in requests]
    settings: dict[str, Any] = {"pool_mb": 8, "page_tokens": 4, "step_tokens": 64, "threads": 1}
    settings |= {"speculation": "mtp", "data_dir": tmp_path}
    if form is None:
        from transformers import AutoModelForCausalLM

        add_mtp(case.model, AutoModelForCausalLM.from_pretrained(case.model))
    else:
        head = save_head(tmp_path / "head", 64, VOCAB, **form)
        settings |= {"speculation": "eagle3", "draft_model": head}
    guesses: dict[tuple[str, int], list[int]] = {}
    propose = HeadDrafter.propose

    def recorded_propose(drafter: HeadDrafter, sequences: Any, most: Any) -> list[list[int]]:
        made = propose(drafter, sequences, most)
        for one, guess in zip(sequences, made, strict=True):
            guesses[one.request.request_id, one.num_output] = tokens_of(drafter, guess)
        return made

    monkeypatch.setattr(HeadDrafter, "propose", recorded_propose)

    def drafted(engine: Engine) -> tuple[Any, dict[tuple[str, int], list[int]]]:
        guesses.clear()
        assert engine._head is not None
        engine.core.scheduler.speculation = AlwaysDrafts(engine._head, 3, 100)
        tokens, usages = answers(engine, requests)
        assert all(usage.drafted_tokens > 5 for usage in usages)
        return tokens, {**guesses}

    alone = Engine(EngineConfig(model=case.model, **settings), source := LoadedAdapters())
    for adapter in adapters:
        source.add(pack_for(alone, adapter))
    plain = Run(case.model, adapters, requests).on(Parallel()).tokens
    tokens, expected = drafted(alone)
    assert tokens == plain
    config = EngineConfig(model=case.model, tensor_parallel=world, **settings)
    with led(config, adapters) as engine:
        tokens, made = drafted(engine)
    assert tokens == plain
    same = [made[key] == guess for key, guess in expected.items() if key in made]
    assert len(same) > 40 and sum(same) >= 0.95 * len(same), "some are near ties"


def test_a_rank_that_follows_copies_states_of_cached_prefixes(tmp_path: Path) -> None:
    """A conversation's second turn begins with the state that rank 0 and its follower kept at the end of the first.

    Both take the same accepted drafts into it.
    """
    case = make_case(tmp_path, "qwen3.5-gated-delta", ("all-linear-r16-rslora",))
    adapters, rnd = [*case.adapters.values()], random.Random(5)
    first = [rnd.randrange(VOCAB) for _ in range(300)]
    prompts = [first, [*first, *(rnd.randrange(VOCAB) for _ in range(30))]]
    turns = [
        GenerationRequest(f"turn {number}", prompt, SamplingParams(max_tokens=8), adapters[0].digest)
        for number, prompt in enumerate(prompts)
    ]
    alone = Run(case.model, adapters, turns, {"pool_mb": 6}).on(Parallel()).tokens
    config = EngineConfig(
        model=case.model, data_dir=tmp_path, pool_mb=6, page_tokens=4, step_tokens=64, threads=2, tensor_parallel=2,
        speculation="ngram",
    )  # fmt: skip
    with led(config, adapters) as engine:
        known = following(lambda sequence: alone[sequence.request.request_id], rnd)
        engine.core.scheduler.speculation = AlwaysDrafts(RandomDrafter(rnd, known, 0.8), 3, 100)
        tokens: dict[str, list[int]] = {}
        for turn in turns:
            answer, usages = answers(engine, [turn])
            tokens |= answer
        assert tokens == alone and usages[0].cached_prompt_tokens == 296 and usages[0].accepted_tokens


def test_weights_are_loaded_while_ranks_meet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A rank has its number at once, and what it shares with the others once they have met, or the reason why not."""
    may_meet, steps = threading.Event(), DeviceSteps(lambda: None)  # type: ignore[arg-type, return-value]
    small = cast(SmallSums, object())

    def join(config: EngineConfig, rank: int, meeting: group.Meeting, exchanges: Exchanges) -> Parallel:
        assert may_meet.wait(10)
        if rank == 0:
            raise ValueError("the other rank has ended")
        return Parallel(rank, config.tensor_parallel, small=small, exchanges=exchanges)

    monkeypatch.setattr(group, "join", join)
    config, exchanges = EngineConfig(model=tmp_path, tensor_parallel=2, device="cpu"), Exchanges()
    first, second = (group.begin_to_join(config, rank, group.Meeting(tmp_path), exchanges) for rank in (0, 1))
    assert second.joining is not None and not second.joining.done()
    assert second.shard(8, "heads") == 4 and second.rank == 1 and second.small is None
    may_meet.set()
    joined = replace(second, steps=steps).joined()
    assert joined.small is small and joined.steps is steps and joined.exchanges is exchanges
    assert joined.joining is None and joined.joined() is joined
    with pytest.raises(ValueError, match="the other rank has ended"):
        first.joined()
