"""The unquantised reference of the served model, to compare answers with; it runs beside the engine, layer by layer.

Where weights were quantised to FP8 at loading, the reference reads the checkpoint's weights again, layer by layer, so
that memory never holds a second copy of the model. For a checkpoint in FP8 the reference multiplies by the dequantised
weights and does not round activations. In both cases keys and values are not quantised, and operations are plain torch.
Embedding and head are never quantised.
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
from lora_engine.config import EngineConfig
from lora_engine.errors import UnsupportedModel
from lora_engine.memory.page_pool import PagePool
from lora_engine.peft_format import AdapterLimits, BaseGeometry

from .base_modules import BaseModules
from .batch import EmbeddingLayerSpan, LoraSpan, PrefillSpan, StepBatch
from .digests import files_state
from .loading import LoadedModel, base_embedding_layers, quantises, target_shapes
from .parallel import Parallel
from .transformer import Transformer
from .weight_loading import stream_weights
from .weights import LayerWeights, ModelWeights, change_by_quantisation

# Maximum number of tokens in one call of `UnquantisedModel.read`.
MAX_TOKENS = 2048
# Maximum number of logits computed at a time: 64 MiB in float32.
_MAX_LOGITS = 1 << 24
Pack = Callable[[Packer], PackedAdapter]


@dataclass(frozen=True, slots=True)
class Text:
    """A text to be read; ``candidates`` are, for each token, the next tokens whose log-probabilities are returned.

    The adapter acts from token ``adapted_from`` on; None: nowhere.
    """

    token_ids: Sequence[int]
    candidates: Sequence[Collection[int]]
    adapted_from: int | None = None


class Reading(NamedTuple):
    """The likeliest next token for each token of a text, and the log-probabilities of its candidates."""

    argmax: list[int]
    logprobs: list[dict[int, float]]


class UnquantisedModel:
    """A model that reads texts with unquantised weights. One thread may use it at a time, not the engine's."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel, base: BaseGeometry) -> None:
        self._config, self._loaded, self._base = config, loaded, base
        self._model_config = loaded.model.config
        self._as_they_were = files_state(config.model)
        self.dequantised = self._model_config.quantization is not None
        # For each layer read so far: norm of the change by rounding to FP8, divided by the norm of its matrices.
        self.layer_changes: list[float] = []

    @torch.inference_mode()
    def read(self, texts: Sequence[Text], pack: Pack | None, check: Callable[[], None]) -> list[Reading]:
        """Read ``texts``, with the adapter that ``pack`` packs (None: without an adapter).

        ``check`` is called after each layer and may raise to stop. Raises ``UnsupportedModel`` if the files have
        changed, ``StageError`` for an adapter that cannot be packed, and ``torch.OutOfMemoryError``.
        """
        tokens = sum(len(text.token_ids) for text in texts)
        device = self._device(tokens)
        with _aside(device):
            weights = self._weights(device, check)
            model = Transformer(self._model_config, weights, self._loaded.max_context, Parallel())
            packed = pack(self._packer(model)) if pack else None
            adapter = _Adapter.placed(packed, tokens, len(texts), model, self._config)
            batch = adapter.batch(texts, device)
            hidden = model.hidden(batch.token_ids, None, model.ops.plan(batch, adapter.pool), None, batch.embeddings)
            return list(_readings(texts, hidden, model, adapter.slot))

    def _weights(self, device: torch.device, check: Callable[[], None]) -> ModelWeights:
        served = self._loaded.model.weights
        if self.dequantised and self._loaded.model.parallel.world == 1 and served.embedding.device == device:
            return served
        try:
            unchanged = files_state(self._config.model) == self._as_they_were
        except OSError as error:
            raise UnsupportedModel(f"the model's files can no longer be read ({error.strerror})") from None
        if not unchanged:
            raise UnsupportedModel("the model's files have changed since the host was started")

        def on_layer(index: int, layer: LayerWeights) -> None:
            check()
            if not self.dequantised and index == len(self.layer_changes):
                self.layer_changes.append(change_by_quantisation(layer))

        return stream_weights(self._config.model, self._model_config, served, device, on_layer)

    def _packer(self, model: Transformer) -> PoolPacker:
        targets = target_shapes(self._config, self._model_config, Parallel())
        return PoolPacker(
            self._base,
            AdapterLimits.of_base(self._base, self._config.max_lora_rank),
            model.shape.pool_geometry(self._config.page_tokens),
            targets,
            model.dtype,
            PageableMemory(),
            base_embedding_layers(self._config, self._loaded),
            modules=BaseModules(model.weights, model.shape.targets, aside=False),
        )

    def _device(self, tokens: int) -> torch.device:
        """Return the engine's device if half of the memory outside its pool is enough, otherwise the CPU.

        Steps may need the other half.
        """
        device = self._loaded.model.device
        if device.type != "cuda":
            return device
        free, total = torch.cuda.mem_get_info(device)
        reserve = min(free, int(total * (1 - self._config.gpu_memory_fraction)))
        return device if self._needs(tokens) <= reserve // 2 else torch.device("cpu")

    def _needs(self, tokens: int) -> int:
        """Return the peak memory in bytes without the adapter: two layers, a matrix in conversion, and activations."""
        sizes, itemsize = self._model_config.target_shapes().values(), self._loaded.model.dtype.itemsize
        matrices = [wide * tall for wide, tall in sizes]
        experts, of_experts = self._model_config.experts, 0
        if experts is not None:  # converted one by one
            of_experts = 3 * experts.count * experts.inner * self._model_config.hidden_size
        widest = max(wide + tall for wide, tall in sizes)
        embeddings = 2 * self._model_config.vocab_size * self._model_config.hidden_size * itemsize
        whole = self._loaded.model.parallel.world == 1
        return (
            2 * (sum(matrices) + of_experts) * itemsize
            + 2 * max(matrices) * (4 + itemsize)
            + 4 * tokens * widest * itemsize
            + 4 * 4 * _MAX_LOGITS
            + (0 if whole else embeddings)
        )


