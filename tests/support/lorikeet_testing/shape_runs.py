"""An engine for a model of given layer sizes and random weights, adapters for it, and a reference that runs both.

The reference is the torch backend over whole sequences, in a precision of its own and on the same rounded weights.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lora_engine.adapters.device_tier import AdapterSlot, DeviceTier
from lora_engine.adapters.experts import read_slot
from lora_engine.adapters.layout import PackedAdapter, TargetShapes, plan_layout
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_set import GraphSet
from lora_engine.memory import PageAllocator, PagePool
from lora_engine.model.batch import LoraSpan, PrefillSpan, StepBatch
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import LoadedModel, build_pool, build_transformer, expert_shapes, quantises
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer
from lora_engine.model.weight_loading import random_weights
from lora_engine.model.weights import DeltaParameters, ExpertWeights, LayerWeights, ModelWeights
from lora_engine.peft_format import (
    DOWN,
    GATE,
    UP,
    AdapterManifest,
    ExpertFactor,
    ExpertLora,
    FactorForm,
    ModuleLora,
)
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.sampling import sample
from lora_engine.text import Tokenizer

from .quantising_ops import QuantisingOps
from .tiny_models import save_tokenizer

Sequences = Sequence[tuple[list[int], str, int]]  # tokens, adapter's digest, how many of the last rows' logits


def cast(weights: ModelWeights, dtype: torch.dtype) -> ModelWeights:
    """Return a model's values in another precision; FP8 values stay FP8, and float32 ones beside them float32."""
    stored = weights.embedding.dtype

    def convert(value: Any) -> Any:
        if isinstance(value, LayerWeights | DeltaParameters | ExpertWeights):
            fields = (f.name for f in dataclasses.fields(value))
            return dataclasses.replace(value, **{name: convert(getattr(value, name)) for name in fields})
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is stored else value

    layers = [convert(layer) for layer in weights.layers]
    embedding = convert(weights.embedding)
    lm_head = embedding if weights.lm_head is weights.embedding else convert(weights.lm_head)
    return dataclasses.replace(
        weights, embedding=embedding, layers=layers, final_norm=convert(weights.final_norm), lm_head=lm_head
    )


