"""Pools whose free pages are full of NaN: what reads a cell that its owner has not written shows at once."""

from __future__ import annotations

from typing import Any

import pytest

from lora_engine.engine import Engine
from lora_engine.memory import PageKind


def poison(engine: Engine) -> None:
    """Fill every page of an engine that has run nothing yet, and from now on each page before it is used again."""
    data, take = engine.pool.data, engine.core.allocator._take
    data.fill_(float("nan"))

    def poisoned(page: int, kind: PageKind) -> None:
        take(page, kind)
        data[:, page] = float("nan")

    engine.core.allocator._take = poisoned  # type: ignore[method-assign]


@pytest.fixture
def poisoned_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every engine that the test builds a poisoned pool."""
    build = Engine.__init__

    def init(self: Engine, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        poison(self)

    monkeypatch.setattr(Engine, "__init__", init)