def unquantised_model(config: EngineConfig, loaded: LoadedModel, base: BaseGeometry) -> UnquantisedModel | None:
    """Return the unquantised reference, or None if the served model is not quantised."""
    if not quantises(config) and loaded.model.config.quantization is None:
        return None
    return UnquantisedModel(config, loaded, base)


def _aside(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


@dataclass(slots=True)
class _Adapter:
    """A separate pool with room for the texts, and for the adapter after them."""

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
            slot = AdapterSlot(packed, pages, pool, group_offsets(model.shape.targets))
            slot.fill(packed)
        return cls(pool, slot, iter(range(1, first)))

    def batch(self, texts: Sequence[Text], device: torch.device) -> StepBatch:
        """Return a batch of all texts as prompts."""
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
    at_once, row = max(1, _MAX_LOGITS // model.config.vocab_size), 0
    for text in texts:
        reading = Reading([], [])
        for start in range(0, len(text.token_ids), at_once):
            stop = min(start + at_once, len(text.token_ids))
            heads = []
            if slot is not None and slot.head is not None and text.adapted_from is not None:
                first = max(text.adapted_from - start, 0)
                heads = [EmbeddingLayerSpan(slot.head, first, stop - start)] if first < stop - start else []
            logits = model.logits(hidden[row + start : row + stop], None, heads).float()
            _take(logits, text.candidates[start:stop], reading)
        row += len(text.token_ids)
        yield reading


def _take(logits: torch.Tensor, candidates: Sequence[Collection[int]], reading: Reading) -> None:
    wanted = [list(ids) for ids in candidates]
    width = max(map(len, wanted), default=0)
    total = logits.logsumexp(-1, keepdim=True)
    index = torch.tensor([ids + [0] * (width - len(ids)) for ids in wanted], device=logits.device, dtype=torch.int64)
    logprobs = (logits.gather(1, index) - total).tolist()
    reading.argmax.extend(logits.argmax(-1).tolist())
    reading.logprobs.extend(dict(zip(ids, row, strict=False)) for ids, row in zip(wanted, logprobs, strict=True))
