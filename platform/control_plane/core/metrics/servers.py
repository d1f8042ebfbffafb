"""Metrics of this process: its version, and its connections to PostgreSQL and Redis. A scrape makes none."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connections
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.core import redis_client
from control_plane.core.config import current
from control_plane.core.db import database_breaker, outage_s
from lorikeet_version import build_version

# The pool's figures by the names of psycopg_pool.
_GAUGES = (
    ("connections", "pool_size", "Connections in this process's pool."),
    ("connections_free", "pool_available", "Connections in the pool that are not in use."),
    ("connections_max", "pool_max", "Most connections that the pool opens."),
    ("waiting", "requests_waiting", "Callers that wait for a connection now."),
)
_COUNTERS = (
    ("waits", "requests_queued", "Callers that had to wait for a connection."),
    ("refusals", "requests_errors", "Callers that got no connection in time."),
    ("failed_connections", "connections_errors", "Connections that could not be opened."),
)


class ServerConnections(Collector):
    """A collector of the version, the database pool, and outages of PostgreSQL and Redis."""

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        away = GaugeMetricFamily(
            "lorikeet_server_away_seconds", "For how long a server has not answered; 0: it answers.", labels=["server"]
        )
        away.add_metric(["database"], outage_s())
        if url := current().redis_url:
            away.add_metric(["redis"], redis_client.breaker_of(url).open_for_s)
        yield away
        build = GaugeMetricFamily("lorikeet_build_info", "1, with this process's version.", labels=["version"])
        build.add_metric([build_version()], 1)
        yield build
        stats = _pool_stats()
        for name, key, text in _GAUGES:
            gauge = GaugeMetricFamily(f"lorikeet_database_pool_{name}", text)
            gauge.add_metric([], stats.get(key, 0))
            yield gauge
        for name, key, text in _COUNTERS:
            counter = CounterMetricFamily(f"lorikeet_database_pool_{name}", text)
            counter.add_metric([], stats.get(key, 0))
            yield counter


def _pool_stats() -> dict[str, int]:
    """Return the figures of the pool; empty without a pool, or before its first connection."""
    if database_breaker() is None:
        return {}
    pool = getattr(connections["default"], "_connection_pools", {}).get("default")
    return dict(pool.get_stats()) if pool is not None else {}


REGISTRY.register(ServerConnections())
