"""The served model without its quantisation, to compare answers with: computed beside the engine, a layer at a time.

Where weights were made FP8 when they were loaded, the reference has those that the checkpoint has; they are read again,
layer by layer, so that no second copy of the model is ever in memory. A checkpoint in FP8 has no others: there the
reference multiplies by the dequantised weights, and rounds no activations. Both have keys and values that are not
quantised, and plain torch operations. What the embedding and the head are is never quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lora_engine.adapters.device_tier import AdapterSlot, group_offsets
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import Packer, PoolPacker
from lora_engine.adapters.targets import TargetShapes
from lora_engine.config import EngineConfig
from lora_engine.memory.page_pool import PagePool
from lora_engine.peft_format import AdapterLimits, BaseGeometry

from .base_modules import BaseModules
from .batch import EmbeddingLayerSpan, LoraSpan, PrefillSpan, StepBatch
from .digests import files_state
from .errors import UnsupportedModel
from .loading import LoadedModel, base_embedding_layers, quantises
from .parallel import Parallel
from .transformer import Transformer
from .weights import LayerWeights, ModelWeights, biased_targets, change_by_quantisation, stream_weights

MOST_TOKENS = 2048  # that are read at once
_LOGITS_AT_ONCE = 1 << 24  # elements: 64 MiB in float32
Pack = Callable[[Packer], PackedAdapter]


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens to be read, and for each of them which next tokens' log-probabilities are asked for.

    The adapter acts from token ``adapted_from`` on; None: nowhere.
    """

    token_ids: Sequence[int]
    asked: Sequence[Collection[int]]
    adapted_from: int | None = None


class Reading(NamedTuple):
    """For each token of a text: the likeliest next one, and log-probabilities of those that were asked for."""

    likeliest: list[int]
    logprobs: list[dict[int, float]]


class UnquantisedModel:
    """Reads texts by the unquantised weights. For one thread at a time, which is none that serves."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel, base: BaseGeometry) -> None:
        self._config, self._loaded, self._base = config, loaded, base
        self._model_config = loaded.model.config
        self._as_they_were = files_state(config.model)
        self.dequantised = self._model_config.quantization is not None
        # Of each layer, once it was read: the norm of what rounding to FP8 changes, by the norm of its matrices.
        self.layer_changes: list[float] = []

    @torch.inference_mode()
    def read(self, texts: Sequence[Text], pack: Pack | None, check: Callable[[], None]) -> list[Reading]:
        """``pack`` packs the adapter for this model with what it is given; None: there is no adapter.

        ``check`` is called behind each layer that was read, and may raise to end it. Raises ``UnsupportedModel`` if the
        files are not what they were, ``StageError`` for an adapter that cannot be packed, ``torch.OutOfMemoryError``.
        """
        tokens = sum(len(text.token_ids) for text in texts)
        device = self._device(tokens)
        with _aside(device):
            weights = self._weights(device, check)
            model = Transformer(self._model_config, weights, self._loaded.max_context, Parallel())
            own = _Adapter.placed(pack(self._packer(model)) if pack else None, tokens, len(texts), model, self._config)
            batch = own.batch(texts, device)
            hidden = model.hidden(batch.token_ids, None, model.ops.plan(batch, own.pool), None, batch.embeddings)
            return list(_readings(texts, hidden, model, own.slot))

    def _weights(self, device: torch.device, check: Callable[[], None]) -> ModelWeights:
        served = self._loaded.model.weights
        if self.dequantised and self._loaded.model.parallel.world == 1 and served.embedding.device == device:
            return served
        try:
            unchanged = files_state(self._config.model) == self._as_they_were
        except OSError as error:
            raise UnsupportedModel(f"the model's files cannot be read any more ({error.strerror})") from None
        if not unchanged:
            raise UnsupportedModel("the model's files are not those that the host was started with")

        def on_layer(index: int, layer: LayerWeights) -> None:
            check()
            if not self.dequantised and index == len(self.layer_changes):
                self.layer_changes.append(change_by_quantisation(layer))

        return stream_weights(self._config.model, self._model_config, served, device, on_layer)

    def _packer(self, model: Transformer) -> PoolPacker:
        targets = TargetShapes(model.shape.targets, biased=biased_targets(self._model_config))
        return PoolPacker(
            self._base,
            AdapterLimits(max_rank=self._config.max_lora_rank),
            model.shape.pool_geometry(self._config.page_tokens),
            targets,
            model.dtype,
            PageableMemory(),
            base_embedding_layers(self._config, self._loaded),
            modules=BaseModules(model.weights, model.shape.targets, aside=False),
        )

    def _device(self, tokens: int) -> torch.device:
        """The engine's, if half of what its pool leaves is enough; steps may need the rest."""
        own = self._loaded.model.device
        if own.type != "cuda":
            return own
        free, total = torch.cuda.mem_get_info(own)
        reserve = min(free, int(total * (1 - self._config.gpu_memory_fraction)))
        return own if self._needs(tokens) <= reserve // 2 else torch.device("cpu")

    def _needs(self, tokens: int) -> int:
        """Bytes at once, at most, but for the adapter: two layers, one matrix being converted, and activations."""
        sizes, itemsize = self._model_config.target_shapes().values(), self._loaded.model.dtype.itemsize
        matrices = [wide * tall for wide, tall in sizes]
        widest = max(wide + tall for wide, tall in sizes)
        embeddings = 2 * self._model_config.vocab_size * self._model_config.hidden_size * itemsize
        whole = self._loaded.model.parallel.world == 1
        return (
            2 * sum(matrices) * itemsize
            + 2 * max(matrices) * (4 + itemsize)
            + 4 * tokens * widest * itemsize
            + 4 * 4 * _LOGITS_AT_ONCE
            + (0 if whole else embeddings)
        )


