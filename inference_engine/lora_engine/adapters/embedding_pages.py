"""The embedding and the head of an adapter lie in pool pages after its modules.

A matrix of ``count`` rows is split over the layers, whose pages are equal: each has ``per_layer`` rows of it, from the
same pool row on. An adapter's rows of tokens replace the base's; their token ids lie in the pool as well, bit for bit.
Rows that equal the base's are left out, so that a vocabulary with a few new tokens takes a few rows (``against_base``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PagePool, PoolGeometry
from lora_engine.peft_format import EMBEDDING, HEAD, AdapterManifest, EmbeddingLayer, SafetensorsFile

from .tensors import as_torch, pool_rows_per_row, read_tensor

# Bytes of a matrix that are compared at a time.
_COMPARED_BYTES = 8 << 20
_ELEMENTS_PER_ID = 2  # pool elements per token id, whatever their size


@dataclass(frozen=True, slots=True)
class Block:
    """A matrix's place in the pool: ``per_layer`` of its rows in each layer, from pool row ``row`` on."""

    row: int
    count: int
    features: int
    per_layer: int


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The rows ``[count, hidden]`` that replace the base's for tokens ``ids``; ``ids`` None means tokens 0, 1, …"""

    rows: Block
    ids: Block | None


@dataclass(frozen=True, slots=True)
class LowRank:
    """The factors of ``scale * B @ A``; both have ``rank`` rows, B transposed. The columns of one of them
    are tokens.
    """

    a: Block
    b: Block
    scale: float


@dataclass(frozen=True, slots=True)
class EmbeddingLayerLayout:
    replaced: ReplacedRows | None
    lora: LowRank | None
    vocab: int  # vocabulary size of the adapter's model


@dataclass(frozen=True, slots=True)
class EmbeddingLayersLayout:
    embedding: EmbeddingLayerLayout | None
    head: EmbeddingLayerLayout | None


@dataclass(frozen=True, slots=True)
class BaseEmbeddingLayers:
    """The base model's matrices, ``[vocab, hidden]``; the same tensor where they are tied."""

    embedding: torch.Tensor
    head: torch.Tensor

    @property
    def tied(self) -> bool:
        return self.embedding is self.head


def against_base(manifest: AdapterManifest, weights: SafetensorsFile, base: BaseEmbeddingLayers) -> AdapterManifest:
    """Complete a manifest by comparing with the base: saved rows that differ from it, and what tied layers share.

    Reads whole matrices. Raises ``StageError`` for an impossible combination, ``FormatError``, ``OSError``.
    """
    if not manifest.embedding_layers:
        return manifest
    matrices = {EMBEDDING: base.embedding, HEAD: base.head}
    layers = {
        layer.target: replace(layer, kept=_differing(weights, layer, matrices[layer.target])) if layer.saved else layer
        for layer in manifest.embedding_layers
    }
    if base.tied:
        _tie(layers, weights)
    return replace(
        manifest, embedding_layers=tuple(layer for layer in layers.values() if _changes(layer, len(base.embedding)))
    )


def _changes(layer: EmbeddingLayer, vocab: int) -> bool:
    has_rows = bool(layer.tokens) or (layer.kept is not None and len(layer.kept) > 0)
    return has_rows or layer.lora is not None or layer.vocab != vocab


def _tie(layers: dict[str, EmbeddingLayer], weights: SafetensorsFile) -> None:
    """Apply changes to both tied layers: PEFT loads saved matrices and token rows into the base's one matrix."""
    replaced = {target: layer for target, layer in layers.items() if layer.saved and not layer.alone}
    if len(replaced) == 2 and not _equal(weights, replaced[EMBEDDING].saved, replaced[HEAD].saved):
        raise StageError(
            "untied_embedding_layers",
            "The base model's embedding and head are one matrix, but the adapter has saved two different ones.",
            'Train with modules_to_save=["embed_tokens", "lm_head"], which keeps them apart.',
        )
    for one, other in ((EMBEDDING, HEAD), (HEAD, EMBEDDING)):
        layer, tied = layers.get(one), layers.get(other)
        if layer is None:
            continue
        tied = tied or EmbeddingLayer(other, layer.vocab, layer.hidden)
        if one in replaced and not tied.saved:
            tied = replace(tied, saved=layer.saved, kept=layer.kept, vocab=layer.vocab)
        if one == EMBEDDING and layer.tokens and not tied.tokens and not tied.alone:
            tied = replace(tied, tokens=layer.tokens, tokens_name=layer.tokens_name)
        if tied.saved or tied.tokens or other in layers:
            layers[other] = tied


def _differing(weights: SafetensorsFile, layer: EmbeddingLayer, base: torch.Tensor) -> np.ndarray:
    """Return the rows of the saved matrix that differ from the base's in the base's precision, ascending."""
    blocks = []
    for start, rows in _row_blocks(weights, layer.saved):
        of_base = base[start : start + len(rows)]
        saved = rows[: len(of_base)].to(base.device, base.dtype)
        changed = (saved != of_base).any(dim=1).cpu().numpy()
        blocks += [start + np.flatnonzero(changed), np.arange(start + len(of_base), start + len(rows))]
    differing: np.ndarray = np.concatenate(blocks).astype(np.int64)
    return differing


