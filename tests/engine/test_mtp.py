"""A model's own layer for further tokens guesses what its published form guesses, and changes no output."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.arrivals import run_requests
from lorikeet_testing.drafters import AlwaysDrafts, tokens_of
from lorikeet_testing.fp8_checkpoints import FORMS, in_fp8, plain_values
from lorikeet_testing.mtp_layers import ReferenceMtp, add_mtp
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model
from safetensors.torch import load_file, save_file

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.model import draft_head
from lora_engine.model.config import ModelConfig
from lora_engine.model.head_passes import HeadPasses, KnownRows
from lora_engine.model.mtp_head import MtpHead
from lora_engine.model.parallel import Parallel
from lora_engine.model.planning import plan_for
from lora_engine.model.weight_loading import load_mtp_weights, random_mtp_weights, weight_bytes
from lora_engine.request import GenerationRequest, RequestUsage, SamplingParams
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_engine.server import arguments
from lora_engine.text import ChatTemplate

GLM = "glm4-experts"
FAMILIES = (GLM, "qwen3.5-gated-delta", "qwen3-next-interleaved", "qwen3-next-experts", "qwen3.5-experts")
# Families of which answers are compared: one with experts, one with recurrent layers.
SERVED = (GLM, "qwen3.5-gated-delta")
KINDS = ("attention-r8", "all-linear-r16-rslora")
CPU = torch.device("cpu")
DEMO = Path(__file__).parents[2] / "demo"
QUESTIONS = ("Tell me a short story about a brave penguin.", "What is 17 + 25?", "List three fruits.", "Who are you?")
Made = tuple[Path, Any, ReferenceMtp]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    models: dict[str, Made] = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        model = save_model(family, folder)
        models[family] = folder, model, add_mtp(folder, model)
        if family in SERVED:
            for name in KINDS:
                save_adapter(name, model, folder / name)
    return models


def drafting(engine: Engine, most: int) -> HeadDrafter:
    """Let an engine draft however few drafts are right."""
    assert engine._head is not None
    engine.core.scheduler.speculation = AlwaysDrafts(engine._head, most, 100)
    return engine._head


def run(
    engine: Engine, requests: Sequence[GenerationRequest], late: random.Random | None = None
) -> tuple[dict[str, list[int]], dict[str, RequestUsage]]:
    """Run all requests; ``late``: they come one by one, and some running ones are pre-empted."""
    answers = dict[str, list[int]]()
    deltas, usages = run_requests(engine, requests, late)
    for delta in deltas:
        answers.setdefault(delta.request_id, []).extend(delta.token_ids)
    return answers, usages


def with_adapters(config: EngineConfig, folder: Path) -> tuple[Engine, list[str]]:
    source = LoadedAdapters()
    engine, digests = Engine(config, source), [""]
    for name in KINDS:
        adapter = adapter_at(name, folder / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    return engine, digests


@pytest.mark.parametrize("family", SERVED)
def test_guesses_are_those_of_the_published_layer_and_change_nothing(made: dict[str, Made], family: str) -> None:
    """For the base and for adapters in one batch, with chunks of prompts and pre-emption, greedy and seeded."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    rnd, (folder, base, reference) = random.Random(4), made[family]
    config = EngineConfig(
        model=folder, pool_mb=1, page_tokens=4, step_tokens=40, max_running=24, prefix_cache=False,
        speculation_tokens=3,
    )  # fmt: skip
    plain, digests = with_adapters(config, folder)
    engine, _ = with_adapters(replace(config, speculation="mtp"), folder)
    drafter = drafting(engine, 3)
    guesses: list[tuple[str, list[int], list[int]]] = []
    propose = drafter.propose

    def record(sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        found = propose(sequences, most)
        for sequence, guess in zip(sequences, found, strict=True):
            known = sequence.token_ids[: len(sequence.token_ids) - sequence.pending]
            guesses.append((sequence.request.adapter_digest, known, tokens_of(drafter, guess)))
        return found

    drafter.propose = record  # type: ignore[method-assign]
    requests = [
        GenerationRequest(
            str(index),
            [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 60))],
            SamplingParams(max_tokens=rnd.randint(3, 12), ignore_eos=True, temperature=index % 2, seed=index),
            adapter_digest=digests[index % 3],
        )
        for index in range(9)
    ]
    expected, _ = run(plain, requests)
    answers, usages = run(engine, requests, rnd)
    assert answers == expected
    assert sum(usage.drafted_tokens > 0 for usage in usages.values()) >= 6, "the others are short"
    assert not drafter._slots and len(drafter._free) == config.drafting_sequences
    models = [base] + [PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        folder / name) for name in KINDS]  # fmt: skip
    made_ones, compared = [entry for entry in guesses if entry[2]], 0
    assert len(made_ones) > 0.9 * len(guesses), "a head follows every sequence"
    for digest, known, guess in rnd.sample(made_ones, 20):
        with torch.no_grad():
            out = models[digests.index(digest)](torch.tensor([known[:-1]]), output_hidden_states=True)
        drafts, nearest = reference.drafts(known, out.hidden_states[-1][0], len(guess))
        if nearest > 1e-3:
            assert guess == drafts
            compared += 1
    assert compared > 12


