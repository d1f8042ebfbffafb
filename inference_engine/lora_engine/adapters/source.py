"""The adapter source is the engine's interface to the tiers below the device."""

from __future__ import annotations

from typing import Protocol

from lora_engine.errors import RequestError

from .layout import PackedAdapter


class AdapterSource(Protocol):
    """A source of adapters in host memory, and of those that can be loaded into it. The step thread calls it; never
    blocks.
    """

    def knows(self, digest: str) -> bool:
        """Return whether the digest is in host memory, on disk or being staged."""

    def get(self, digest: str) -> PackedAdapter | None:
        """Return the adapter if it is in host memory now."""

    def has(self, packed: PackedAdapter) -> bool:
        """Return whether this is the adapter in host memory now; does not count as a use."""

    def request_load(self, digest: str) -> None:
        """Start to load a known adapter into host memory; a second call changes nothing."""

    def load_error(self, digest: str) -> RequestError | None:
        """Return why the last load failed, if it did."""


class LoadedAdapters:
    """A source of adapters that are all in host memory, for tests and offline benchmarks."""

    def __init__(self) -> None:
        self._adapters: dict[str, PackedAdapter] = {}

    def add(self, packed: PackedAdapter) -> None:
        self._adapters[packed.digest] = packed

    def clear(self) -> None:
        self._adapters.clear()

    def knows(self, digest: str) -> bool:
        return digest in self._adapters

    def get(self, digest: str) -> PackedAdapter | None:
        return self._adapters.get(digest)

    def has(self, packed: PackedAdapter) -> bool:
        return self._adapters.get(packed.digest) is packed

    def request_load(self, digest: str) -> None:
        """Do nothing: known adapters are loaded."""

    def load_error(self, digest: str) -> RequestError | None:
        return None
