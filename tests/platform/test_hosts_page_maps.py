"""Page maps of hosts: each tenant sees its own pages and of others only that they are taken; ten minutes are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from control_plane.adapters.registry.models import Adapter
from control_plane.fleet.hosts.api import page_maps
from control_plane.fleet.transport import errors
from control_plane.identity.tenants.roles import Role
from lora_engine.peft_format import Part, combined_digest
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


class Calls:
    def __init__(self) -> None:
        self.asked, self.free, self.fails = 0, 10, False
        self.owners: list[pb.PageOwner] = []

    def map_pages(self) -> pb.PageMap:
        self.asked += 1
        if self.fails:
            raise errors.unavailable("gpu1")
        return pb.PageMap(
            boot_id="boot", unix_time=1.0, owners=self.owners, owner_of=[1, 2, 3, 4, 5, 0],
            lengths=[1, 2, 3, 4, 5, self.free],
        )  # fmt: skip


@pytest.fixture
def engine(acme: Any, globex: Any, ready_version: Any, monkeypatch: Any) -> Iterator[Calls]:
    ours, theirs = ready_version(acme), ready_version(globex, name="secret-project", seed=7)
    kind, calls = pb.PageOwner, Calls()
    calls.owners = [
        pb.PageOwner(kind=kind.FREE),
        pb.PageOwner(kind=kind.RESERVED),
        pb.PageOwner(kind=kind.ADAPTER, adapter_digest=ours.digest, age_s=3),
        pb.PageOwner(kind=kind.ADAPTER, adapter_digest=theirs.digest, age_s=4),
        pb.PageOwner(kind=kind.KV, tenant=str(globex.tenant.pk), adapter_digest=theirs.digest, age_s=5),
        pb.PageOwner(kind=kind.KV, tenant=str(acme.tenant.pk), age_s=6),
    ]

    @contextmanager
    def opened(endpoint: Any) -> Iterator[Calls]:
        yield calls

    monkeypatch.setattr(page_maps, "engine_calls", opened)
    cache.clear()
    yield calls
    cache.clear()


@pytest.fixture
def clock(monkeypatch: Any) -> list[float]:
    now = [1_800_000_000.0]
    monkeypatch.setattr("control_plane.fleet.hosts.api.page_maps.time.time", lambda: now[0])
    return now


def test_a_tenant_sees_its_own_and_of_others_only_that_pages_are_taken(
    acme: Any, globex: Any, engine: Calls, host: Any
) -> None:
    answer = acme.client(Role.VIEWER).get(acme.path(f"hosts/{host.name}/pages"))
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    runs = list(zip(shown["runs"][::2], shown["runs"][1::2], strict=True))
    assert [(shown["owners"][of]["kind"], length) for of, length in runs] == [
        ("reserved", 1), ("adapter", 2), ("others", 7), ("kv", 5), ("free", 10),
    ]  # fmt: skip
    assert shown["owners"][runs[1][0]]["adapters"] == ["support@v1"]
    assert shown["owners"][runs[2][0]] == {
        "kind": "others", "tenant": None, "adapters": [], "age_s": None, "pinned": False
    }  # fmt: skip
    assert shown["total"] == 25
    assert "secret-project" not in answer.content.decode() and str(globex.tenant.pk) not in answer.content.decode()


def test_a_combination_is_named_by_its_parts_and_hidden_if_one_is_anothers(
    acme: Any, engine: Calls, host: Any, operator: Any
) -> None:
    ours, theirs = engine.owners[2].adapter_digest, engine.owners[3].adapter_digest
    engine.owners[2].adapter_digest = combined_digest([Part(ours, 0.5)])
    engine.owners[3].adapter_digest = combined_digest([Part(ours, 1.0), Part(theirs, 1.0)])
    answer = acme.client().get(acme.path(f"hosts/{host.name}/pages"))
    shown = answer.json()["owners"]
    assert [owner["adapters"] for owner in shown if owner["kind"] == "adapter"] == [["support@v1"]]
    assert "secret-project" not in answer.content.decode()
    named = [set(o["adapters"]) for o in operator.get(f"/api/operator/hosts/{host.name}/pages").json()["owners"]]
    assert {"acme/support@v1", "globex/secret-project@v1"} in named


def test_what_is_pinned_is_marked_but_not_that_another_tenant_pinned_the_same_content(
    acme: Any, engine: Calls, host: Any, operator: Any
) -> None:
    for owner in engine.owners[2:]:
        owner.pinned = True

    def pinned(client: Any, path: str) -> list[str]:
        return [owner["kind"] for owner in client.get(path).json()["owners"] if owner["pinned"]]

    own = acme.path(f"hosts/{host.name}/pages")
    assert "adapter" not in pinned(acme.client(), own) and "kv" in pinned(acme.client(), own)
    Adapter.objects.filter(tenant=acme.tenant).update(pinned_at=timezone.now())
    assert "adapter" in pinned(acme.client(), own) and "others" not in pinned(acme.client(), own)
    assert "adapter" in pinned(operator, f"/api/operator/hosts/{host.name}/pages")


def test_an_operator_sees_whose_all_are(acme: Any, engine: Calls, host: Any, operator: Any) -> None:
    shown = operator.get(f"/api/operator/hosts/{host.name}/pages").json()
    owners = [shown["owners"][of] for of in shown["runs"][::2]]
    assert [(owner["kind"], owner["tenant"], owner["age_s"]) for owner in owners][2:5] == [
        ("adapter", None, 4.0), ("kv", "globex", 5.0), ("kv", "acme", 6.0),
    ]  # fmt: skip
    assert owners[2]["adapters"] == ["globex/secret-project@v1"]
    assert acme.client().get(f"/api/operator/hosts/{host.name}/pages").status_code == 403


def test_an_engine_is_asked_once_in_five_seconds_and_ten_minutes_are_kept(
    acme: Any, engine: Calls, host: Any, clock: list[float]
) -> None:
    path = acme.path(f"hosts/{host.name}/pages")
    first = acme.client().get(path).json()
    assert acme.client().get(path).json() == first and engine.asked == 1
    clock[0] += 60
    engine.free = 20
    assert acme.client().get(path).json()["total"] == 35
    before = acme.client().get(path, {"ago_s": 30}).json()
    assert before["total"] == 25 and len(before["kept"]) == 2 and engine.asked == 2
    clock[0] += 560
    assert len(acme.client().get(path).json()["kept"]) == 2


def test_what_cannot_be_shown_is_said(acme: Any, engine: Calls, host: Any) -> None:
    nothing = acme.client().get(acme.path(f"hosts/{host.name}/pages"), {"ago_s": 30})
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "page_map_not_found")
    assert acme.client().get(acme.path("hosts/nope/pages")).json()["error"]["code"] == "host_not_found"
    assert acme.client().get(acme.path(f"hosts/{host.name}/pages"), {"ago_s": 601}).status_code == 400
    engine.fails = True
    answer = acme.client().get(acme.path(f"hosts/{host.name}/pages"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
