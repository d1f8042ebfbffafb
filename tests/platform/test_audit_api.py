"""Reading the audit log: filters, pages, whose."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from control_plane.accounts.actions import set_operator
from control_plane.audit.actor import SYSTEM
from control_plane.keys.actions import revoke_key
from control_plane.tenants.roles import Role

pytestmark = pytest.mark.django_db


def read(org: Any, role: Role = Role.ADMIN, **filters: object) -> Any:
    return org.client(role).get(org.path("audit"), filters).json()


def shown(org: Any, **filters: object) -> list[str]:
    return [f"{row['action']} {row['target']['label']}" for row in read(org, **filters)["events"]]


@pytest.fixture
def keys(acme: Any, globex: Any) -> None:
    for name in ("one", "two", "three"):
        acme.key(name)
    globex.key("foreign")
    revoke_key(acting=acme.principal(Role.DEVELOPER), key=acme.key("four", role=Role.DEVELOPER)[0])


def test_newest_first_and_only_ones_own(acme: Any, keys: None) -> None:
    everything = shown(acme, size=200)
    assert everything[:2] == ["key.revoke four", "key.create four"]
    assert not [row for row in everything if "foreign" in row]
    first = read(acme)["events"][0]
    assert first["actor"] == {
        "kind": "user",
        "id": str(acme.users[Role.DEVELOPER].pk),
        "label": "developer@acme.example",
    }
    assert first["detail"]["prefix"]


def test_pages_join_without_gap(acme: Any, keys: None) -> None:
    pages: list[int] = []
    before: int | None = None
    while True:
        answer = read(acme, size=2, **({"before": before} if before else {}))
        pages += [row["id"] for row in answer["events"]]
        before = answer["next"]
        if before is None:
            break
    assert pages == [row["id"] for row in read(acme, size=200)["events"]]


def test_filters(acme: Any, keys: None) -> None:
    assert shown(acme, action="key.revoke") == ["key.revoke four"]
    assert len(shown(acme, action="key")) == 5
    assert shown(acme, action="ke") == []
    assert shown(acme, actor="DEVELOPER@") == ["key.revoke four", "key.create four"]
    assert shown(acme, target="thr") == ["key.create three"]
    assert shown(acme, since=(timezone.now() + timedelta(minutes=1)).isoformat()) == []
    assert len(shown(acme, action="key", until=(timezone.now() + timedelta(minutes=1)).isoformat())) == 5


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 1000}, {"before": "x"}, {"since": "yesterday"}])
def test_wrong_filters(acme: Any, wrong: dict[str, object]) -> None:
    answer = acme.client().get(acme.path("audit"), wrong)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(wrong)))


def test_operators_read_all(acme: Any, keys: None) -> None:
    client = acme.client()
    assert client.get("/api/operator/audit").status_code == 403
    set_operator(actor=SYSTEM, user=acme.users[Role.OWNER], operator=True)
    rows = client.get("/api/operator/audit", {"size": 200}).json()["events"]
    assert {row["tenant"] for row in rows} == {"acme", "globex", None}