def unquantised_model(config: EngineConfig, loaded: LoadedModel, base: BaseGeometry) -> UnquantisedModel | None:
    """None where the served model is not quantised."""
    if not quantises(config) and loaded.model.config.quantization is None:
        return None
    return UnquantisedModel(config, loaded, base)


def _aside(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


@dataclass(slots=True)
class _Adapter:
    """A pool of its own, with room for the texts and, behind that, the adapter."""

    pool: PagePool
    slot: AdapterSlot | None
    text_pages: Iterator[int] = field(default_factory=lambda: iter(()))

    @classmethod
    def placed(
        cls, packed: PackedAdapter | None, tokens: int, texts: int, model: Transformer, config: EngineConfig
    ) -> _Adapter:
        geometry = model.shape.pool_geometry(config.page_tokens)
        first = 1 + geometry.pages_for_tokens(tokens) + texts
        pages = list(range(first, first + (packed.num_pages if packed else 0)))
        pool = PagePool(geometry, first + len(pages), model.dtype, model.device)
        slot = None
        if packed is not None:
            if pages:
                pool.write_adapter(pages, packed.data)
            slot = AdapterSlot(packed, pages, pool, group_offsets(model.shape.targets))
        return cls(pool, slot, iter(range(1, first)))

    def batch(self, texts: Sequence[Text], device: torch.device) -> StepBatch:
        """All texts as prompts."""
        geometry, slot = self.pool.geometry, self.slot
        ids: list[int] = []
        positions, slots, spans = [], [], []
        lora: list[LoraSpan] = []
        embeddings: list[EmbeddingLayerSpan] = []
        for text in texts:
            start, length = len(ids), len(text.token_ids)
            pages = torch.tensor([next(self.text_pages) for _ in range(geometry.pages_for_tokens(length))])
            places = torch.arange(length)
            positions.append(places)
            slots.append(
                pages[places // geometry.page_tokens] * geometry.kv_rows_per_page + places % geometry.page_tokens
            )
            spans.append(PrefillSpan(start, start + length, 0, pages.to(device)))
            ids += text.token_ids
            if slot is not None and text.adapted_from is not None and text.adapted_from < length:
                rows = start + text.adapted_from, start + length
                lora.append(LoraSpan(slot, *rows))
                if slot.embedding is not None:
                    embeddings.append(EmbeddingLayerSpan(slot.embedding, *rows))
        nothing = torch.zeros(0, dtype=torch.int64, device=device)
        return StepBatch(
            token_ids=torch.tensor(ids, device=device),
            positions=torch.cat(positions).to(device),
            slot_mapping=torch.cat(slots).to(device),
            num_decode=0,
            block_table=nothing[None, :].expand(0, 0),
            seq_lens=nothing,
            prefill=spans,
            lora=lora,
            logit_rows=nothing,
            embeddings=embeddings,
        )


def _readings(
    texts: Sequence[Text], hidden: torch.Tensor, model: Transformer, slot: AdapterSlot | None
) -> Iterator[Reading]:
    at_once, row = max(1, _LOGITS_AT_ONCE // model.config.vocab_size), 0
    for text in texts:
        reading = Reading([], [])
        for start in range(0, len(text.token_ids), at_once):
            stop = min(start + at_once, len(text.token_ids))
            heads = []
            if slot is not None and slot.head is not None and text.adapted_from is not None:
                first = max(text.adapted_from - start, 0)
                heads = [EmbeddingLayerSpan(slot.head, first, stop - start)] if first < stop - start else []
            logits = model.logits(hidden[row + start : row + stop], None, heads).float()
            _take(logits, text.asked[start:stop], reading)
        row += len(text.token_ids)
        yield reading


def _take(logits: torch.Tensor, asked: Sequence[Collection[int]], reading: Reading) -> None:
    wanted = [list(ids) for ids in asked]
    width = max(map(len, wanted), default=0)
    total = logits.logsumexp(-1, keepdim=True)
    index = torch.tensor([ids + [0] * (width - len(ids)) for ids in wanted], device=logits.device, dtype=torch.int64)
    found = (logits.gather(1, index) - total).tolist()
    reading.likeliest.extend(logits.argmax(-1).tolist())
    reading.logprobs.extend(dict(zip(ids, row, strict=False)) for ids, row in zip(wanted, found, strict=True))
