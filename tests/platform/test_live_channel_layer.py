"""The Redis layer's news for sockets: lost once, back once, and nothing ends them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from channels_redis.core import RedisChannelLayer
from redis.exceptions import RedisError

from control_plane.console.live import channel_layer
from control_plane.console.live.channel_layer import SurvivingChannelLayer


def test_a_socket_is_told_when_redis_goes_and_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Any] = [{"type": "one"}, RedisError("gone"), {"type": "two"}, OSError("gone")]
    looks = [True, True, False]

    async def receive(_layer: RedisChannelLayer, _channel: str) -> Any:
        message = messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    monkeypatch.setattr(RedisChannelLayer, "receive", receive)
    monkeypatch.setattr(channel_layer, "RETRY_S", 0.001)
    state = type("State", (), {"is_open": property(lambda _self: looks.pop(0))})()
    monkeypatch.setattr(channel_layer, "breaker", lambda: state)

    async def go() -> list[str]:
        layer = SurvivingChannelLayer(hosts=["redis://127.0.0.1:1/0"])
        seen = [(await layer.receive("a"))["type"] for _ in range(4)]
        assert not looks, "it waits until Redis answers"
        waiting = asyncio.ensure_future(layer.receive("b"))
        assert (await waiting)["type"] == "layer.lost"
        # One that ends while it waits is forgotten.
        looks.append(True)
        monkeypatch.setattr(channel_layer, "breaker", lambda: SimpleNamespace(is_open=True))
        waiting = asyncio.ensure_future(layer.receive("b"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        messages.append({"type": "three"})
        return [*seen, (await layer.receive("b"))["type"]]

    assert asyncio.run(go()) == ["one", "layer.lost", "layer.back", "two", "three"]
