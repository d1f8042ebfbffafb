"""Keys and values in FP8: pages of half the bytes, the same on every backend, near to what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.logit_runs import logit_error, requests_of, run, tokens_of
from lorikeet_testing.tiny_models import Adapter, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Adapter]]:
    root = tmp_path_factory.mktemp("kv")
    saved = save_model("mistral-sliding-window", root / "model", num_hidden_layers=2)
    names = ("attention-r8", "down-r256")
    return root / "model", [adapter_at(name, save_adapter(name, saved, root / name)) for name in names]


def engine_of(model: tuple[Path, list[Adapter]], **settings: Any) -> Engine:
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=model[0], **{"pool_mb": 6, "kv_cache_dtype": "fp8", **settings}), source)
    for adapter in model[1]:
        source.add(pack_for(engine, adapter))
    return engine


def test_pages_have_fewer_bytes_and_answers_stay_near(model: tuple[Path, list[Adapter]]) -> None:
    requests = requests_of(model[1], (40, 70, 5, 33), new=1, seed=1)
    fp8, plain = engine_of(model), engine_of(model, kv_cache_dtype="auto")
    assert fp8.describe()["kv_dtype"] == "float8_e4m3fn"
    assert int(fp8.describe()["page_bytes"]) * 4 == plain.describe()["page_bytes"]  # float32 here
    assert fp8.pool.num_pages == 4 * plain.pool.num_pages
    got, want = run(fp8, requests), run(plain, requests)
    errors = [logit_error(got[name][1], want[name][1]) for name in got]
    assert 0.001 < max(errors) < 0.1


@pytest.mark.parametrize("settings", [{"step_tokens": 7}, {"pool_mb": 1, "page_tokens": 2}, {"prefix_cache": False}])
def test_chunks_preemption_and_cached_prefixes_change_nothing(
    model: tuple[Path, list[Adapter]], settings: dict[str, Any]
) -> None:
    requests = requests_of(model[1], (40, 70, 5, 33, 40, 70), new=12, seed=1)
    usual = run(engine_of(model), requests)
    engine = engine_of(model, **settings)
    for _ in range(2):
        assert tokens_of(run(engine, requests)) == tokens_of(usual)


def test_kernels_store_and_read_the_same(model: tuple[Path, list[Adapter]]) -> None:
    requests = requests_of(model[1], (7, 3), new=2, seed=1)
    got = run(engine_of(model, backend="triton", dtype="float32", cuda_graphs=False), requests)
    want = run(engine_of(model), requests)
    for name, (tokens, logits) in got.items():
        assert tokens == want[name][0]
        assert logit_error(logits, want[name][1]) < 2e-2  # numbers between two of E4M3 fall to one or the other


def test_settings_that_are_refused(model: tuple[Path, list[Adapter]]) -> None:
    for settings, expected in (
        ({"kv_cache_dtype": "int8"}, "choose one of auto, fp8"),
        ({"kv_cache_dtype": "fp8", "page_tokens": 1}, "needs an even --page-tokens"),
        ({"kv_cache_dtype": "fp8", "backend": "flashinfer"}, "choose --backend triton"),
    ):
        with pytest.raises(ValueError, match=expected):
            load_model(EngineConfig(model=model[0], pool_mb=2, **settings))  # type: ignore[arg-type]
