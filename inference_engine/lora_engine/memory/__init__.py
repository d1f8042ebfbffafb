"""The page pool that KV cache and adapter weights share: allocator, prefix cache, eviction queue, tensors."""

from .allocator import OutOfPages, PageAllocator, PageKind, PoolStats
from .device_eviction import Evictable, EvictionQueue, RestoreCosts
from .page_map import PageMap, PageOwner, page_map
from .page_pool import PagePool, PoolGeometry
from .prefix_cache import Activation, PrefixCache, PrefixKey, PrefixNode, StateSnapshot

__all__ = [
    "Activation",
    "Evictable",
    "EvictionQueue",
    "OutOfPages",
    "PageAllocator",
    "PageKind",
    "PageMap",
    "PageOwner",
    "PagePool",
    "PoolGeometry",
    "PoolStats",
    "PrefixCache",
    "PrefixKey",
    "PrefixNode",
    "RestoreCosts",
    "StateSnapshot",
    "page_map",
]
