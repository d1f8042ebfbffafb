"""A host that pins adapters and prefixes, and versions that are ready on it."""

from __future__ import annotations

from typing import Any

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.core.config import current
from control_plane.fleet.hosts import actions as fleet_actions
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements import actions, tasks
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints

from .fake_engine import FakeEngine, FakeEngineThread
from .seed import add_version


def enrolled(thread: FakeEngineThread, settings: Any) -> FakeEngine:
    """Make the scripted engine the installation's only host."""
    settings.LORIKEET = current().model_copy(update={"engine_hosts": {"local": thread.engine.address}})
    fleet_actions.sync_hosts(configured_endpoints())
    boot(thread.engine)
    return thread.engine


def boot(engine: FakeEngine) -> EngineHost:
    with engine_calls(HostEndpoint("local", engine.address)) as calls:
        fleet_actions.record_boot("local", calls.describe())
    return the_host()


def the_host() -> EngineHost:
    return EngineHost.objects.get(name="local")


def resize(pages: int) -> None:
    host = the_host()
    host.description = {**host.description, "pages_total": pages}
    host.save()


def ready(org: Any, name: str, number: int = 1) -> AdapterVersion:
    """Return a version that a worker has staged; the first of its name becomes live by itself."""
    version: AdapterVersion = add_version(org.tenant, name, number)
    actions.place_version(version)
    tasks.stage_next()
    version.refresh_from_db()
    assert version.state == "ready"
    return version