def _equal(weights: SafetensorsFile, one: str, other: str) -> bool:
    if weights.entries[one].shape != weights.entries[other].shape:
        return False
    blocks = zip(_row_blocks(weights, one), _row_blocks(weights, other), strict=True)
    return all(torch.equal(a.float(), b.float()) for (_, a), (_, b) in blocks)


def _row_blocks(weights: SafetensorsFile, name: str) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield a few whole rows of a matrix at a time, with the first one's number."""
    entry = weights.entries[name]
    row_bytes = (entry.end - entry.start) // entry.shape[0]
    start = 0
    for block in weights.blocks(name, max(1, _COMPARED_BYTES // row_bytes) * row_bytes):
        rows = as_torch(block.copy()).view(-1, entry.shape[1])
        yield start, rows
        start += len(rows)


def replaced_tokens(layer: EmbeddingLayer) -> np.ndarray | None:
    """Return the tokens whose rows the adapter replaces, ascending; None: all."""
    if layer.saved and (layer.kept is None or len(layer.kept) == layer.vocab):
        return None
    kept = layer.kept if layer.kept is not None else np.empty(0, np.int64)
    tokens: np.ndarray = np.union1d(kept, np.array(layer.tokens, dtype=np.int64))
    return tokens


class EmbeddingLayersPlanner:
    """A planner that lays the embedding layers out from pool row ``row`` of every layer on."""

    def __init__(self, geometry: PoolGeometry, row: int) -> None:
        self.row = row
        self._geometry = geometry
        self._known: dict[tuple[str, str], ReplacedRows] = {}

    def plan(self, layers: tuple[EmbeddingLayer, ...]) -> EmbeddingLayersLayout | None:
        layouts = {
            layer.target: EmbeddingLayerLayout(self._replaced(layer), self._lora(layer), layer.vocab)
            for layer in layers
        }
        return EmbeddingLayersLayout(layouts.get(EMBEDDING), layouts.get(HEAD)) if layouts else None

    def _replaced(self, layer: EmbeddingLayer) -> ReplacedRows | None:
        """Place the replaced rows; tied layers share them."""
        tokens = replaced_tokens(layer)
        count = layer.vocab if tokens is None else len(tokens)
        if not count:
            return None
        key = layer.saved, layer.tokens_name
        if key not in self._known:
            groups = self._geometry.num_layer_groups
            ids = None if tokens is None else self._block(groups, -(-count // groups) * _ELEMENTS_PER_ID)
            self._known[key] = ReplacedRows(self._block(count, layer.hidden), ids)
        return self._known[key]

    def _lora(self, layer: EmbeddingLayer) -> LowRank | None:
        if layer.lora is None:
            return None
        ins, outs = (layer.vocab, layer.hidden) if layer.target == EMBEDDING else (layer.hidden, layer.vocab)
        return LowRank(self._block(layer.lora.rank, ins), self._block(layer.lora.rank, outs), layer.lora.scale)

    def _block(self, count: int, features: int) -> Block:
        block = Block(self.row, count, features, -(-count // self._geometry.num_layer_groups))
        self.row += block.per_layer * pool_rows_per_row(features, self._geometry.kv_dim)
        return block


def pack_embedding_layers(
    layers: tuple[EmbeddingLayer, ...],
    layout: EmbeddingLayersLayout,
    weights: SafetensorsFile,
    data: torch.Tensor,
    kv_dim: int,
) -> None:
    """Write the embedding layers into ``data``, the adapter's pages of every layer ``[layers, pages, page_elems]``."""
    pool_rows = data.view(len(data), -1, kv_dim)
    for layer in layers:
        place = layout.embedding if layer.target == EMBEDDING else layout.head
        assert place is not None
        if place.replaced is not None:
            _pack_replaced(layer, place.replaced, weights, pool_rows)
        if place.lora is not None and layer.lora is not None:
            _write(pool_rows, place.lora.a, 0, read_tensor(weights, layer.lora.a_name))
            _write(pool_rows, place.lora.b, 0, read_tensor(weights, layer.lora.b_name).T)


def _pack_replaced(
    layer: EmbeddingLayer, replaced: ReplacedRows, weights: SafetensorsFile, pool_rows: torch.Tensor
) -> None:
    tokens = replaced_tokens(layer)
    ids = np.arange(layer.vocab) if tokens is None else tokens
    if replaced.ids is not None:
        padded = torch.zeros(
            replaced.ids.count * replaced.ids.features // _ELEMENTS_PER_ID, dtype=_id_type(pool_rows.dtype)
        )
        padded[: len(ids)] = torch.from_numpy(ids)
        _write(pool_rows, replaced.ids, 0, padded.view(pool_rows.dtype).view(replaced.ids.count, -1))
    if layer.saved:
        for start, rows in _row_blocks(weights, layer.saved):
            first, last = np.searchsorted(ids, (start, start + len(rows)))
            _write(pool_rows, replaced.rows, int(first), rows[torch.from_numpy(ids[first:last] - start)])
    if layer.tokens:
        rows = read_tensor(weights, layer.tokens_name)
        for place, row in zip(np.searchsorted(ids, layer.tokens).tolist(), rows, strict=True):
            _write(pool_rows, replaced.rows, place, row[None])


def _write(pool_rows: torch.Tensor, block: Block, first: int, rows: torch.Tensor) -> None:
    """Write the block's rows from ``first`` on. ``pool_rows`` is ``[layers, pool rows, kv_dim]``."""
    numbers = torch.arange(first, first + len(rows))
    view = block_view(pool_rows, block)
    view[numbers // block.per_layer, numbers % block.per_layer] = rows.to(view.dtype)


def block_view(pool_rows: torch.Tensor, block: Block) -> torch.Tensor:
    """Return the view ``[layers, per_layer, features]`` of ``pool_rows [layers, pool rows, kv_dim]``,
    without a copy.
    """
    per_row = pool_rows_per_row(block.features, pool_rows.shape[2])
    rows = pool_rows[:, block.row : block.row + block.per_layer * per_row]
    view: torch.Tensor = rows.unflatten(1, (block.per_layer, per_row)).flatten(2)[:, :, : block.features]
    return view


def _id_type(pool: torch.dtype) -> torch.dtype:
    return torch.int64 if pool.itemsize == 4 else torch.int32


class AdapterEmbeddingLayer:
    """An embedding layer of an adapter, which reads the current contents of its pool pages."""

    def __init__(self, layout: EmbeddingLayerLayout, pool: PagePool, pages: list[int]) -> None:
        self.vocab = layout.vocab
        self._layout, self._pool, self._pages = layout, pool, pages
        self._contiguous = pages == list(range(pages[0], pages[0] + len(pages))) if pages else True

    def embed(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """Turn ``out [tokens, hidden]`` from the base's embedding of ``ids [tokens]`` into the adapter's."""
        replaced, lora = self._layout.replaced, self._layout.lora
        if replaced is not None:
            places, is_replaced = self._places(replaced, ids)
            rows = self._view(replaced.rows)[places // replaced.rows.per_layer, places % replaced.rows.per_layer]
            out.copy_(torch.where(is_replaced[:, None], rows, out))
        if lora is not None:
            shrunk = self._view(lora.a)[:, :, ids].flatten(0, 1)[: lora.a.count]
            out.addmm_(shrunk.t(), self._rows(lora.b), alpha=lora.scale)

    def add_to(self, logits: torch.Tensor, hidden: torch.Tensor) -> None:
        """Turn ``logits [rows, at least vocab]`` of ``hidden [rows, hidden]`` from the base's into the adapter's.

        Columns beyond ``vocab`` are unchanged.
        """
        replaced, lora = self._layout.replaced, self._layout.lora
        if replaced is not None:
            view = self._view(replaced.rows)
            values = torch.bmm(hidden.expand(len(view), *hidden.shape), view.transpose(1, 2))
            values = values.transpose(0, 1).flatten(1)[:, : replaced.rows.count]
            if replaced.ids is None:
                logits[:, : replaced.rows.count] = values
            else:
                logits.index_copy_(1, self._ids(replaced), values)
        if lora is not None:
            shrunk = torch.mm(hidden, self._rows(lora.a).t())
            logits[:, : self.vocab].addmm_(shrunk, self._rows(lora.b), alpha=lora.scale)

    def _places(self, replaced: ReplacedRows, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the positions of the rows of ``ids``, and which of them exist."""
        last = replaced.rows.count - 1
        if replaced.ids is None:
            return ids.clamp(max=last), ids <= last
        known = self._ids(replaced)
        places = torch.searchsorted(known, ids).clamp_(max=last)
        return places, known[places] == ids

    def _ids(self, replaced: ReplacedRows) -> torch.Tensor:
        """Return the token ids, ``[count]`` int64, ascending."""
        assert replaced.ids is not None
        bits = self._view(replaced.ids).reshape(-1)
        return bits.view(_id_type(bits.dtype))[: replaced.rows.count].long()

    def _rows(self, block: Block) -> torch.Tensor:
        """Return ``[count, features]`` as a copy, for few rows only."""
        return self._view(block).flatten(0, 1)[: block.count]

    def _view(self, block: Block) -> torch.Tensor:
        """Return a view of consecutive pages, or a copy of scattered ones."""
        data, kv_dim = self._pool.data, self._pool.geometry.kv_dim
        if self._contiguous:
            pages = data[:, self._pages[0] : self._pages[0] + len(self._pages)]
            return block_view(pages.unflatten(2, (-1, kv_dim)).flatten(1, 2), block)
        per_page = self._pool.geometry.rows_per_page
        stop = block.row + block.per_layer * pool_rows_per_row(block.features, kv_dim)
        first = block.row // per_page
        index = torch.tensor(self._pages[first : -(-stop // per_page)], device=data.device)
        gathered = data[:, index].unflatten(2, (-1, kv_dim)).flatten(1, 2)
        return block_view(gathered, replace(block, row=block.row - first * per_page))
