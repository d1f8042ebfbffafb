"""Policies by name, so that a setting can choose one and a wrong name lists the right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

P = TypeVar("P")


class UnknownPolicy(ValueError):
    """No policy has that name; the message lists those that exist."""


class Registry(Generic[P]):
    """Factories of one kind of policy."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._factories: dict[str, Callable[[], P]] = {}

    def register(self, name: str) -> Callable[[Callable[[], P]], Callable[[], P]]:
        """Class decorator: make the policy available as ``name``."""

        def add(factory: Callable[[], P]) -> Callable[[], P]:
            self._factories[name] = factory
            return factory

        return add

    def create(self, name: str) -> P:
        if name not in self._factories:
            raise UnknownPolicy(f"unknown {self._kind} policy {name!r}; choose one of {', '.join(self.names())}.")
        return self._factories[name]()

    def names(self) -> list[str]:
        return sorted(self._factories)
