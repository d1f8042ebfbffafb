"""The tensors of the page pool.

S-LoRA's unified paging (section 5.1 of the paper) stores one hidden-sized vector per page, on the assumption that every
projection is hidden x hidden. Grouped-query attention and MLP targets are not, so here a page is a range of bytes. Each
layer has one tensor ``[num_pages, page_elems]`` with ``page_elems = 2 * page_tokens * kv_dim``: attention reads a page
as ``[2, page_tokens, kv_heads, head_dim]`` (keys, then values), an adapter as ``2 * page_tokens`` pool rows of
``kv_dim`` elements. With keys and values in FP8 (E4M3, unscaled) a page has as many tokens in fewer bytes: attention
reads the same shape with smaller elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lora_kernels.fp8_tensors import FP8


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """The shape of the pool on this rank; ``kv_heads`` are this rank's."""

    num_layers: int
    page_tokens: int
    kv_heads: int
    head_dim: int
    kv_per_element: int = 1  # elements of keys and values in the bytes of one adapter element; above 1: FP8

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
        """Return the bytes of one page over all layers."""
        return self.num_layers * self.page_elems * dtype.itemsize

    def pages_for_tokens(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)


class PagePool:
    """A pool of ``num_pages`` pages in every layer, in one allocation."""

    def __init__(self, geometry: PoolGeometry, num_pages: int, dtype: torch.dtype, device: torch.device) -> None:
        self.geometry = geometry
        self.num_pages = num_pages
        # Elements that a page's owner did not write are never read: tests fill pools with NaN.
        self.data = torch.zeros(geometry.num_layers, num_pages, geometry.page_elems, dtype=dtype, device=device)
        # The view for attention: ``[layers, pages, 2 * page_tokens * kv_dim]``.
        self.kv = self.data if geometry.kv_per_element == 1 else self.data.view(FP8)

    def half_pages(self, layer: int) -> torch.Tensor:
        """Return a view ``[2 * num_pages, page_tokens * kv_dim]``: keys of page p in row 2p, values in row 2p + 1."""
        g = self.geometry
        return self.kv[layer].view(2 * self.num_pages, g.page_tokens * g.kv_dim)

    def pool_rows(self, layer: int) -> torch.Tensor:
        """Return a view ``[num_pages * 2 * page_tokens, kv_dim]`` with one row per key or value vector."""
        g = self.geometry
        return self.kv[layer].view(self.num_pages * g.kv_rows_per_page, g.kv_dim)

    def write_adapter(self, pages: list[int], packed: torch.Tensor) -> None:
        """Copy an adapter's ``[num_layers, len(pages), page_elems]`` into ``pages`` of every layer."""
        first = pages[0]
        if pages == list(range(first, first + len(pages))):
            self.data[:, first : first + len(pages)].copy_(packed, non_blocking=True)
        else:
            index = torch.tensor(pages, device=self.data.device)
            self.data.index_copy_(1, index, packed.to(self.data.device, non_blocking=True))
