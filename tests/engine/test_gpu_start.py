"""On a GPU: batches in graphs that cover them, and graphs captured between steps, change no token."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.graph_set import GraphSet
from lora_engine.model.graph_shapes import first_graphs
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams

ADAPTERS = ("attention-r8", "all-linear-r16-rslora", "one-layer-r64")
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _any_room_for_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the card has left says little about one's own graphs where other tests run on it."""
    monkeypatch.setattr("lora_engine.model.graph_shapes.graph_memory", lambda *_: 1 << 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("graphs")
    model = save_model("llama3-scaled-rope-tied", root / "model")
    for name in ADAPTERS:
        save_adapter(name, model, root / name)
    return root


def build(folder: Path, **settings: object) -> tuple[Engine, list[str]]:
    source = LoadedAdapters()
    defaults = {
        "device": "cuda",
        "dtype": "float32",
        "pool_mb": 64,
        "max_running": 48,
        "prefix_cache": False,
    }
    config = EngineConfig(model=folder / "model", **{**defaults, **settings})  # type: ignore[arg-type]
    engine = Engine(config, source, replace(load_model(config), kernels_ahead=True))  # so that graphs are deferred
    digests = [""]
    for name in ADAPTERS:
        adapter = adapter_at(name, folder / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    return engine, digests


def requests(digests: list[str]) -> Iterator[GenerationRequest]:
    rnd = random.Random(3)
    for index in range(60):
        prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 5, 17, 40)))]
        params = SamplingParams(max_tokens=rnd.randint(2, 24), ignore_eos=True)
        yield GenerationRequest(str(index), prompt, params, rnd.choice(digests))


def generate(engine: Engine, digests: list[str], idle_every: int = 0) -> dict[str, list[int]]:
    """Tokens by request; with ``idle_every``, one graph is captured every so many steps, whatever runs."""
    tokens: dict[str, list[int]] = {}
    for request in requests(digests):
        engine.add_request(request)
        tokens[request.request_id] = []
    while engine.has_work():
        output = engine.step()
        if idle_every and output.step % idle_every == 0:
            engine.use_idle_time()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        assert all(end.error is None for end in output.finished)
    engine.core.check()
    return tokens


@pytest.fixture(scope="module")
def without_graphs(folder: Path) -> dict[str, list[int]]:
    return generate(*build(folder, cuda_graphs=False))


def test_covering_graphs_give_the_same_tokens(folder: Path, without_graphs: dict[str, list[int]]) -> None:
    engine, digests = build(folder)
    assert isinstance(engine.runner, GraphRunner)
    engine.runner.graphs.steps_between = 1 << 30
    captured = len(engine.runner.graphs)
    assert captured == len(first_graphs(48))
    assert generate(engine, digests) == without_graphs
    assert len(engine.runner.graphs) == captured


@pytest.mark.parametrize("steps_between", [0, 3])
def test_graphs_captured_between_steps_leave_tokens_alone(
    folder: Path, without_graphs: dict[str, list[int]], steps_between: int
) -> None:
    engine, digests = build(folder)
    assert isinstance(engine.runner, GraphRunner)
    engine.runner.graphs.steps_between = steps_between
    captured = len(engine.runner.graphs)
    assert generate(engine, digests, idle_every=2) == without_graphs
    assert len(engine.runner.graphs) > captured
    while engine.use_idle_time():
        """Until all are there."""
    assert generate(engine, digests) == without_graphs


def test_without_memory_for_more_graphs_tokens_are_the_same(
    folder: Path, without_graphs: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = set(first_graphs(48))
    capture = GraphRunner._capture

    def fail(runner: GraphRunner, shape: object) -> object:
        if shape not in first:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")  # out of memory, as the driver says it
        return capture(runner, shape)  # type: ignore[arg-type]

    monkeypatch.setattr(GraphRunner, "_capture", fail)
    engine, digests = build(folder)
    assert isinstance(engine.runner, GraphRunner) and isinstance(engine.runner.graphs, GraphSet)
    engine.runner.graphs.steps_between = 0
    assert generate(engine, digests, idle_every=1) == without_graphs
    assert len(engine.runner.graphs) == len(first)
