"""Prometheus gauge of engine hosts by state, read from the database at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.db import DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.base_models.base_model import host_quarantine, served_bases
from control_plane.fleet.hosts.models import EngineHost, HostState

QUARANTINE = "quarantine"


class HostStates(Collector):
    def describe(self) -> Iterator[Metric]:
        yield self._gauge()

    def collect(self) -> Iterator[Metric]:
        """Yield nothing while the database is away."""
        try:
            counts = host_states()
        except DatabaseError:
            return
        gauge = self._gauge()
        for state in (*HostState.values, QUARANTINE):
            gauge.add_metric([state], counts[state])
        yield gauge

    @staticmethod
    def _gauge() -> GaugeMetricFamily:
        return GaugeMetricFamily("lorikeet_engine_hosts", "Engine hosts, by state.", labels=["state"])


def host_states() -> Counter[str]:
    """Count active hosts by state. A host that answers and is not used counts as in quarantine."""
    bases = served_bases()
    hosts = EngineHost.objects.filter(active=True).defer("last_status")
    used = (HostState.ONLINE, HostState.DRAINING)
    return Counter(QUARANTINE if host.state in used and host_quarantine(bases, host) else host.state for host in hosts)


INSTALLATION.register(HostStates())
