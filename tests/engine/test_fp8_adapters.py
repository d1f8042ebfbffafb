"""Adapters in FP8: half the bytes, close to the file's weights, and exactly what their rounded factors give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.logit_runs import largest_error, requests_of, run, tokens_of
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.ranks import led
from lorikeet_testing.tiny_models import Adapter, adapter_at, pack_for, save_adapter, save_model
from safetensors.torch import load_file, save_file

from lora_engine.adapters.combining import combine
from lora_engine.adapters.delta_norms import delta_norms
from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.fp8_factors import quantise_factors
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.peft_format import Part, combined_digest
from lora_engine.request import GenerationRequest

FAMILY = "llama3-scaled-rope-tied"
NAMES = ("attention-r8", "all-linear-r16-rslora", "mlp-r5", "one-layer-r64", "lora-bias-r4")


def randn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def error_of(a: torch.Tensor, b: torch.Tensor) -> float:
    """The change of a product by rounding, relative to its norm; the factors must be values of E4M3."""
    rounded_a, rounded_b, scale = quantise_factors(a, b)
    for factor in (rounded_a, rounded_b):
        assert torch.equal(factor, factor.to(torch.float8_e4m3fn).float()) and torch.isfinite(factor).all()
    want, got = b.double().T @ a.double(), scale * (rounded_b.double().T @ rounded_a.double())
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("size_a", [1e-30, 1e-6, 1.0, 1e4])
@pytest.mark.parametrize("size_b", [1e-8, 1e-3, 300.0])
def test_factors_of_any_size_keep_their_product(size_a: float, size_b: float) -> None:
    assert 0.03 < error_of(randn(16, 300) * size_a, randn(16, 200, 1) * size_b) < 0.045


def test_rows_of_different_sizes_lose_nothing_while_they_matter() -> None:
    """Sizes of the rows differ by up to 2^24, differently in A and B."""
    sizes_a, sizes_b = torch.exp2(torch.linspace(-12, 12, 24)), torch.exp2(torch.linspace(12, -12, 24))
    a, b = randn(24, 300) * sizes_a[:, None], randn(24, 200, 1) * sizes_b[:, None]
    assert error_of(a, b) < 0.045
    assert error_of(a, b * torch.exp2(-torch.arange(24.0))[:, None]) < 0.045


def test_rows_without_effect_become_zero() -> None:
    a, b = randn(4, 64), randn(4, 32, 1)
    b[1], a[2] = 0, 0
    rounded_a, rounded_b, _ = quantise_factors(a, b)
    assert not rounded_a[1:3].any() and not rounded_b[1:3].any()
    assert error_of(a, b) < 0.05
    for nothing in (quantise_factors(a, torch.zeros(4, 32)), quantise_factors(torch.zeros(4, 64), b)):
        assert not nothing[0].any() and not nothing[1].any() and nothing[2] == 1.0


def test_elements_below_the_range_do_not_matter() -> None:
    """A million elements are 2^-18 of the largest one."""
    a, b = torch.full((1, 1 << 20), 2.0**-18), torch.ones(1, 8)
    a[0, 0] = 1.0
    assert error_of(a, b) < 0.01


@dataclass
class Case:
    model: Path
    adapters: list[Adapter]
    rounded: list[Adapter]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("fp8-adapters")
    model = save_model(FAMILY, root / "model", num_hidden_layers=2)
    adapters = [adapter_at(name, save_adapter(name, model, root / name)) for name in NAMES]
    return Case(root / "model", adapters, [rounded(adapter, root / f"{adapter.name} rounded") for adapter in adapters])


def rounded(adapter: Adapter, folder: Path) -> Adapter:
    """Write an adapter's factors as FP8 has them, under the same digest."""
    folder.mkdir()
    (folder / "adapter_config.json").write_bytes((adapter.folder / "adapter_config.json").read_bytes())
    tensors = load_file(adapter.folder / "adapter_model.safetensors")
    for name in [name for name in tensors if name.endswith("lora_A.weight")]:
        other = name.replace("lora_A", "lora_B")
        a, b, scale = quantise_factors(tensors[name], tensors[other].T)
        tensors[name], tensors[other] = a, (b.T * scale).contiguous()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    return replace(adapter, folder=folder)


def engine_of(case: Case, adapters: Sequence[Adapter], source: LoadedAdapters | None = None, **settings: Any) -> Engine:
    source = LoadedAdapters() if source is None else source
    engine = Engine(EngineConfig(model=case.model, threads=1, **{"pool_mb": 6, **settings}), source)
    poison(engine)
    for adapter in adapters:
        source.add(pack_for(engine, adapter))
    return engine


def requests_for(case: Case, new: int = 4, lengths: Sequence[int] = (40, 5, 33, 17, 9, 24)) -> list[GenerationRequest]:
    return requests_of(case.adapters, lengths, new, seed=3)


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8"])
def test_answers_are_those_of_the_rounded_factors(case: Case, kv_cache_dtype: str) -> None:
    """In one batch with the base; the pool held NaN."""
    requests, settings = requests_for(case), {"kv_cache_dtype": kv_cache_dtype}
    got = run(engine_of(case, case.adapters, adapter_dtype="fp8", **settings), requests)
    want = run(engine_of(case, case.rounded, **settings), requests)
    assert tokens_of(got) == tokens_of(want)
    assert largest_error(got, want) < 1e-4


