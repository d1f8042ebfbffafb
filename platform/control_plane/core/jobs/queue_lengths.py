"""Metrics of the Celery queues: the tasks that wait in each, and the age of the oldest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kombu.transport.memory import Channel as MemoryChannel
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from control_plane.core import redis_client
from control_plane.core.config import current
from control_plane.core.jobs.expiry import broker_clock
from control_plane.core.jobs.queues import QUEUES
from control_plane.core.jobs.task_metrics import SENT_AT
from control_plane.core.metrics.registry import INSTALLATION

_Waiting = dict[str, tuple[int, float]]


class QueueLengths(Collector):
    """A collector of the queues; it yields nothing while Redis is away."""

    def describe(self) -> Iterator[Metric]:
        return iter(_families())

    def collect(self) -> Iterator[Metric]:
        try:
            waiting = _in_redis(current().redis_url) if current().redis_url else _in_memory()
        except (RedisError, OSError):
            return
        length, age = _families()
        for queue, (tasks, age_s) in waiting.items():
            length.add_metric([queue], tasks)
            age.add_metric([queue], age_s)
        yield from (length, age)


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("lorikeet_queue_length", "Tasks that wait in a queue.", labels=["queue"]),
        GaugeMetricFamily("lorikeet_queue_age_seconds", "Age of the task that waits longest.", labels=["queue"]),
    )


def _in_redis(url: str) -> _Waiting:
    with redis_client.client(url) as client, client.pipeline(transaction=False) as pipeline:
        for queue in QUEUES:
            pipeline.llen(queue.name)
            pipeline.lindex(queue.name, -1)  # new tasks are pushed on the left
        answers: list[Any] = pipeline.execute()
    return {
        queue.name: (length, _age_s(oldest))
        for queue, length, oldest in zip(QUEUES, answers[::2], answers[1::2], strict=True)
    }


def _in_memory() -> _Waiting:
    waiting: _Waiting = {}
    for queue in QUEUES:
        tasks = MemoryChannel.queues.get(queue.name)
        if tasks is None:
            waiting[queue.name] = (0, 0.0)
            continue
        with tasks.mutex:
            length, oldest = len(tasks.queue), tasks.queue[0] if tasks.queue else None
        waiting[queue.name] = (length, _age_s(oldest))
    return waiting


def _age_s(message: bytes | dict[str, Any] | None) -> float:
    """Return the age of a message; 0 without one, or if an older version sent it without its time."""
    if message is None:
        return 0.0
    try:
        fields = message if isinstance(message, dict) else json.loads(message)
        sent_at = float(fields["headers"][SENT_AT])
    except (ValueError, KeyError, TypeError):
        return 0.0
    return max(0.0, broker_clock.now().timestamp() - sent_at)


INSTALLATION.register(QueueLengths())
