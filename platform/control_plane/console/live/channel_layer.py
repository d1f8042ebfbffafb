"""Channels' Redis layer for sockets that outlive an outage of Redis.

Channels' own `receive` raises when Redis goes away, which ends the consumer, and with it the socket, without a close
frame. This one tells the consumer instead: `layer.lost` once, and `layer.back` when Redis answers again.
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
    """What was sent while Redis was away is lost, and after a restart its groups are empty: join them again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lost: set[str] = set()

    async def receive(self, channel: str) -> dict[str, Any]:
        if channel in self._lost:
            return await self._wait_until_back(channel)
        try:
            message: dict[str, Any] = await super().receive(channel)
        except (RedisError, OSError) as error:
            logger.info("A socket's channel is lost for now: %s", error)
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
