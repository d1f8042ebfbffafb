"""The tensors of the page pool.

S-LoRA's unified paging (section 5.1 of the paper) stores one hidden-sized vector per page, on the assumption that every
projection is hidden x hidden. Grouped-query attention and MLP targets are not, so here a page is a range of bytes. Each
group of layers has one tensor ``[num_pages, page_elems]`` with ``page_elems = 2 * page_tokens * kv_dim``: attention
reads a page as ``[2, page_tokens, kv_heads, head_dim]`` (keys, then values), an adapter as ``2 * page_tokens`` pool
rows of ``kv_dim`` elements. With keys and values in FP8 (E4M3, unscaled) a page has as many tokens in fewer bytes:
attention reads the same shape with smaller elements.

A layer group is one attention layer with the recurrent layers beside it. Recurrent layers have no keys and values, so a
page of each layer of its own would waste most of the pool; their states and their adapters' rows lie in pages of the
group, one layer's behind the other's. A model without recurrent layers has a group for each layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lora_kernels.fp8_tensors import FP8

from .pinned import to_device


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """The shape of the pool on this rank; ``kv_heads`` are this rank's."""

    num_layers: int
    page_tokens: int
    kv_heads: int
    head_dim: int
    kv_per_element: int = 1  # elements of keys and values in the bytes of one adapter element; above 1: FP8
    layer_groups: tuple[int, ...] = ()  # layer group of each layer; empty: each layer is one
    state_pages: int = 0  # pages of a sequence's recurrent state, whatever its length

    @property
    def num_layer_groups(self) -> int:
        return max(self.layer_groups) + 1 if self.layer_groups else self.num_layers

    def layer_group(self, layer: int) -> int:
        """Return the index of a layer's group."""
        return self.layer_groups[layer] if self.layer_groups else layer

    @property
    def kv_dim(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def page_elems(self) -> int:
        """Number of pool elements that one adapter page holds."""
        return self.rows_per_page * self.kv_dim

    @property
    def rows_per_page(self) -> int:
        """Number of pool rows, of ``kv_dim`` elements each, in a page of an adapter."""
        return 2 * self.page_tokens // self.kv_per_element

    @property
    def kv_rows_per_page(self) -> int:
        """Number of key and value vectors in a page."""
        return 2 * self.page_tokens

    def page_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes of one page over all layer groups."""
        return self.num_layer_groups * self.page_elems * dtype.itemsize

    def pages_for_tokens(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def pages_for_sequence(self, tokens: int) -> int:
        """Return the pages of a sequence of ``tokens`` tokens: keys and values, and recurrent state."""
        return self.pages_for_tokens(tokens) + self.state_pages


class PagePool:
    """A pool of ``num_pages`` pages in every layer group, in one allocation."""

    def __init__(self, geometry: PoolGeometry, num_pages: int, dtype: torch.dtype, device: torch.device) -> None:
        self.geometry = geometry
        self.num_pages = num_pages
        # Elements that a page's owner did not write are never read: tests fill pools with NaN.
        self.data = torch.zeros(geometry.num_layer_groups, num_pages, geometry.page_elems, dtype=dtype, device=device)
        # The view for attention: ``[layer groups, pages, 2 * page_tokens * kv_dim]``.
        self.kv = self.data if geometry.kv_per_element == 1 else self.data.view(FP8)

    def layer(self, layer: int) -> torch.Tensor:
        """Return the pages of a layer's group: ``[num_pages, page_elems]``."""
        return self.data[self.geometry.layer_group(layer)]

    def layer_kv(self, layer: int) -> torch.Tensor:
        """Return the pages of an attention layer as keys and values: ``[num_pages, 2 * page_tokens * kv_dim]``."""
        return self.kv[self.geometry.layer_group(layer)]

    def half_pages(self, layer: int) -> torch.Tensor:
        """Return a view ``[2 * num_pages, page_tokens * kv_dim]``: keys of page p in row 2p, values in row 2p + 1."""
        g = self.geometry
        return self.layer_kv(layer).view(2 * self.num_pages, g.page_tokens * g.kv_dim)

    def pool_rows(self, layer: int) -> torch.Tensor:
        """Return a view ``[num_pages * 2 * page_tokens, kv_dim]`` with one row per key or value vector."""
        g = self.geometry
        return self.layer_kv(layer).view(self.num_pages * g.kv_rows_per_page, g.kv_dim)

    def write_pages(self, group: int, pages: list[int], packed: torch.Tensor) -> None:
        """Copy rows ``[len(pages), page_elems]``, contiguous ones, into pages of one layer group."""
        start = 0
        while start < len(pages):  # a copy of contiguous memory needs no buffer on either side
            stop = start + 1
            while stop < len(pages) and pages[stop] == pages[stop - 1] + 1:
                stop += 1
            self.data[group, pages[start] : pages[stop - 1] + 1].copy_(packed[start:stop], non_blocking=True)
            start = stop

    @torch.inference_mode()
    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copy pages in every layer group, in the order of the current stream; no page may be in both lists."""
        indices = to_device(torch.tensor([source, target]), self.data.device)
        self.data.index_copy_(1, indices[1], self.data.index_select(1, indices[0]))
