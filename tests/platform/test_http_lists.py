"""Lists that come whole or in parts, with the number of all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.seed import add_version

from control_plane.adapters.registry.models import Adapter, AdapterVersion, Alias, VersionState
from control_plane.adapters.uploads.models import Upload
from control_plane.identity.accounts.models import User
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Invitation, Membership

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def test_a_thousand_keys_come_in_pages(acme: Any, globex: Any, django_assert_max_num_queries: Any) -> None:
    for org in (acme, globex):
        ApiKey.objects.bulk_create(
            ApiKey(tenant=org.tenant, name=f"key {n}", prefix=f"{org.tenant.slug[0]}{n:05}", secret_hash="0", scopes=[])
            for n in range(1000)
        )
    client = acme.client()
    assert len(client.get(acme.path("keys")).json()) == 1000
    with django_assert_max_num_queries(6):
        page = client.get(acme.path("keys"), {"limit": 50, "offset": 980})
    assert (len(page.json()), page["X-Total-Count"]) == (20, "1000")
    assert len(page.content) < 60_000
    found = client.get(acme.path("keys"), {"search": "KEY 99", "limit": 50})
    assert (len(found.json()), found["X-Total-Count"]) == (11, "11")
    by_prefix = client.get(acme.path("keys"), {"search": "lk_a00007_…", "limit": 50})
    assert [row["name"] for row in by_prefix.json()] == ["key 7"]
    for bad in ({"limit": 0}, {"limit": 201}, {"offset": -1}):
        assert client.get(acme.path("keys"), bad).status_code == 400


def test_keys_are_sorted_and_limited_to_a_state_and_a_scope(acme: Any) -> None:
    now, client = timezone.now(), acme.client()
    keys: dict[str, dict[str, Any]] = {
        "a": {"last_used_at": now, "scopes": ["infer", "adapters.write"]},
        "b": {"revoked_at": now, "scopes": ["infer"]},
        "c": {"expires_at": now - timedelta(hours=1), "scopes": ["infer"]},
        "d": {"expires_at": now + timedelta(hours=1), "last_used_at": now - timedelta(days=1), "scopes": ["view"]},
    }  # fmt: skip
    for name, values in keys.items():
        ApiKey.objects.create(tenant=acme.tenant, name=name, prefix=name, secret_hash="0", **values)

    def names(**query: Any) -> str:
        answer = client.get(acme.path("keys"), query)
        assert answer.status_code == 200, answer.content
        rows = answer.json()
        assert answer["X-Total-Count"] == str(len(rows))
        return "".join(row["name"] for row in rows)

    assert names() == "dcba"
    assert names(sort="name") == "abcd"
    assert names(sort="-last_used_at") == "adcb", "keys that were never used come last"
    assert names(sort="last_used_at")[2:] == "da"
    assert names(sort="expires_at")[:2] == "cd"
    assert names(state="usable", sort="name") == "ad"
    assert names(state="not_revoked", sort="name") == "acd"
    assert names(state="revoked") == "b"
    assert names(scope="infer", state="usable") == "a"
    assert names(search=str(ApiKey.objects.get(name="c").pk)) == "c", "a link names a key by its id"
    for bad in ({"state": "lost"}, {"scope": "inf"}, {"sort": "prefix"}):
        assert client.get(acme.path("keys"), bad).status_code == 400


def test_adapters_come_in_pages(acme: Any, globex: Any) -> None:
    for number in range(7):
        add_version(acme.tenant, f"a{number}", 1)
    add_version(globex.tenant, "a8", 1)
    client = acme.client()
    page = client.get(acme.path("adapters"), {"limit": 2, "offset": 3})
    assert ([row["name"] for row in page.json()], page["X-Total-Count"]) == (["a3", "a4"], "7")
    assert [row["name"] for row in client.get(acme.path("adapters"), {"search": "A6"}).json()] == ["a6"]
    assert len(client.get(acme.path("adapters")).json()) == 7


def test_uploads_come_in_pages(acme: Any, globex: Any) -> None:
    """The newest fifty without parameters, and all of them in pages."""
    for org in (acme, globex):
        for number in range(60):
            Upload.objects.create(tenant=org.tenant, adapter_name=f"a{number}", bytes=1, files=[])
    client = acme.client()
    newest = client.get(acme.path("uploads"))
    assert (len(newest.json()), newest["X-Total-Count"]) == (50, "60")
    assert newest.json()[0]["adapter"] == "a59"
    page = client.get(acme.path("uploads"), {"limit": 20, "offset": 50})
    assert [row["adapter"] for row in page.json()] == [f"a{number}" for number in reversed(range(10))]
    assert [row["adapter"] for row in client.get(acme.path("uploads"), {"search": "A41"}).json()] == ["a41"]
    assert client.get(acme.path("uploads"), {"limit": 201}).status_code == 400


def test_adapters_are_sorted_and_filtered_by_the_server(acme: Any, django_assert_max_num_queries: Any) -> None:
    client = acme.client()

    def names(**asked: Any) -> list[str]:
        return [row["name"] for row in client.get(acme.path("adapters"), asked).json()]

    for name, rank, state in (("b", 4, "ready"), ("a", 32, "failed"), ("c", 16, "validated"), ("a-b", 8, "ready")):
        version = add_version(acme.tenant, name)
        AdapterVersion.objects.filter(pk=version.pk).update(rank=rank, state=state, bytes=rank)
    Adapter.objects.create(tenant=acme.tenant, name="empty")
    assert names() == ["a", "a-b", "b", "c", "empty"]
    assert names(sort="-name") == ["empty", "c", "b", "a-b", "a"]
    assert names(sort="rank") == ["b", "a-b", "c", "a", "empty"]
    assert names(sort="-bytes") == ["a", "c", "a-b", "b", "empty"]
    assert names(status="ready") == ["a-b", "b"]
    assert names(status="staging") == ["c"]
    assert names(status="failed", sort="-created_at") == ["a"]
    assert names(search="b") == ["b", "a-b"], "the whole name comes first"
    # What is sorted by is what is shown: the live version, however many newer ones there are.
    newest = add_version(acme.tenant, "b", 2)
    AdapterVersion.objects.filter(pk=newest.pk).update(rank=64)
    assert names(sort="-rank")[0] == "b"
    live = AdapterVersion.objects.get(adapter__name="b", number=1)
    Alias.objects.create(tenant=acme.tenant, adapter=live.adapter, name="live", version=live)
    assert names(sort="rank")[0] == "b"
    with django_assert_max_num_queries(9):
        page = client.get(acme.path("adapters"), {"sort": "-rank", "status": "ready", "limit": 1})
    assert (len(page.json()), page["X-Total-Count"]) == (1, "2")
    assert client.get(acme.path("adapters"), {"sort": "secret_hash"}).status_code == 400


def test_a_thousand_members_come_in_pages(acme: Any, globex: Any, django_assert_max_num_queries: Any) -> None:
    people = User.objects.bulk_create(
        User(email=f"p{n:03}@example.org", name=f"Person {999 - n}", password="!") for n in range(996)
    )
    Membership.objects.bulk_create(Membership(tenant=acme.tenant, user=one, role="viewer") for one in people)
    Membership.objects.create(tenant=globex.tenant, user=people[0], role="owner")
    client = acme.client()

    def asked(**query: Any) -> tuple[list[dict[str, Any]], int]:
        answer = client.get(acme.path("members"), query)
        return answer.json(), int(answer["X-Total-Count"])

    assert asked()[1] == len(asked()[0]) == 1000, "with one member of each role"
    with django_assert_max_num_queries(6):
        page = client.get(acme.path("members"), {"limit": 50, "offset": 50})
    assert len(page.json()) == 50
    assert len(page.content) < 60_000
    assert [row["email"] for row in asked(search="P99", sort="-email", limit=2)[0]] == [
        "p995@example.org",
        "p994@example.org",
    ]
    assert ([row["email"] for row in asked(search="person 999", limit=50)[0]], 1) == (["p000@example.org"], 1)
    assert [row["role"] for row in asked(sort="role", limit=5)[0]] == [
        "owner",
        "admin",
        "developer",
        "viewer",
        "viewer",
    ]
    assert asked(sort="-joined_at", limit=1)[0][0]["email"].startswith("p")
    assert asked(search="nobody", limit=50) == ([], 0)
    assert asked(offset=2000, limit=50) == ([], 1000)
    for bad in ({"sort": "password"}, {"limit": 0}, {"offset": "x"}):
        assert client.get(acme.path("members"), bad).status_code == 400


def test_invitations_come_in_pages(acme: Any) -> None:
    late = timezone.now() - timedelta(days=1)
    Invitation.objects.bulk_create(
        Invitation(tenant=acme.tenant, email=f"i{n:03}@example.org", role="viewer", expires_at=late) for n in range(300)
    )
    page = acme.client().get(acme.path("invitations"), {"limit": 50, "offset": 290})
    assert (len(page.json()), page["X-Total-Count"]) == (10, "300")
    found = acme.client().get(acme.path("invitations"), {"search": "I29", "limit": 50})
    assert (len(found.json()), found["X-Total-Count"]) == (10, "10")


def test_archived_adapters_come_in_pages(acme: Any, globex: Any, django_assert_max_num_queries: Any) -> None:
    now = timezone.now()
    Adapter.objects.bulk_create(
        Adapter(tenant=acme.tenant, name=f"a{n:03}", archived_at=now - timedelta(minutes=n)) for n in range(300)
    )
    Adapter.objects.create(tenant=acme.tenant, name="a000")
    Adapter.objects.create(tenant=globex.tenant, name="a000", archived_at=now)
    client = acme.client()

    def asked(**query: Any) -> tuple[list[str], int]:
        answer = client.get(acme.path("archived-adapters"), query)
        return [row["name"] for row in answer.json()], int(answer["X-Total-Count"])

    assert len(asked()[0]) == 300
    with django_assert_max_num_queries(9):
        assert asked(limit=2, offset=1) == (["a001", "a002"], 300)
    assert asked(limit=1, sort="archived_at") == (["a299"], 300)
    assert asked(limit=1, sort="-name") == (["a299"], 300)
    assert asked(search="A00", limit=50) == ([f"a00{n}" for n in range(10)], 10)
    assert client.get(acme.path("archived-adapters"), {"sort": "rank"}).status_code == 400


def test_models_come_in_pages_with_the_base_first(acme: Any, globex: Any, host: Any) -> None:
    for name in ("sales", "legal", "legal-2", "unready"):
        version = add_version(acme.tenant, name)
        state = VersionState.VALIDATED if name == "unready" else VersionState.READY
        AdapterVersion.objects.filter(pk=version.pk).update(state=state)
        Alias.objects.create(tenant=acme.tenant, adapter=version.adapter, name="live", version=version)
    Alias.objects.create(tenant=acme.tenant, adapter=version.adapter, name="next", version=version)
    client = acme.client()

    def ids(**asked: Any) -> tuple[list[str], str]:
        answer = client.get(acme.path("models"), asked)
        return [row["id"] for row in answer.json()], answer["X-Total-Count"]

    base = host.description["base_model"]
    assert ids() == ([base, "legal", "legal-2", "sales"], "4")
    assert ids(limit=2) == ([base, "legal"], "4")
    assert ids(limit=2, offset=2) == (["legal-2", "sales"], "4")
    assert ids(search="legal", limit=5) == (["legal", "legal-2"], "2")
    assert ids(search=base[:4], limit=5)[0][0] == base
    assert globex.client().get(globex.path("models"), {"search": "legal"}).json() == []


def test_limits_of_a_thousand_keys_take_as_many_queries_as_of_one(
    acme: Any, django_assert_max_num_queries: Any
) -> None:
    ApiKey.objects.bulk_create(
        ApiKey(tenant=acme.tenant, name=f"key {n}", prefix=f"a{n:05}", secret_hash="0", scopes=[]) for n in range(1000)
    )
    client = acme.client()
    with django_assert_max_num_queries(24):
        page = client.get(acme.path("limits"), {"limit": 50, "offset": 950})
    with django_assert_max_num_queries(24):
        assert len(client.get(acme.path("limits")).json()["keys"]) == 1000
    assert (len(page.json()["keys"]), page["X-Total-Count"]) == (50, "1000")
    assert len(page.content) < 60_000
    found = client.get(acme.path("limits"), {"search": "key 99", "limit": 50})
    assert (len(found.json()["keys"]), found["X-Total-Count"]) == (11, "11")
