"""What the engine asks of the tiers below the device."""

from __future__ import annotations

from typing import Protocol

from lora_engine.request import RequestError

from .layout import PackedAdapter


class AdapterSource(Protocol):
    """Adapters in host memory, and those that can be brought there. Called from the step thread; never blocks."""

    def knows(self, digest: str) -> bool:
        """Whether the digest is in host memory, on disk or being staged."""

    def get(self, digest: str) -> PackedAdapter | None:
        """The adapter if it is in host memory now."""

    def request_load(self, digest: str) -> None:
        """Start bringing a known adapter into host memory; a second call changes nothing."""

    def load_error(self, digest: str) -> RequestError | None:
        """Why the last load failed, if it did."""


class LoadedAdapters:
    """A source of adapters that are all in host memory: tests and offline benchmarks."""

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

    def request_load(self, digest: str) -> None:
        """Nothing to do: what is known is loaded."""

    def load_error(self, digest: str) -> RequestError | None:
        return None