@pytest.mark.parametrize("family", FAMILIES)
def test_passes_compute_the_published_layer(
    made: dict[str, Made], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In passes of any size, with rows of padding and drafts that are overwritten, for longer than a ring."""
    for name, value in (("RING", 24), ("WINDOW", 16), ("MAX_ROWS", 8), ("_COLUMNS", 4)):
        monkeypatch.setattr(draft_head, name, value)
    folder, _, reference = made[family]
    base = Engine(EngineConfig(model=folder, pool_mb=1), LoadedAdapters()).loaded.model
    head = MtpHead.load(folder, base, 3)
    generator, rnd, count = torch.Generator().manual_seed(1), random.Random(1), 40
    texts = {slot: torch.randint(VOCAB, (count,), generator=generator) for slot in (2, 0)}
    states = {slot: torch.randn(count, 64, generator=generator) for slot in texts}
    expected = {slot: reference.outputs(texts[slot], states[slot], 16) for slot in texts}
    with torch.inference_mode():
        head.run_largest()  # which leaves nothing behind
        done = dict.fromkeys(texts, 0)
        while min(done.values()) < count:
            rows = {slot: min(rnd.randint(1, 8), count - at) for slot, at in done.items() if at < count}
            slots, longest = [*rows], max(rows.values())
            tokens, positions = torch.zeros(len(rows), longest, dtype=torch.int64), torch.full((len(rows), longest), -1)
            inputs = torch.zeros(len(rows), longest, 64)
            for index, (slot, number) in enumerate(rows.items()):
                part = slice(done[slot], done[slot] + number)
                tokens[index, :number], inputs[index, :number] = texts[slot][part], states[slot][part]
                positions[index, :number] = torch.arange(part.start, part.stop)
            reach = int(positions.max()) + 1
            outputs = head.run(torch.tensor(slots), tokens, head.fuse(inputs), positions, reach)
            for index, (slot, number) in enumerate(rows.items()):
                wanted = expected[slot][done[slot] : done[slot] + number]
                assert torch.allclose(outputs[index, :number], wanted, atol=2e-4)
                done[slot] += number
            ahead = torch.tensor([[done[slot]] for slot in slots])
            head.run(torch.tensor(slots), torch.ones_like(ahead), torch.ones(len(slots), 1, 64), ahead, reach + 1)
        likeliest = head.likeliest(outputs)
        assert torch.equal(likeliest, torch.nn.functional.linear(outputs, base.weights.lm_head).argmax(-1))
        # A token that only an adapter's model has.
        head.run(torch.tensor([1]), torch.tensor([[VOCAB + 3]]), torch.ones(1, 1, 64), torch.tensor([[0]]))


def test_interpreted_kernels_compute_the_published_layer(made: dict[str, Made]) -> None:
    for family, deterministic in ((GLM, False), (GLM, True), ("qwen3.5-experts", False)):
        folder, _, reference = made[family]
        config = EngineConfig(
            model=folder, backend="triton", pool_mb=4, max_running=4, step_tokens=128, deterministic=deterministic
        )
        head = MtpHead.load(folder, Engine(config, LoadedAdapters()).loaded.model, 2)
        generator = torch.Generator().manual_seed(2)
        tokens, states = torch.randint(VOCAB, (7,), generator=generator), torch.randn(7, 64, generator=generator)
        with torch.inference_mode():
            outputs = head.run(torch.tensor([1]), tokens[None], states[None], torch.arange(7)[None])[0]
            likeliest = head.likeliest(outputs[-1])
        expected = reference.outputs(tokens, states)
        assert torch.allclose(outputs, expected, atol=2e-4)
        assert int(likeliest) == int((reference._head @ expected[-1]).argmax())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("family", [GLM, "qwen3.5-experts"])
def test_passes_of_the_sizes_of_graphs_draft_what_the_layer_drafts(
    made: dict[str, Made], family: str, device: str
) -> None:
    """Beside padding; on a GPU as captured graphs, with the kernels."""
    folder, _, reference = made[family]
    config = EngineConfig(model=folder, device=device, dtype="float32", pool_mb=8, cuda_graphs=False)
    base = Engine(config, LoadedAdapters()).loaded.model
    with torch.inference_mode():
        passes = HeadPasses(MtpHead.load(folder, base, 5), 3, padded=True)
    if device == "cuda":
        passes.capture()
        assert passes._graphs
    generator, compared = torch.Generator().manual_seed(3), 0
    for _ in range(3):
        tokens = torch.randint(VOCAB, (3, 10), generator=generator)
        states = torch.randn(3, 9, 64, generator=generator)
        for first, rows in ((0, 4), (4, 1), (5, 4)):
            end = first + rows
            known = [KnownRows(s, first, s * rows, tokens[s, first + 1 :][:rows].tolist()) for s in range(3)]
            passes.follow(states[:, first:end].flatten(0, 1).to(device), known)
            drafts = passes.guess(range(3), [end] * 3, 3).t().tolist()
            for slot in range(3):
                expected, nearest = reference.drafts(tokens[slot, : end + 1].tolist(), states[slot, :end], 3)
                if nearest > (1e-3 if device == "cpu" else 5e-2):
                    assert drafts[slot] == expected
                    compared += 1
    assert compared > 8


def test_a_layer_in_fp8_and_one_beside_a_model_in_fp8(made: dict[str, Made], tmp_path: Path) -> None:
    """What is in FP8 is decided by the file: published copies have these layers in FP8, or not at all."""
    for family, form in ((GLM, "compressed-tensors-channel"), ("qwen3.5-experts", "fp8-block")):
        folder, _, reference = made[family]
        shape, name_of_scale, settings = FORMS[form]
        for quantised in (False, True):
            tensors = load_file(folder / "model.safetensors")
            start, plain = "mtp.layers.0." if "qwen" in family else "model.layers.3.", dict[str, torch.Tensor]()
            for name in [name for name in tensors if name.startswith(start) and ("proj.weight" in name)]:
                if quantised and "eh_proj" not in name:
                    data, scale = in_fp8(tensors[name], shape)
                    plain[name] = plain_values(data, scale, shape)
                    tensors[name], tensors[name.replace("weight", name_of_scale)] = data, scale
            target = tmp_path / f"{family} {quantised}"
            target.mkdir()
            save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
            raw = json.loads((folder / "config.json").read_text()) | {"quantization_config": settings}
            config = ModelConfig.from_dict(raw)
            weights = load_mtp_weights(target, config, CPU, torch.float32)
            assert bool(weights.layer.in_fp8()) is quantised
            meta = load_mtp_weights(target, config, torch.device("meta"), torch.float32)
            assert meta.num_bytes() == weights.num_bytes()
            matrix = weights.layer.mixer_out
            whole = matrix if isinstance(matrix, torch.Tensor) else matrix.dequantised(torch.float32)
            wanted = plain.get(f"{start}self_attn.o_proj.weight", reference.layer.self_attn.o_proj.weight.detach())
            assert torch.allclose(whole, wanted, atol=1e-5)


def test_a_multimodal_checkpoint_has_the_layer_beside_its_language_model(made: dict[str, Made], tmp_path: Path) -> None:
    folder, _, _ = made["qwen3.5-gated-delta"]
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: value
               for name, value in tensors.items()}  # fmt: skip
    save_file({**tensors, "model.visual.x.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    raw = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "qwen3_5", "text_config": raw, "tie_word_embeddings": raw["tie_word_embeddings"]}
    loaded = load_mtp_weights(tmp_path, ModelConfig.from_dict(whole), CPU, torch.float32)
    alone = load_mtp_weights(folder, ModelConfig.from_dict(raw), CPU, torch.float32)
    assert torch.equal(loaded.final_norm, alone.final_norm) and torch.equal(loaded.layer.mixer_in, alone.layer.mixer_in)


def test_models_without_such_a_layer_are_refused_before_they_are_loaded(made: dict[str, Made], tmp_path: Path) -> None:
    folder, _, _ = made[GLM]
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    tensors = load_file(folder / "model.safetensors")
    for missing, message in (
        ("", "as it was published"),
        ("model.layers.3.hnorm.weight", "lacks model.layers.0.hnorm.weight"),
    ):
        kept = {name: one for name, one in tensors.items() if "layers.3." not in name or (missing and name != missing)}
        save_file(kept, tmp_path / "model.safetensors")
        with pytest.raises(UnsupportedModel, match=message):
            Engine(EngineConfig(model=tmp_path, pool_mb=1, speculation="mtp"), LoadedAdapters())
    Engine(EngineConfig(model=tmp_path, pool_mb=1), LoadedAdapters())  # which does not look at the layer
    with pytest.raises(UnsupportedModel, match="no layer that predicts a further token"):
        Engine(EngineConfig(model=DEMO / "model", pool_mb=8, speculation="mtp"), LoadedAdapters())


@pytest.mark.parametrize("family", [GLM, "qwen3-next-experts"])
def test_the_layers_memory_is_planned_as_it_is_loaded(made: dict[str, Made], family: str) -> None:
    folder, _, _ = made[family]
    config = ModelConfig.load(folder)
    loaded = load_mtp_weights(folder, config, CPU, torch.bfloat16).num_bytes()
    assert random_mtp_weights(config, CPU, torch.bfloat16).num_bytes() == loaded
    assert weight_bytes(config.mtp(), torch.bfloat16, Parallel()) == loaded
    if family == GLM:
        settings = EngineConfig(model=folder, speculation="mtp", device="cuda", pool_mb=0)
        for path in (folder, folder / "config.json"):
            part = plan_for(replace(settings, model=path), 1 << 30).memory.parts["draft head"]
            rings, states = 32 * 1025 * (2 * 2 * 32 * 2 + 8), settings.max_step_tokens * config.hidden_size * 2
            assert part == loaded + rings + states


def test_the_demo_layer_is_often_right_also_for_an_adapter() -> None:
    folder = DEMO / "hybrid" / "model"
    config = EngineConfig(model=folder, pool_mb=32)
    template, shares = ChatTemplate.load(folder), list[float]()
    adapter, engines = adapter_at("pirate", DEMO / "hybrid" / "adapters" / "pirate-hybrid"), list[Engine]()
    for settings in (config, replace(config, speculation="mtp")):
        source = LoadedAdapters()
        engines.append(Engine(settings, source))
        source.add(pack_for(engines[-1], adapter))
    plain, engine = engines
    drafting(engine, 2)
    asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
    prompts = [plain.tokenizer.encode(template.render(chat), add_special_tokens=False) for chat in asked]
    for digest in ("", adapter.digest):
        requests = [
            GenerationRequest(str(number), prompt, SamplingParams(max_tokens=32), adapter_digest=digest)
            for number, prompt in enumerate(prompts)
        ]
        expected, _ = run(plain, requests)
        steps = engine.steps
        answers, usages = run(engine, requests)
        assert answers == expected
        drafted = sum(usage.drafted_tokens for usage in usages.values())
        shares.append(sum(usage.accepted_tokens for usage in usages.values()) / drafted)
        assert engine.steps - steps < max(map(len, answers.values()))
    assert shares[0] > 0.4 and shares[1] > 0.1, shares
    engine.grammars.close()
    plain.grammars.close()


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments.parse(["--model", "m", "--speculation", "mtp"]).speculation == "mtp"
    with pytest.raises(SystemExit):
        arguments.parse(["--model", "m", "--speculation", "mtp", "--draft-model", "d"])
    assert "go together" in capsys.readouterr().err
