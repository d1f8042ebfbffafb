"""A host serves every tenant; what it holds of one is nobody else's business."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lorikeet_testing.platform_fixtures import Org
from lorikeet_testing.seed import add_version

from control_plane.fleet.hosts import actions as fleet_actions
from control_plane.fleet.hosts.api import events
from control_plane.fleet.hosts.models import EngineHost
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db
FORGOTTEN = "sha256:" + "f" * 64
FOREIGN = {"rank": 7_777_777, "bytes": 123_456_789_123}


@pytest.fixture
def digests(host: EngineHost, acme: Org, globex: Org) -> dict[str, str]:
    """One adapter of each tenant on the host, and one of nobody; the other tenant's is the busiest."""
    versions = {org.tenant.slug: add_version(org.tenant, "support") for org in (acme, globex)}
    found = {slug: version.digest for slug, version in versions.items()} | {"": FORGOTTEN}
    tiers = pb.AdapterResidency
    fleet_actions.record_status(
        "local",
        pb.HostStatus(
            adapters=[
                tiers(digest=found["globex"], tier=tiers.DEVICE, running=5, **FOREIGN),
                tiers(digest=found["acme"], tier=tiers.HOST, running=1, bytes=1000, rank=8),
                tiers(digest=FORGOTTEN, tier=tiers.DISK, **FOREIGN),
            ]
        ),
    )
    return found


def adapters_in(answer: Any) -> list[tuple[str, str]]:
    (host,) = answer
    assert host["adapters_total"] == len(host["adapters"]), "their number tells of others too"
    return [(adapter["name"], adapter["digest"]) for adapter in host["adapters"]]


@pytest.mark.parametrize("role", list(Role))
def test_tenants_see_their_own(digests: dict[str, str], acme: Org, role: Role) -> None:
    client = acme.client(role)
    for answer in (client.get(acme.path("hosts")).json(), client.get(acme.path("overview")).json()["hosts"]):
        assert adapters_in(answer) == [("support@v1", digests["acme"])]
        text = json.dumps(answer)
        assert not [secret for secret in (digests["globex"], FORGOTTEN, *map(str, FOREIGN.values())) if secret in text]


def test_open_consoles_are_told_of_their_own(
    digests: dict[str, str], acme: Org, globex: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[Any, Any] = {}
    monkeypatch.setattr(events, "present_tenants", lambda: {acme.tenant.pk, globex.tenant.pk})
    monkeypatch.setattr(events, "publish", lambda tenant, _event, data: told.update({tenant: data}))
    events.publish_host_status(name="local")
    assert adapters_in([told[acme.tenant.pk]]) == [("support@v1", digests["acme"])]
    assert adapters_in([told[globex.tenant.pk]]) == [("support@v1", digests["globex"])]


def test_operators_see_all_and_whose_they_are(digests: dict[str, str], acme: Org) -> None:
    assert acme.client().get("/api/operator/hosts").status_code == 403
    operator = create_user(actor=SYSTEM, email="ops@example.org", password="correct horse battery")
    set_operator(actor=SYSTEM, user=operator, operator=True)
    client = acme.client()
    client.force_login(operator)
    (host,) = client.get("/api/operator/hosts").json()
    assert host["adapters_total"] == 3
    assert [adapter["used_by"] for adapter in host["adapters"]] == [
        [{"tenant": "globex", "name": "support@v1"}],
        [{"tenant": "acme", "name": "support@v1"}],
        [],
    ]
