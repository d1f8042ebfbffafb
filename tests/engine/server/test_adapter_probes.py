"""What a host finds when it tries an adapter on the demo model."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lora_engine.adapters.layout import TARGET_GROUPS
from lora_engine.config import EngineConfig
from lora_engine.model.loading import load_model
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server.adapter_probes import NEW_TOKENS, PROBING, QUESTIONS, TEXT
from lora_engine.server.host import HostServer
from lora_engine.server.process import build_host
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[3] / "demo"
PIRATE = DEMO / "adapters" / "pirate"
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_model(EngineConfig(model=DEMO / "model", data_dir=tmp_path_factory.mktemp("loaded")))


@pytest.fixture
async def host(tmp_path, loaded) -> AsyncIterator[HostServer]:
    host = build_host(EngineConfig(model=DEMO / "model", data_dir=tmp_path / "data"), loaded)
    host.start()
    yield host
    host.stop()


async def stage(host: HostServer, folder: Path) -> str:
    files = folder_digests(folder)
    digest = adapter_digest(files)
    request = pb.StageAdapterRequest(digest=digest, source_uri=folder.resolve().as_uri(), file_digests=files)
    events = [event async for event in host.tiers.stage(request)]
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return digest


def scaled(folder: Path, factor: float) -> Path:
    """The pirate with every B times ``factor``."""
    shutil.copytree(PIRATE, folder)
    tensors = load_file(folder / WEIGHTS)
    changed = {name: t.float() * (factor if "lora_B" in name else 1) for name, t in tensors.items()}
    save_file(changed, folder / WEIGHTS)
    return folder


async def test_an_adapter_that_acts(host: HostServer) -> None:
    reply = await host.resident_adapters.probe(await stage(host, PIRATE), 60)
    effect = reply.effect
    assert (effect.verdict, reply.HasField("error")) == (pb.AdapterEffect.ACTS, False)
    first = effect.prompts[0]
    assert len(first.base_tokens) == len(first.adapter_tokens) == NEW_TOKENS
    assert "".join(first.adapter_tokens).startswith("Arr") and list(first.base_tokens) != list(first.adapter_tokens)
    assert first.largest_change >= first.mean_change > 0.1
    assert "How are you today?" in first.prompt and "<|user|>" in first.prompt  # as a chat
    status = await host.status.read()
    assert (status.running, status.waiting, status.unacknowledged_usage) == (0, 0, 0)
    assert PROBING not in [share.tenant for share in status.tenants]
    assert (await host.resident_adapters.probe(f"sha256:{'0' * 64}", 1)).error.code == "adapter_not_found"


async def test_the_bases_answers_are_computed_once(host: HostServer, tmp_path, monkeypatch) -> None:
    submitted: list[str] = []
    submit = host._probes._engine.submit
    monkeypatch.setattr(
        host._probes._engine, "submit", lambda request: (submitted.append(request.adapter_digest), submit(request))
    )
    first = (await host.resident_adapters.probe(await stage(host, PIRATE), 60)).effect
    assert sorted(map(bool, submitted)) == [False] * 3 + [True] * 3
    submitted.clear()
    second = (await host.resident_adapters.probe(await stage(host, scaled(tmp_path / "half", 0.5)), 60)).effect
    assert all(submitted) and len(submitted) == 3
    for one, other in zip(first.prompts, second.prompts, strict=True):
        assert list(one.base_tokens) == list(other.base_tokens)
    assert second.verdict == pb.AdapterEffect.ACTS


async def test_on_a_slow_host_only_what_overflows_is_told(host: HostServer, tmp_path, monkeypatch) -> None:
    """The shortest prompt says that the others would take too long: they are not begun."""
    monkeypatch.setattr(host._probes, "_work", lambda prompts: 1 if len(prompts) == 1 else 10**9)
    good, huge = await stage(host, PIRATE), await stage(host, scaled(tmp_path / "huge", 3e36))
    assert (await host.resident_adapters.probe(good, 60)).error.code == "overloaded"
    effect = (await host.resident_adapters.probe(huge, 60)).effect
    assert (effect.verdict, len(effect.prompts)) == (pb.AdapterEffect.OVERFLOWS, 1)
    while host._probes._running:
        await asyncio.sleep(0.01)


async def test_the_change_of_layers_is_that_of_the_matrices(host: HostServer, loaded) -> None:
    effect = (await host.resident_adapters.probe(await stage(host, PIRATE), 60)).effect
    tensors = {name: t.double() for name, t in load_file(PIRATE / WEIGHTS).items()}
    config = json.loads((PIRATE / "adapter_config.json").read_text())
    alphas = {"down_proj": config["alpha_pattern"]["down_proj"]}

    def delta_norm(name: str) -> float:
        alpha = next((alpha for target, alpha in alphas.items() if target in name), config["lora_alpha"])
        return float((alpha / config["r"] * tensors[name.replace("_A", "_B")] @ tensors[name]).norm())

    assert len(effect.layer_changes) == len(loaded.model.weights.layers)
    for index, (layer, change) in enumerate(zip(loaded.model.weights.layers, effect.layer_changes, strict=True)):
        delta = base = 0.0
        for group, matrix in zip(
            TARGET_GROUPS[:4], (layer.mixer_in, layer.mixer_out, layer.gate_up, layer.down), strict=True
        ):
            names = [n for n in tensors if f".layers.{index}." in n and n.endswith("lora_A.weight")]
            touched = [n for n in names if any(f".{target}." in n for target in group)]
            delta += sum(delta_norm(name) ** 2 for name in touched)
            base += float(matrix.double().norm()) ** 2 if touched else 0.0
        assert change == pytest.approx((delta / base) ** 0.5, rel=1e-4)


async def test_an_adapter_that_waits_for_its_invocation_is_invoked(host: HostServer, tmp_path) -> None:
    """Its prompts end with the invocation; without it, it would seem to change nothing."""
    folder = scaled(tmp_path / "activated", 1.0)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"alora_invocation_tokens": [3, 4]}))
    digest = await stage(host, folder)
    host.tiers.arena.remove(digest)  # as if others had needed its place meanwhile
    assert (await host.resident_adapters.probe(digest, 60)).effect.verdict == pb.AdapterEffect.ACTS


async def test_an_untrained_adapter_changes_nothing(host: HostServer, tmp_path) -> None:
    effect = (await host.resident_adapters.probe(await stage(host, scaled(tmp_path / "zero", 0.0)), 60)).effect
    assert effect.verdict == pb.AdapterEffect.CHANGES_NOTHING
    assert max(effect.layer_changes) == 0
    assert all(list(prompt.base_tokens) == list(prompt.adapter_tokens) for prompt in effect.prompts)


async def test_an_adapter_that_overflows(host: HostServer, tmp_path) -> None:
    effect = (await host.resident_adapters.probe(await stage(host, scaled(tmp_path / "huge", 3e36)), 60)).effect
    assert effect.verdict == pb.AdapterEffect.OVERFLOWS
    assert not all(prompt.finite for prompt in effect.prompts)
    good = (await host.resident_adapters.probe(await stage(host, PIRATE), 60)).effect
    assert good.verdict == pb.AdapterEffect.ACTS  # nothing of it stays with the base or others


async def test_it_waits_for_requests_and_not_for_ever(host: HostServer, tmp_path, loaded) -> None:
    """Every place is taken by a request that goes on: the probe is told so, and none of it stays."""
    digest, session = await stage(host, PIRATE), ClientSession()
    config = EngineConfig(model=DEMO / "model", data_dir=tmp_path / "data")
    for number in range(config.max_running):
        sampling = pb.Sampling(max_tokens=400, ignore_eos=True)
        host.requests.submit(session, pb.Submit(request_id=f"r{number}", text="Once", tenant="acme", sampling=sampling))
    while (await host.status.read()).running < config.max_running:
        await asyncio.sleep(0.01)
    reply = await host.resident_adapters.probe(digest, 0.05)
    assert (reply.error.code, bool(reply.error.retry_after_ms)) == ("overloaded", True)
    host.requests.abort_all()
    while not host.requests.idle:
        await asyncio.sleep(0.01)
    assert (await host.resident_adapters.probe(digest, 60)).effect.verdict == pb.AdapterEffect.ACTS
    assert not host._probes._running
    host.lifecycle.drain()
    assert (await host.resident_adapters.probe(digest, 1)).error.code == "draining"


async def test_chats_are_tried_by_the_adapters_own_template(host):
    own = pb.ChatTemplate(source="{% for m in messages %}Q: {{ m.content }} A:{% endfor %}")
    effect = (await host.resident_adapters.probe(await stage(host, PIRATE), 60, own)).effect
    assert [prompt.prompt for prompt in effect.prompts][:2] == [f"Q: {question} A:" for question in QUESTIONS]
    assert effect.prompts[2].prompt.endswith(TEXT)
    endless = pb.ChatTemplate(source="{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    effect = (await host.resident_adapters.probe(await stage(host, PIRATE), 60, endless)).effect
    assert effect.prompts[0].prompt.endswith(QUESTIONS[0]), "it is tried with the question alone"
