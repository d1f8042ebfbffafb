"""Agreement with the unquantised base: the reference beside transformers and PEFT, and what a host says of adapters."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.quantising_ops import QuantisingOps
from lorikeet_testing.tiny_models import VOCAB, save_adapter, save_model
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from lora_engine.adapters.packing import Packer
from lora_engine.config import EngineConfig
from lora_engine.model.loading import LoadedModel, load_model
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer
from lora_engine.model.unquantised import Text, UnquantisedModel, unquantised_model
from lora_engine.model.weight_loading import StreamedLayers, load_weights
from lora_engine.model.weights import ModelWeights
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server import base_agreement
from lora_engine.server.host import HostServer
from lora_engine.server.process import base_geometry, build_host
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb
from lora_kernels.fp8_tensors import FP8, LARGEST

DEMO = Path(__file__).parents[3] / "demo"
PIRATE = DEMO / "adapters" / "pirate"
WEIGHTS = "adapter_model.safetensors"
TEXTS = [list(range(5, 29)), [400, 3, 77, 12, 9]]


def settings(folder: Path, data: Path, **other: Any) -> EngineConfig:
    return EngineConfig(model=folder, data_dir=data, **{"quantization": "fp8", "pool_mb": 16, **other})


def packs(folder: Path) -> Callable[[Packer], Any]:
    def pack(packer: Packer) -> Any:
        return packer.pack("sha256:one", folder, check_finite=True)

    return pack


def readings(model: UnquantisedModel, adapter: Path | None) -> list[torch.Tensor]:
    """Log-probabilities ``[tokens, vocab]`` of each of ``TEXTS``."""
    everything = range(VOCAB)
    texts = [Text(ids, [everything] * len(ids), 0 if adapter else None) for ids in TEXTS]
    found = model.read(texts, packs(adapter) if adapter else None, lambda: None)
    rows = [torch.tensor([[place[token] for token in everything] for place in each.logprobs]) for each in found]
    assert [each.argmax for each in found] == [row.argmax(-1).tolist() for row in rows]
    return rows


def expected(model: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0].log_softmax(-1) for ids in TEXTS]


def loaded_on_rank_0_of_2(config: EngineConfig) -> LoadedModel:
    """What the process that plans has: half of every matrix."""
    whole, ranks = load_model(config), Parallel(0, 2)
    weights = load_weights(
        config.model,
        whole.model.config,
        torch.device("cpu"),
        torch.float32,
        ranks,
        quantised=config.quantization == "fp8",
    )
    whole.model = Transformer(whole.model.config, weights, whole.max_context, ranks)
    return whole


def with_embeddings(model: Any, folder: Path) -> Path:
    """A saved head, and an adapter on the embedding."""
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "embed_tokens"],
                        modules_to_save=["lm_head"], init_lora_weights=False)  # fmt: skip
    trained = get_peft_model(model, config)
    with torch.no_grad():
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    trained.save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize(
    ("family", "adapters"),
    [
        ("llama2-mha", ["attention-r8", "dora-r6", "lora-bias-r4"]),
        ("phi3-fused", ["mlp-r5"]),
        ("gemma2-soft-caps", []),
        ("qwen3-some-layers-with-experts", ["attention-r8"]),
    ],
)
def test_the_reference_is_the_unquantised_model(family: str, adapters: list[str], tmp_path: Path) -> None:
    """Of a base that was made FP8 when it was loaded: what transformers and PEFT make of the checkpoint."""
    model = save_model(family, tmp_path / "model")
    config = settings(tmp_path / "model", tmp_path)
    loaded = load_model(config)
    reference = unquantised_model(config, loaded, base_geometry(loaded))
    assert reference is not None and not reference.dequantised
    for mine, theirs in zip(readings(reference, None), expected(model), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)
    assert len(reference.layer_changes) == 3 and all(0 < change < 0.1 for change in reference.layer_changes)
    for name in adapters:
        folder = save_adapter(name, model, tmp_path / name)
        peft = expected(PeftModel.from_pretrained(copy.deepcopy(model), str(folder)))
        for mine, theirs in zip(readings(reference, folder), peft, strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)


def test_of_several_ranks_one_has_it_whole(tmp_path: Path) -> None:
    model = save_model("llama2-mha", tmp_path / "model")
    config = settings(tmp_path / "model", tmp_path)
    loaded = loaded_on_rank_0_of_2(config)
    reference = UnquantisedModel(config, loaded, base_geometry(loaded))
    folder = with_embeddings(copy.deepcopy(model), tmp_path / "embeddings")
    for mine, theirs in zip(readings(reference, None), expected(model), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)
    peft = expected(PeftModel.from_pretrained(copy.deepcopy(model), str(folder)))
    for mine, theirs in zip(readings(reference, folder), peft, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)


def test_no_more_than_a_layer_of_it_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model("llama2-mha", tmp_path / "model")
    config = settings(tmp_path / "model", tmp_path)
    loaded = load_model(config)
    kept: list[Any] = []
    original = StreamedLayers.__getitem__

    def watched(self: StreamedLayers, index: int, /) -> Any:
        layer = original(self, index)
        kept.append(self._kept)
        return layer

    monkeypatch.setattr(StreamedLayers, "__getitem__", watched)
    reference = UnquantisedModel(config, loaded, base_geometry(loaded))
    readings(reference, None)
    assert [each[0] for each in kept] == [0, 1, 2]


def test_an_unquantised_model_has_no_reference(tmp_path: Path) -> None:
    save_model("llama2-mha", tmp_path / "model")
    config = settings(tmp_path / "model", tmp_path, quantization="auto")
    loaded = load_model(config)
    assert unquantised_model(config, loaded, base_geometry(loaded)) is None


# On a host.


@asynccontextmanager
async def running(config: EngineConfig, ops: Any = None) -> AsyncIterator[HostServer]:
    loaded = load_model(config)
    if ops is not None:
        loaded.model.ops = ops(loaded.model.shape)
    host = build_host(config, loaded)
    host.start()
    try:
        yield host
    finally:
        host.stop()


async def stage(host: HostServer, folder: Path) -> str:
    files = folder_digests(folder)
    digest = adapter_digest(files)
    request = pb.StageAdapterRequest(digest=digest, source_uri=folder.resolve().as_uri(), file_digests=files)
    events = [event async for event in host.tiers.stage(request)]
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return digest


async def compared(host: HostServer, digest: str, own: pb.ChatTemplate | None = None) -> pb.AdapterEffect:
    """Probe as the platform does: again, as long as it is pending. The engine ends a comparison that takes too long."""
    while True:
        reply = await host.resident_adapters.probe(digest, 600, own)
        assert not reply.HasField("error"), reply.error
        if reply.effect.agreement.outcome != pb.Agreement.PENDING:
            return reply.effect
        await asyncio.sleep(0.01)


def scaled(folder: Path, factor: float, **config: Any) -> Path:
    """The pirate with every B times ``factor``."""
    shutil.copytree(PIRATE, folder)
    tensors = load_file(folder / WEIGHTS)
    save_file({name: t.float() * (factor if "lora_B" in name else 1) for name, t in tensors.items()}, folder / WEIGHTS)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
async def test_a_host_with_a_quantised_base_says_how_far_it_is_from_the_unquantised_one(
    device: str, tmp_path: Path
) -> None:
    config = settings(DEMO / "model", tmp_path / "data", pool_mb=0, device=device)
    async with running(config) as host:
        effect = await compared(host, await stage(host, PIRATE))
        agreement = effect.agreement
        assert (effect.verdict, agreement.outcome) == (pb.AdapterEffect.ACTS, pb.Agreement.AGREES), agreement
        assert agreement.base.tokens == agreement.adapter.tokens == sum(len(p.adapter_tokens) for p in effect.prompts)
        does = min(prompt.mean_change for prompt in effect.prompts)
        assert 0 < agreement.base.mean_distance < does / 2 and 0 < agreement.adapter.mean_distance < does / 2
        # GPUs round what a product reads, too.
        most_turned = 2 if device == "cpu" else 5
        assert agreement.adapter.agreeing >= agreement.adapter.tokens - most_turned and not agreement.reason
        assert len(agreement.prompts) == len(effect.prompts)
        assert "".join(agreement.prompts[0].adapter_tokens).startswith("Arr")
        assert all(0.01 < change < 0.05 for change in agreement.layer_changes) and not agreement.dequantised
        # Another with an invocation, and one that overflows.
        activated = await compared(host, await stage(host, scaled(tmp_path / "a", 1.0, alora_invocation_tokens=[3, 4])))
        assert activated.agreement.outcome == pb.Agreement.AGREES, activated.agreement
        assert activated.agreement.adapter.mean_distance < does / 2
        huge = (await compared(host, await stage(host, scaled(tmp_path / "huge", 3e36)))).agreement
        assert (huge.outcome, "overflows" in huge.reason) == (pb.Agreement.NOT_MEASURED, True)
        # A template of its own: other prompts; one whose prompts are too long.
        own = pb.ChatTemplate(source="{% for m in messages %}Q: {{ m.content }} A:{% endfor %}")
        assert (await compared(host, await stage(host, PIRATE), own)).agreement.outcome == pb.Agreement.AGREES
        long = pb.ChatTemplate(source="{{ 'Be kind. ' * 220 }}{{ messages[0].content }}")
        too_long = (await compared(host, await stage(host, PIRATE), long)).agreement
        assert (too_long.outcome, "tokens" in too_long.reason) == (pb.Agreement.NOT_MEASURED, True), too_long


async def test_an_adapter_that_quantisation_costs_more_than_the_base_is_flagged(tmp_path: Path) -> None:
    """It takes nearly all of the base's matrices back, so that what rounding changed is most of what is left."""
    model = save_model("llama2-mha", tmp_path / "model", intermediate_size=160)
    config = LoraConfig(task_type="CAUSAL_LM", r=64, lora_alpha=64, target_modules=["q_proj", "o_proj", "down_proj"])
    trained: Any = get_peft_model(model, config)
    with torch.no_grad():
        for module in trained.modules():
            if hasattr(module, "lora_A"):
                u, s, v = torch.linalg.svd(module.base_layer.weight, full_matrices=False)
                module.lora_A["default"].weight.copy_(v)
                module.lora_B["default"].weight.copy_(-0.995 * u * s)
    trained.save_pretrained(str(tmp_path / "adapter"))
    async with running(settings(tmp_path / "model", tmp_path / "data", pool_mb=32)) as host:
        effect = await compared(host, await stage(host, tmp_path / "adapter"))
        agreement = effect.agreement
        assert agreement.outcome == pb.Agreement.DIFFERS
        assert agreement.adapter.mean_distance > 2 * agreement.base.mean_distance
        assert "log-probabilities" in agreement.reason


