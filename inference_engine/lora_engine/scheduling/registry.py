"""Policies are registered by name, so that a setting can choose one and a wrong name lists the right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])


class UnknownPolicy(ValueError):
    """No policy has that name; the message lists those that exist."""


class Registry(Generic[P]):
    """A registry of factories of one kind of policy. All factories of a kind take the same arguments."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._factories: dict[str, Callable[..., P]] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """Return a class decorator that makes the policy available as ``name``."""

        def add(factory: F) -> F:
            self._factories[name] = factory
            return factory

        return add

    def create(self, name: str, *arguments: object) -> P:
        if name not in self._factories:
            raise UnknownPolicy(f"unknown {self._kind} policy {name!r}; choose one of {', '.join(self.names())}.")
        return self._factories[name](*arguments)

    def names(self) -> list[str]:
        return sorted(self._factories)
