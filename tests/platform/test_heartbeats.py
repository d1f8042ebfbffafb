"""Workers, beat and the watcher beat from their main loops; their port reports one that no longer does."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest
from celery import Celery
from celery.signals import heartbeat_sent

from control_plane.celery import note_heartbeat
from control_plane.core.jobs.beat import MonotonicScheduler
from control_plane.core.metrics import heartbeat
from control_plane.core.metrics.endpoint import ProcessMetricsServer
from control_plane.fleet.hosts.watcher import FleetWatcher


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin long after the last heartbeat."""
    monkeypatch.setattr(heartbeat, "_beaten_at", heartbeat._beaten_at - 10_000)
    assert heartbeat.age_s() > heartbeat.HUNG_AFTER_S


def livez(port: int) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_port_reports_a_process_that_hangs_without_a_token(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_token": "secret"})
    server = ProcessMetricsServer("127.0.0.1", 0)
    server.start()
    try:
        status, text = livez(server.port)
        assert status == 503 and "it hangs" in text
        heartbeat.beat()
        assert livez(server.port) == (200, "ok\n")
    finally:
        server.shutdown()
        server.server_close()


def test_each_tick_of_beat_is_one() -> None:
    MonotonicScheduler(Celery(set_as_current=False), lazy=True).tick()
    assert heartbeat.age_s() < 10


def test_each_heartbeat_of_a_worker_is_one() -> None:
    assert note_heartbeat in [receiver() for _, receiver in heartbeat_sent.receivers]
    note_heartbeat()
    assert heartbeat.age_s() < 10


class OtherLeads:
    """A lease that another process holds."""

    def hold(self) -> bool:
        return False

    def release(self) -> None:
        pass


async def test_each_round_of_a_watcher_is_one_also_while_another_leads() -> None:
    watcher = asyncio.create_task(FleetWatcher(dict, OtherLeads()).run())
    while heartbeat.age_s() > 10:
        await asyncio.sleep(0.01)
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
