"""One pool of pages for KV cache and adapter weights: who owns each page, and the tensors behind them."""

from .allocator import OutOfPages, PageAllocator, PageKind, PoolStats
from .page_pool import PagePool, PoolGeometry

__all__ = ["OutOfPages", "PageAllocator", "PageKind", "PagePool", "PoolGeometry", "PoolStats"]