def quantise_checkpoint(folder: Path) -> None:
    """As the field ``fp8`` has it: a scale for each matrix, and activations that are rounded as they come."""
    tensors = load_file(folder / "model.safetensors")
    for name, weight in [*tensors.items()]:
        if ".layers." in name and weight.dim() == 2:
            scale = weight.abs().amax() / LARGEST
            tensors |= {name: (weight / scale).to(FP8), name.replace("weight", "weight_scale"): scale.reshape(1)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    quantised = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantised}))


async def test_a_checkpoint_in_fp8_is_compared_with_its_dequantised_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU those are served. Where activations are rounded, as GPUs do it, this is what quantisation costs."""
    model = save_model("llama2-mha", tmp_path / "model", intermediate_size=160)
    adapter = save_adapter("attention-r8", model, tmp_path / "adapter")
    quantise_checkpoint(tmp_path / "model")
    found = []
    for ops in (None, QuantisingOps):
        if ops is not None:
            monkeypatch.setattr(ModelWeights, "dequantise", lambda _: None)
        config = settings(tmp_path / "model", tmp_path / str(ops), quantization="auto", pool_mb=32)
        async with running(config, ops) as host:
            found.append((await compared(host, await stage(host, adapter))).agreement)
    assert all(agreement.dequantised and not agreement.layer_changes for agreement in found)
    assert found[0].outcome == pb.Agreement.AGREES
    # Sums of float32 in another order, on some processors.
    assert max(found[0].base.mean_distance, found[0].adapter.mean_distance) < 1e-6
    assert 0.001 < found[1].base.mean_distance < 0.5 and 0.001 < found[1].adapter.mean_distance < 0.5


async def test_what_cannot_be_compared_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(DEMO / "model", tmp_path / "model")
    async with running(settings(folder, tmp_path / "data", pool_mb=0)) as host:
        digest = await stage(host, PIRATE)
        monkeypatch.setattr(base_agreement, "LIMIT_S", 0.0)
        slow = (await compared(host, digest)).agreement
        assert (slow.outcome, "longer than" in slow.reason) == (pb.Agreement.NOT_MEASURED, True)
        monkeypatch.undo()
        (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
        other = (await compared(host, digest)).agreement
        assert (other.outcome, "changed since" in other.reason) == (pb.Agreement.NOT_MEASURED, True)
        shutil.rmtree(folder)
        gone = (await compared(host, digest)).agreement
        assert (gone.outcome, "can no longer be read" in gone.reason) == (pb.Agreement.NOT_MEASURED, True)


async def test_it_waits_for_nobody_and_makes_way_for_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lora_engine.server.adapter_probes.MOMENT_S", 0.0)
    async with running(settings(DEMO / "model", tmp_path / "data", pool_mb=0)) as host:
        digest = await stage(host, PIRATE)
        first = (await host.resident_adapters.probe(digest, 600)).effect
        assert (first.verdict, first.agreement.outcome) == (pb.AdapterEffect.ACTS, pb.Agreement.PENDING)
        sampling = pb.Sampling(max_tokens=100, ignore_eos=True)
        host.requests.submit(ClientSession(), pb.Submit(request_id="r", text="Once", tenant="acme", sampling=sampling))
        effect = await compared(host, digest)
        assert list(effect.prompts) == list(first.prompts), "prompts are not tried again"
        assert effect.agreement.outcome == pb.Agreement.AGREES
        assert not host._agreement._known  # type: ignore[union-attr]
        while not host.requests.idle:
            await asyncio.sleep(0.01)
        await host.resident_adapters.probe(digest, 600)  # and a host that stops in the middle of one stops at once
