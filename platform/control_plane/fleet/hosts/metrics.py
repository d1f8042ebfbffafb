"""Prometheus gauges of engine hosts, read from the database at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.db import DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.core.jobs import clocks
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.base_models.base_model import host_quarantine, served_bases
from control_plane.fleet.hosts.models import EngineHost, HostState

QUARANTINE = "quarantine"
_TIMES = ("name", "state", "last_seen", "certificate_expires_at", "last_status__clock_ahead_s")


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


class HostTimes(Collector):
    """A collector of each host's last heartbeat, its certificate's remaining life, and its clock."""

    def describe(self) -> Iterator[Metric]:
        yield from self._gauges()

    def collect(self) -> Iterator[Metric]:
        """Yield nothing while the database is away."""
        try:
            now, hosts = clocks.database_time(), list(EngineHost.objects.filter(active=True).values_list(*_TIMES))
        except DatabaseError:
            return
        heartbeat, certificate, clock = self._gauges()
        for name, state, last_seen, expires_at, ahead_s in hosts:
            if last_seen is not None:
                heartbeat.add_metric([name], max(0.0, (now - last_seen).total_seconds()))
            if expires_at is not None:
                certificate.add_metric([name], (expires_at - now).total_seconds())
            if ahead_s is not None and state in (HostState.ONLINE, HostState.DRAINING):
                clock.add_metric([name], ahead_s)
        yield from (heartbeat, certificate, clock)

    @staticmethod
    def _gauges() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        text = "Until the certificate of a host that joined expires; negative: since."
        return (
            GaugeMetricFamily("lorikeet_host_heartbeat_age_seconds", "Since a host's last heartbeat.", labels=["host"]),
            GaugeMetricFamily("lorikeet_host_certificate_seconds", text, labels=["host"]),
            GaugeMetricFamily(
                "lorikeet_host_clock_ahead_seconds",
                "How far the clock of a host that answers is ahead of the database's; negative: behind.",
                labels=["host"],
            ),
        )


INSTALLATION.register(HostStates())
INSTALLATION.register(HostTimes())
