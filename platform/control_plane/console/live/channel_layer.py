"""Channels' Redis layer for sockets that outlive an outage of Redis.

Channels' own `receive` raises when Redis is lost, which ends the consumer and its socket without a close frame. This
layer sends the consumer `layer.lost` once instead, and `layer.back` when Redis answers again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from channels_redis.core import RedisChannelLayer
from redis.exceptions import RedisError

from control_plane.core.redis_client import breaker

logger = logging.getLogger(__name__)

RETRY_S = 0.5


class SurvivingChannelLayer(RedisChannelLayer):  # type: ignore[misc]
    """A channel layer that survives outages. Messages sent meanwhile are lost; consumers must rejoin their groups."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lost: set[str] = set()

    async def receive(self, channel: str) -> dict[str, Any]:
        if channel in self._lost:
            return await self._wait_until_back(channel)
        try:
            message: dict[str, Any] = await super().receive(channel)
        except (RedisError, OSError) as error:
            logger.info("A socket's channel is lost until Redis answers: %s", error)
            self._lost.add(channel)
            return {"type": "layer.lost"}
        return message

    async def _wait_until_back(self, channel: str) -> dict[str, Any]:
        try:
            await asyncio.sleep(RETRY_S)
            while breaker().is_open:
                await asyncio.sleep(RETRY_S)
        finally:
            self._lost.discard(channel)
        return {"type": "layer.back"}
