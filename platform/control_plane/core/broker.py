"""Celery's connection to Redis: a worker survives every outage of Redis and resumes within seconds.

With kombu alone, a worker crashes if Redis goes away while a task runs (kombu reads the address of a channel that was
closed), and waits for up to half a minute after Redis is back.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError

# Longest pause between two attempts to connect to Redis, in seconds.
LONGEST_PAUSE_S = 2.0
# Timeouts for publishing, in seconds. Tasks are queued by requests, whose clients wait for the answer.
PUBLISH_WITHIN = {"socket_connect_timeout": 1.0, "socket_timeout": 2.0}


class Channel(kombu_redis.Channel):
    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection.client is None:
            # Workers expect this one, and leave what they cannot acknowledge to its visibility timeout.
            raise ConnectionError("This channel's connection was closed.")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]


class Transport(kombu_redis.Transport):
    Channel = Channel


class PersistentConnection(Connection):
    """A connection that retries at least every two seconds."""

    def get_transport_cls(self) -> Any:
        transport = super().get_transport_cls()  # type: ignore[no-untyped-call]
        return Transport if transport is kombu_redis.Transport else transport

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        pauses = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": LONGEST_PAUSE_S}
        return super().ensure_connection(*args, **{**pauses, **options})  # type: ignore[no-untyped-call]


class Broker(AMQP):  # type: ignore[misc]
    Connection = PersistentConnection


class App(Celery):  # type: ignore[misc]
    """A Celery application that waits for Redis for less time when it publishes than when it consumes."""

    def connection_for_write(self, url: str | None = None, *args: Any, **options: Any) -> Any:
        if not self.conf.broker_url.startswith("memory:"):
            options.setdefault("transport_options", PUBLISH_WITHIN)
        return super().connection_for_write(url, *args, **options)
