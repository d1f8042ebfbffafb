"""Lists that come whole or in parts, with the number of all."""

from __future__ import annotations

from typing import Any

import pytest
from lorikeet_testing.seed import add_version

from control_plane.keys.models import ApiKey

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


def test_adapters_come_in_pages(acme: Any, globex: Any) -> None:
    for number in range(7):
        add_version(acme.tenant, f"a{number}", 1)
    add_version(globex.tenant, "a8", 1)
    client = acme.client()
    page = client.get(acme.path("adapters"), {"limit": 2, "offset": 3})
    assert ([row["name"] for row in page.json()], page["X-Total-Count"]) == (["a3", "a4"], "7")
    assert [row["name"] for row in client.get(acme.path("adapters"), {"search": "A6"}).json()] == ["a6"]
    assert len(client.get(acme.path("adapters")).json()) == 7
