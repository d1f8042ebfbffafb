"""What one tenant may not see or touch of another, beside its addresses (`test_tenants_walk.py` walks those)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from control_plane.fleet.hosts.api.queries import hosts_for, hosts_for_operator
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db


def test_hosts_hide_other_tenants_adapters(acme: Any, globex: Any, ready_version: Any, host: Any) -> None:
    ours, theirs = ready_version(acme), ready_version(globex, name="secret-project", seed=7)
    host.last_status = {
        "tenants": [
            {"tenant": str(org.tenant.pk), "weight": weight, "waiting": 1, "running": 2, "counter": 100.0 * weight,
             "owed": 0.25 * weight, "received": 0.5, "reason": "own_quota"}
            for org, weight in ((acme, 1.0), (globex, 3.0))
        ],
    }  # fmt: skip
    host.save()
    for digest in (ours.digest, theirs.digest, "sha256:" + "f" * 64):
        host.adapters.create(digest=digest, tier="device", running=0, bytes=1, rank=4)
    shown = acme.client().get(acme.path("hosts")).json()
    assert [adapter["name"] for adapter in shown[0]["adapters"]] == ["support@v1"]
    assert [adapter["digest"] for adapter in shown[0]["adapters"]] == [ours.digest]
    assert shown[0]["adapters"][0]["names"] == ["support@v1"]
    assert (shown[0]["share"]["owed"], shown[0]["share"]["reason"]) == (0.25, "own_quota")
    assert "shares" not in shown[0] and "globex" not in str(shown)
    shares = hosts_for_operator()[0]["shares"]
    assert [(share["tenant"], share["ahead"]) for share in shares] == [("acme", 0.0), ("globex", 200.0)]
    assert "secret-project" not in str(shown)
    assert "secret-project" not in str(hosts_for(acme.tenant))


def test_unknown_tenant_and_foreign_look_alike(acme: Any, globex: Any) -> None:
    foreign = globex.client().get(acme.path("adapters")).json()["error"]
    unknown = globex.client().get("/api/tenants/nowhere/adapters").json()["error"]
    assert foreign["message"].replace("acme", "nowhere") == unknown["message"]
    assert foreign["code"] == unknown["code"]


def test_ids_that_exist_nowhere(acme: Any) -> None:
    for path in ("adapters/nope", "adapters/nope/versions/1", f"uploads/{uuid4()}"):
        answer = acme.client().get(acme.path(path))
        assert answer.status_code == 404
        assert answer.json()["error"]["fix"]


def test_revoked_membership_ends_access(acme: Any) -> None:
    client = acme.client(Role.ADMIN)
    assert client.get(acme.path("adapters")).status_code == 200
    acme.users[Role.ADMIN].memberships.all().delete()
    assert client.get(acme.path("adapters")).status_code == 404


def test_key_of_another_tenant_is_not_touched(acme: Any, globex: Any) -> None:
    key, _ = acme.key()
    assert globex.client().delete(globex.path(f"keys/{key.pk}")).status_code == 404
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None
