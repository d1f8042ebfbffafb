"""Reading the audit log: filters, pages, whose."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.tenants.roles import Role

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


def rows_of(answer: Any) -> list[dict[str, str]]:
    async def gather() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return list(csv.DictReader(io.StringIO(asyncio.run(gather()).decode())))


@pytest.mark.django_db(transaction=True)  # pages are read on threads of their own
def test_as_csv(acme: Any, globex: Any, keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.identity.audit.audit_csv.PAGE", 3)
    acme.key("=SUM(A1:A9)")
    answer = acme.client(Role.ADMIN).get(acme.path("audit.csv"))
    assert answer["Content-Disposition"].startswith('attachment; filename="audit-acme-')
    rows = rows_of(answer)
    assert len(rows) == len(read(acme, size=200)["events"])
    assert rows[0]["target"] == "'=SUM(A1:A9)"
    assert rows[0]["tenant"] == "acme" and json.loads(rows[0]["detail"])["prefix"]
    assert not [row for row in rows if row["target"] == "foreign"]
    revoked = rows_of(acme.client(Role.ADMIN).get(acme.path("audit.csv?action=key.revoke")))
    assert [row["target"] for row in revoked] == ["four"]
    assert acme.client(Role.DEVELOPER).get(acme.path("audit.csv")).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_an_operator_reads_one_tenant_none_or_all(acme: Any, globex: Any, keys: None, operator: Any) -> None:
    def tenants(**filters: str) -> set[str | None]:
        return {row["tenant"] for row in operator.get("/api/operator/audit", {**filters, "size": 200}).json()["events"]}

    assert tenants() == {"acme", "globex", None}
    assert tenants(tenant="globex") == {"globex"}
    assert tenants(tenant="-") == {None}
    assert tenants(tenant="nobody") == set()
    rows = rows_of(operator.get("/api/operator/audit.csv?tenant=globex&action=key"))
    assert [(row["tenant"], row["action"], row["target"]) for row in rows] == [("globex", "key.create", "foreign")]
    assert operator.get("/api/operator/audit.csv?since=nonsense").status_code == 400
