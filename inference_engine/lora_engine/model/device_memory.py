"""The sum of a device's memory: what the weights and steps need, and what fits into the page pool that is left.

The engine fills in what it measured and logs the sum at start; ``python -m lora_engine --plan`` fills in what it
computes from the model's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from lora_engine.adapters.layout import plan_layout
from lora_engine.adapters.targets import TargetShapes
from lora_engine.config import EngineConfig
from lora_engine.memory.page_pool import PagePool, PoolGeometry
from lora_engine.peft_format import DOWN, GATE_UP, AdapterManifest, ExpertFactor, ExpertLora, FactorForm, ModuleLora

from .shape import ModelShape

# Pages that no sequence has: one that padding rows write to, and one for the next token of a full sequence.
_OTHER_PAGES = 2
# Tokens of a usual sequence, for the log.
_USUAL_TOKENS = 2048
# The name of the part that is left to other programs, and to what the arithmetic misses.
RESERVE = "reserve (--gpu-memory-fraction)"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one rank's device in bytes: the whole, the parts of it that are not the pool's, and the pool's
    geometry.
    """

    card: int
    parts: Mapping[str, int]
    geometry: PoolGeometry
    dtype: torch.dtype

    @property
    def pool(self) -> int:
        """Number of bytes that are left for the page pool; below 0 if the parts need more than there is."""
        return self.card - sum(self.parts.values())

    @property
    def page_bytes(self) -> int:
        return self.geometry.page_bytes(self.dtype)

    @property
    def pages(self) -> int:
        return max(0, self.pool // self.page_bytes)

    @property
    def token_bytes(self) -> float:
        """Number of bytes of one token's keys and values."""
        return self.page_bytes / self.geometry.page_tokens

    @property
    def longest(self) -> int:
        """Number of tokens of the longest sequence that fits; 0 if none fits."""
        return longest_sequence(self.geometry, self.pages)

    def sequences(self, tokens: int, adapter_pages: int = 0) -> int:
        """Return how many sequences of ``tokens`` tokens fit beside adapters with so many pages in all."""
        return max(0, self.pages - _OTHER_PAGES - adapter_pages) // self.geometry.pages_for_sequence(tokens)

    def on(self, card: int, config: EngineConfig) -> DeviceMemory:
        """Return the same on a card of another size."""
        return replace(self, card=card, parts={**self.parts, RESERVE: reserve_bytes(config, card)})

    def require(self, max_context: int) -> None:
        """Raise ``ValueError`` with the sum if not even one sequence of ``max_context`` tokens fits."""
        require_one_sequence(self.geometry, self.dtype, self.pages, max_context, f"\n{self.table()}")

    def table(self) -> str:
        """Return the sum, a line for each part."""
        lines = {"card": self.card, **self.parts, "page pool": self.pool}
        return "\n".join(f"  {size / 2**30:8.2f} GiB  {what}" for what, size in lines.items())


def require_one_sequence(
    geometry: PoolGeometry, dtype: torch.dtype, pages: int, max_context: int, table: str = ""
) -> None:
    """Raise ``ValueError`` if a pool has no room for a sequence of ``max_context`` tokens.

    ``table`` explains the pool's size.
    """
    needed = geometry.pages_for_sequence(max_context) + _OTHER_PAGES
    if pages >= needed:
        return
    longest = longest_sequence(geometry, pages)
    shorter = f", or --max-context {longest}, the longest that fits" if longest else ""
    raise ValueError(
        f"the page pool would have {pages} pages ({_gib(pages * geometry.page_bytes(dtype))}), but one sequence of "
        f"{max_context} tokens needs {needed} ({_gib(needed * geometry.page_bytes(dtype))}); give the engine more "
        "memory (a larger card, --tensor-parallel, --quantization fp8, --kv-cache-dtype fp8, or --pool-mb if it is "
        f"set){shorter}{table}"
    )


def longest_sequence(geometry: PoolGeometry, pages: int) -> int:
    """Return the number of tokens of the longest sequence that a pool has room for; 0 if there is none."""
    return max(0, pages - _OTHER_PAGES - geometry.state_pages) * geometry.page_tokens


def room(pool: PagePool, max_context: int) -> str:
    """Return how many sequences fit into a pool without adapters, as words."""
    geometry, pages = pool.geometry, pool.num_pages - _OTHER_PAGES
    counts = [
        f"{pages // geometry.pages_for_sequence(tokens):,} of {tokens:,}"
        for tokens in sorted({min(_USUAL_TOKENS, max_context), max_context})
    ]
    token = geometry.page_bytes(pool.data.dtype) / geometry.page_tokens
    return f"sequences of tokens: {', '.join(counts)}, without adapters; a token takes {token / 1024:.1f} KiB"


def sampling_bytes(config: EngineConfig, vocab_size: int, dtype: torch.dtype) -> int:
    """Return the bytes for logits: graph outputs; of all ranks, as gathered and in order; in float32, with penalties;
    in float32, with log-probabilities of rows that request them.
    """
    of_ranks = 1 if config.tensor_parallel == 1 else 3
    return config.max_running * vocab_size * (dtype.itemsize * of_ranks + 4 * 3)


def tensor_bytes(*roots: object, without: Iterable[object] = ()) -> int:
    """Return the bytes of all tensors that objects of this engine and its kernels hold, each once.

    Those that ``without`` hold do not count.
    """
    known, left = set[int](), list(without)
    for each in left:
        known.add(id(each))
        left += [part for part in _parts(each) if id(part) not in known]
    total, left = 0, list(roots)
    while left:
        each = left.pop()
        if id(each) not in known:
            known.add(id(each))
            total += each.nbytes if isinstance(each, torch.Tensor) else 0
            left += _parts(each)
    return total


def _parts(each: object) -> list[object]:
    if isinstance(each, dict):
        return [*each.values()]
    if isinstance(each, (list, tuple, set, frozenset)):
        return [*each]
    if not type(each).__module__.startswith(("lora_engine.", "lora_kernels.")):
        return []
    slots = [name for of in type(each).__mro__ for name in getattr(of, "__slots__", ())]
    return [*getattr(each, "__dict__", {}).values(), *(getattr(each, name, None) for name in slots)]


def reserve_bytes(config: EngineConfig, card: int) -> int:
    return int(card * (1 - config.gpu_memory_fraction))


def adapter_pages(
    shape: ModelShape, geometry: PoolGeometry, targets: TargetShapes, rank: int, names: Sequence[str], fp8_rows: int = 0
) -> int:
    """Return the pages of an adapter of one rank on the targets ``names``, of which "experts" are those of all experts.

    ``fp8_rows``: as in ``AdapterLayout``.
    """
    modules = tuple(
        ModuleLora(layer, target, rank, float(rank), 1.0, "a", "b")
        for layer in range(shape.num_layers)
        for target in shape.targets_of(layer)
        if target in names
    )
    a, b = ExpertFactor(("a",), FactorForm.ROWS), ExpertFactor(("b",), FactorForm.COLUMNS)
    experts = tuple(
        ExpertLora(layer, module, rank, (1.0,), a, b)
        for layer in (shape.sparse_layers if "experts" in names else ())
        for module in (GATE_UP, DOWN)
    )
    manifest = AdapterManifest(rank, tuple(names), "BF16", 0, 0, 0, "", modules, {}, experts=experts)
    return plan_layout(manifest, geometry, targets, fp8_rows).num_pages


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
