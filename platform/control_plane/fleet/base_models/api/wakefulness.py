"""Base models that need a host, for an autoscaler that starts and stops hosts, and the hosts that each has.

A base model that never sleeps always needs one. One that may sleep needs one while its last request is recent, while
its hosts are busy, and while a version of one of its adapters waits for its first placement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.core.jobs import clocks
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.base_models.base_model import described_hosts, served_bases
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.models import EngineHost, HostState

ARRIVING = (VersionState.VALIDATED, VersionState.STAGING)
_THERE = (HostState.ONLINE, HostState.DRAINING)


@dataclass(frozen=True)
class Wakefulness:
    """The need of a base model for hosts: whether it is wanted now, and the number of its hosts that take requests."""

    wanted: bool
    online: int
    name: str = ""


def wakefulness(now: datetime | None = None) -> dict[str, Wakefulness]:
    """Return the wakefulness of the base models that are served, by digest."""
    now, bases = now or clocks.database_time(), served_bases()
    rows = {row.digest: row for row in BaseModel.objects.filter(withdrawn_at=None)}
    online, busy = defaultdict[str, int](int), set[str]()
    working = _working()
    for host in described_hosts():
        base = bases.of_host(host.description)
        if base is not None and host.state in _THERE:
            online[base.digest] += host.state == HostState.ONLINE
            if host.pk in working:
                busy.add(base.digest)
    arriving = set(
        AdapterVersion.objects.filter(state__in=ARRIVING).order_by().values_list("base_digest", flat=True).distinct()
    )
    return {
        base.digest: Wakefulness(
            _is_in_demand(rows[base.digest], now) or base.digest in busy or not arriving.isdisjoint(base.adapters_of),
            online[base.digest],
            base.name,
        )
        for base in bases
        if base.digest in rows
    }


def _is_in_demand(row: BaseModel, now: datetime) -> bool:
    if not row.sleeps_after_s:
        return True
    after = timedelta(seconds=row.sleeps_after_s)
    # A time in the future was stored before the database's clock stepped back.
    return row.asked_at is not None and now - after < row.asked_at <= now + after


def _working() -> set[int]:
    """Return the hosts with requests, by primary key. Reads two numbers only, as a status lists all adapters."""
    load = ("last_status__running", "last_status__waiting")
    hosts = EngineHost.objects.filter(active=True, state__in=_THERE).order_by()
    return {pk for pk, running, waiting in hosts.values_list("pk", *load) if running or waiting}


class BaseModels(Collector):
    """A Prometheus collector of base models' needs, read from the database at each scrape; empty while it is away."""

    def describe(self) -> Iterator[Metric]:
        yield from self._gauges()

    def collect(self) -> Iterator[Metric]:
        try:
            bases = wakefulness()
        except DatabaseError:
            return
        wanted, online = self._gauges()
        for base in bases.values():
            wanted.add_metric([base.name], base.wanted)
            online.add_metric([base.name], base.online)
        yield from (wanted, online)

    @staticmethod
    def _gauges() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        labels = ["base_model"]
        return (
            GaugeMetricFamily("lorikeet_base_model_wanted", "1 while a base model is to have a host.", labels=labels),
            GaugeMetricFamily("lorikeet_base_model_hosts", "Hosts of a base model that take requests.", labels=labels),
        )


INSTALLATION.register(BaseModels())