class ShapeRun:
    """A model of random weights, adapters of ``ranks`` on every target and expert, an engine and its reference."""

    def __init__(self, config: ModelConfig, device: str, dtype: torch.dtype, ranks: Sequence[int], **settings: Any):
        self.config, self.device, self.dtype = config, torch.device(device), dtype
        self.settings = EngineConfig(
            model=Path("random"), device=device, dtype=str(dtype).removeprefix("torch."),
            **{"backend": "triton", "max_context": 512, "prefix_cache": False, **settings},
        )  # fmt: skip
        self.weights = random_weights(config, self.device, dtype, Parallel(), quantised=quantises(self.settings))
        self.source = LoadedAdapters()
        with pytest.MonkeyPatch.context() as patch:  # kernels are compiled, and graphs captured, when they are used
            patch.setattr("lora_engine.model.warm_up.compile_prefill_steps", _nothing)
            patch.setattr(GraphSet, "capture_first", _nothing)
            self.engine = Engine(self.settings, self.source, self._loaded())
        self.packed = {p.digest: p for p in (self._adapter(rank, seed) for seed, rank in enumerate(ranks))}
        for packed in self.packed.values():
            self.source.add(packed)

    def _loaded(self) -> LoadedModel:
        context = self.settings.max_context
        model, tables = build_transformer(self.settings, self.config, self.weights, context, Parallel())
        with tempfile.TemporaryDirectory() as folder:
            save_tokenizer(Path(folder))
            (Path(folder) / "config.json").write_text("{}")
            tokenizer = Tokenizer.load(Path(folder))
        pool = build_pool(self.settings, model, context)
        targets = TargetShapes(self.config.target_shapes(), experts=expert_shapes(self.config, 1))
        name, device = "random", str(self.device)
        return LoadedModel(name, "sha256:random", device, model, tokenizer, pool, targets, context, tables)

    def add_adapter(self, rank: int, *, on_experts: bool) -> str:
        """Add an adapter on every target, and on experts if ``on_experts``; return its digest."""
        packed = self._adapter(rank, len(self.packed), on_experts=on_experts)
        self.packed[packed.digest] = packed
        self.source.add(packed)
        return packed.digest

    def _adapter(self, rank: int, seed: int, *, on_experts: bool = True) -> PackedAdapter:
        modules = tuple(
            ModuleLora(layer, target, rank, rank, 1.0, "", "")
            for layer in range(self.config.num_layers)
            for target in self.engine.loaded.model.shape.targets_of(layer)
        )
        a, b = (ExpertFactor(("",), FactorForm.STACKED_ROWS, False) for _ in range(2))
        experts = tuple(
            ExpertLora(layer, module, rank, (1.0,), a, b)
            for layer in self.config.sparse_layers
            for module in (GATE, UP, DOWN)
            if on_experts
        )
        targets = tuple(self.config.target_shapes())
        manifest = AdapterManifest(rank, targets, "BF16", 0, 0, 0, "random", modules, {}, experts=experts)
        geometry = self.engine.pool.geometry
        layout = plan_layout(manifest, geometry, self.engine.targets)
        generator = torch.Generator().manual_seed(seed)
        data = torch.zeros(geometry.num_layer_groups, layout.num_pages, geometry.page_elems)
        for layer, slots in enumerate(layout.layers):
            cells = data[geometry.layer_group(layer)].view(-1, geometry.kv_dim)
            for expert_slot in layout.experts[layer] if layout.experts else ():
                factors = read_slot(cells, expert_slot)
                for factor, deviation in ((factors.a, expert_slot.in_features**-0.5), (factors.b, 0.3 * rank**-0.5)):
                    factor.copy_(torch.randn(factor.shape, generator=generator) * deviation)
            for slot in slots:
                for first, features, scale in (
                    (slot.a_row, slot.in_features, slot.in_features**-0.5),
                    (slot.b_row, slot.out_features, 0.3 * rank**-0.5),
                ):
                    rows = -(-features // geometry.kv_dim)
                    block = cells[first : first + rank * rows].view(rank, rows * geometry.kv_dim)
                    block[:, :features] = torch.randn(rank, features, generator=generator) * scale
        data = data.to(self.dtype)
        pinned = data.pin_memory() if self.device.type == "cuda" else data
        return PackedAdapter(f"sha256:{seed:064x}", rank, layout, pinned)

    def generate(self, requests: Sequence[GenerationRequest]) -> dict[str, tuple[list[int], torch.Tensor]]:
        """Return each request's tokens, and the logits each was sampled from."""
        tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
        logits: dict[str, list[torch.Tensor]] = {request.request_id: [] for request in requests}
        with captured_logits() as seen:
            for request in requests:
                self.engine.add_request(request)
            while self.engine.has_work():
                output = self.engine.step()
                for delta in output.deltas:
                    tokens[delta.request_id].extend(delta.token_ids)
                    logits[delta.request_id].append(seen.pop(0))
                for end in output.finished:
                    assert end.error is None, end.error
        assert not seen
        self.engine.core.check()
        return {name: (tokens[name], torch.stack(logits[name])) for name in tokens}

    def reference(self, dtype: torch.dtype) -> Reference:
        return Reference(self, dtype)


def _nothing(*arguments: object) -> float:
    """Do nothing, in place of the slow parts of a GPU engine's start; accept any arguments."""
    return 0.0


class Reference:
    """A reference in plain torch over whole sequences."""

    def __init__(self, run: ShapeRun, dtype: torch.dtype) -> None:
        self._run, self._dtype = run, dtype
        self._model = Transformer(run.config, cast(run.weights, dtype), run.settings.max_context)
        if run.weights.num_quantised():
            self._model.ops = QuantisingOps(self._model.shape)

    @torch.inference_mode()
    def logits(self, sequences: Sequences) -> list[torch.Tensor]:
        """Return logits of the last rows of each sequence, ``[rows, vocab]``, on the model's device."""
        run, geometry, device = self._run, self._run.engine.pool.geometry, self._run.device
        needed = sum(p.num_pages for p in run.packed.values()) + sum(
            geometry.pages_for_sequence(len(tokens)) for tokens, _, _ in sequences
        )
        pool = PagePool(geometry, needed + 1, self._dtype, device)
        pool.data.fill_(float("nan"))
        allocator = PageAllocator(pool.num_pages)
        device_tier = DeviceTier(pool, allocator, run.config.target_shapes())
        slots: dict[str, AdapterSlot] = {
            digest: device_tier.load(dataclasses.replace(packed, data=packed.data.to(self._dtype)))
            for digest, packed in run.packed.items()
        }
        ids, positions, cells, spans, lora, rows, start = [], [], [], [], [], [], 0
        for tokens, digest, last in sequences:
            pages = torch.tensor(allocator.allocate(geometry.pages_for_tokens(len(tokens))))
            places = torch.arange(len(tokens))
            stop = start + len(tokens)
            ids.append(torch.tensor(tokens))
            positions.append(places)
            cells.append(pages[places // geometry.page_tokens] * geometry.rows_per_page + places % geometry.page_tokens)
            states = torch.tensor(allocator.allocate(geometry.state_pages)) if geometry.state_pages else None
            spans.append(PrefillSpan(start, stop, 0, pages.to(device), None if states is None else states.to(device)))
            if digest:
                lora.append(LoraSpan(slots[digest], start, stop))
            rows.append(torch.arange(stop - last, stop))
            start = stop
        none = torch.zeros(0, dtype=torch.int64, device=device)
        batch = StepBatch(
            torch.cat(ids).to(device), torch.cat(positions).to(device), torch.cat(cells).to(device), 0,
            none[:, None], none, spans, lora, torch.cat(rows).to(device),
            state_table=none.view(0, geometry.state_pages) if geometry.state_pages else None,
        )  # fmt: skip
        return list(self._model.forward(batch, pool).split([last for _, _, last in sequences]))


@contextmanager
def captured_logits() -> Iterator[list[torch.Tensor]]:
    """Yield the rows that sampling receives, in the order of the deltas, which on a GPU come a step later."""
    seen: list[torch.Tensor] = []

    def spy(logits: torch.Tensor, rows: Any) -> Any:
        seen.extend(logits.clone())
        return sample(logits, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lora_engine.execution.runner.sample", spy)
        yield seen


def requests_for(
    run: ShapeRun, count: int, lengths: Sequence[int], new: int, seed: int, name: str = "", first: int = 0
) -> tuple[list[GenerationRequest], dict[str, str]]:
    """Return requests of the base and of every adapter in turn, starting at the ``first``; and the adapter of each."""
    rnd, digests = random.Random(seed), ["", *run.packed]
    requests, used = [], {}
    for index in range(count):
        key = f"{name}{index}"
        used[key] = digests[(first + index) % len(digests)]
        prompt = [rnd.randrange(run.config.vocab_size) for _ in range(lengths[index % len(lengths)])]
        # With log-probabilities, every step goes through ``sample``.
        params = SamplingParams(max_tokens=new, ignore_eos=True, logprobs=True)
        requests.append(GenerationRequest(key, prompt, params, used[key]))
    return requests, used


Outputs = Mapping[str, tuple[list[int], torch.Tensor]]


def worst_error(
    run: ShapeRun, requests: Sequence[GenerationRequest], used: dict[str, str], outputs: Outputs, dtype: torch.dtype
) -> float:
    """Return the largest relative error of a token's logits, against the reference in ``dtype``."""
    wanted = run.reference(dtype).logits(_sequences(requests, used, outputs))
    got = [outputs[request.request_id][1] for request in requests]
    return max(map(_error, got, wanted))


def rounding_error(
    run: ShapeRun, requests: Sequence[GenerationRequest], used: dict[str, str], outputs: Outputs
) -> float:
    """Return the relative error of plain torch in the run's precision, against float32."""
    sequences = _sequences(requests, used, outputs)
    rounded = run.reference(run.dtype).logits(sequences)
    return max(map(_error, rounded, run.reference(torch.float32).logits(sequences)))


def _sequences(requests: Sequence[GenerationRequest], used: dict[str, str], outputs: Outputs) -> Sequences:
    return [
        (r.prompt_token_ids + outputs[r.request_id][0][:-1], used[r.request_id], len(outputs[r.request_id][0]))
        for r in requests
    ]


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    assert torch.isfinite(got).all()
    return float(((got.to(want.dtype) - want).norm(dim=-1) / want.norm(dim=-1)).max())