@pytest.mark.usefixtures("few_programs")
def test_interpreted_kernels_give_the_same_answers(case: Case) -> None:
    """Prompts, steps of one token, and several tokens of one adapter; with adapters that have no row in FP8 beside."""
    requests = [replace(each, adapter_digest=case.adapters[number].digest) for number, each in enumerate(
        requests_for(case, 2, (6, 2, 3)))]  # fmt: skip
    source = LoadedAdapters()
    engine = engine_of(case, case.adapters[:2], source, adapter_dtype="fp8", backend="triton")
    source.add(pack_for(engine_of(case, []), case.rounded[2]))
    got = run(engine, requests)
    want = run(engine_of(case, case.rounded), requests)
    assert tokens_of(got) == tokens_of(want)
    assert largest_error(got, want) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("cuda_graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_on_a_gpu_give_the_same_answers(case: Case, dtype: str, cuda_graphs: bool) -> None:
    settings = {"device": "cuda", "dtype": dtype, "cuda_graphs": cuda_graphs, "max_running": 16}
    requests = requests_for(case)
    got = run(engine_of(case, case.adapters, adapter_dtype="fp8", **settings), requests)
    want = run(engine_of(case, case.rounded, **settings), requests)
    if dtype == "float32":
        assert tokens_of(got) == tokens_of(want)
    first = {name: (tokens, logits[:1]) for name, (tokens, logits) in got.items()}
    assert largest_error(first, {name: (want[name][0], want[name][1][:1]) for name in got}) < (
        1e-4 if dtype == "float32" else 2e-2
    )


def test_a_layer_is_converted_once_in_a_step(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU its modules read one converted copy, of which no more than a layer's is kept."""
    source = LoadedAdapters()
    engine = engine_of(case, [case.adapters[1]], source, adapter_dtype="fp8", prefix_cache=False)
    resolved: list[int] = []
    resolve = AdapterSlot._resolve
    monkeypatch.setattr(AdapterSlot, "_resolve", lambda slot, layer: resolved.append(layer) or resolve(slot, layer))
    run(engine, requests_of([], (5,), 3, seed=1))
    assert not resolved
    run(engine, [replace(request, adapter_digest=case.adapters[1].digest) for request in requests_for(case, 3, (5,))])
    assert resolved == [0, 1] * 3  # two layers, three steps
    (slot,) = engine.core.device_tier.slots()
    assert len(slot._views) == 1


def test_they_take_half_the_bytes_or_fewer_and_stay_near(case: Case) -> None:
    fp8, plain = engine_of(case, case.adapters, adapter_dtype="fp8"), engine_of(case, case.adapters)
    assert fp8.describe()["adapter_dtype"] == "float8_e4m3fn"
    assert plain.describe()["adapter_dtype"] == "float32"
    for adapter in case.adapters:
        small, large = pack_for(fp8, adapter), pack_for(plain, adapter)
        assert small.layout.fp8_rows == 4 and small.num_pages <= -(-large.num_pages // 4) + 1  # float32 here
    requests = requests_for(case, new=1)
    assert 0.0005 < largest_error(run(fp8, requests), run(plain, requests)) < 0.1


def test_norms_of_the_delta_are_those_of_the_rounded_factors(case: Case) -> None:
    fp8, plain = engine_of(case, [], adapter_dtype="fp8"), engine_of(case, [])
    geometry = fp8.pool.geometry
    without_biases = [index for index, name in enumerate(NAMES) if name != "lora-bias-r4"]
    for adapter, rounded_one in ((case.adapters[index], case.rounded[index]) for index in without_biases):
        got = delta_norms(pack_for(fp8, adapter), geometry)
        want = delta_norms(pack_for(plain, rounded_one), geometry)
        for one, other in zip(got, want, strict=True):
            assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("mode", ["merged", "auto"])
def test_merged_answers_are_those_of_the_rounded_factors(case: Case, mode: str) -> None:
    requests = [request for request in requests_for(case) if request.adapter_digest != case.adapters[-1].digest]
    got = run(engine_of(case, case.adapters, adapter_dtype="fp8", mode=mode), requests)
    want = run(engine_of(case, case.rounded, mode=mode), requests)
    assert largest_error(got, want) < 1e-3


def test_combinations_have_the_pools_dtype(case: Case) -> None:
    digest = combined_digest(
        [Part(each.digest, weight) for each, weight in zip(case.adapters, (0.5, -1.5), strict=False)]
    )
    requests = [replace(request, adapter_digest=digest) for request in requests_for(case)[:2]]
    answers = []
    for dtype, adapters in (("fp8", case.adapters), ("auto", case.rounded)):
        source = LoadedAdapters()
        engine = engine_of(case, [], source, adapter_dtype=dtype)
        parts = [(pack_for(engine, each), weight) for each, weight in zip(adapters, (0.5, -1.5), strict=False)]
        packed = combine(digest, parts, engine.pool.geometry, engine.targets, PageableMemory(), 256)
        assert packed.layout.fp8_rows == 0
        source.add(packed)
        answers.append(run(engine, requests))
    assert largest_error(*answers) < 1e-4


@pytest.mark.parametrize("sharding", ["outer", pytest.param("full", marks=pytest.mark.long)])
def test_two_ranks_give_the_answers_of_one(case: Case, sharding: str, tmp_path: Path) -> None:
    requests = requests_for(case)
    want = run(engine_of(case, case.rounded), requests)
    settings: dict[str, Any] = {"tensor_parallel": 2, "lora_sharding": sharding, "adapter_dtype": "fp8", "pool_mb": 6}
    config = EngineConfig(model=case.model, threads=1, data_dir=tmp_path, **settings)
    with led(config, case.adapters) as engine:
        got = run(engine, requests)
    assert tokens_of(got) == tokens_of(want)


def test_an_unknown_dtype_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="choose one of auto, fp8"):
        load_model(EngineConfig(model=case.model, adapter_dtype="int4"))
