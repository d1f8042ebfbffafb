"""Events from processes without websockets of their own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from control_plane.core.events import publisher


class Layer:
    """A channel layer that is not in memory."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        if group == "away":
            raise OSError("no connection")
        self.sent.append((group, asyncio.get_running_loop()))


def test_all_go_through_one_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop for each event had a connection to Redis for each, and uploads waited for one another's events."""
    layer = Layer()
    monkeypatch.setattr(publisher, "get_channel_layer", lambda: layer)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda group: publisher.send_to_group(group, {}), "abc"))
    assert sorted(group for group, _ in layer.sent) == ["a", "b", "c"]
    assert len({loop for _, loop in layer.sent}) == 1
    with pytest.raises(OSError, match="no connection"):
        publisher.send_to_group("away", {})
