"""Every address as a second tenant, as nobody, and as each role; and every query with its tenant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from lorikeet_testing.addresses import METHODS, TENANT_PREFIX, Address, tenant_addresses
from rest_framework.test import APIClient

from control_plane.fleet.presentation import hosts_for
from control_plane.keys.models import ApiKey
from control_plane.tenants.roles import CAPABILITIES, KEY_SCOPES, Role

pytestmark = pytest.mark.django_db
ROUTES = tenant_addresses()
CASES = [
    (route, method)
    for route, view in ROUTES.items()
    for method in METHODS
    if hasattr(view, method) and method in view.http_method_names
]


# What a method must be sent to get as far as looking for its subject.
BODIES: dict[tuple[str, str], Any] = {
    ("members/<uuid:user_id>", "patch"): {"role": "viewer"},
    ("adapters/<str:name>/aliases/<str:alias>", "put"): {"version": 1},
    ("adapters/<str:name>/aliases/<str:alias>/canary", "put"): {"version": 1, "percent": 5},
}


def address(org: Any, route: str, values: dict[str, Any]) -> str:
    return Address(TENANT_PREFIX + route, call).path({**values, "tenant": org.tenant.slug})


def call(client: APIClient, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(path, body, format=None if method == "get" else "json")


@pytest.mark.parametrize(("route", "method"), CASES, ids=[f"{m.upper()} {r}" for r, m in CASES])
def test_other_tenant(acme: Any, globex: Any, furnished: dict[str, Any], route: str, method: str) -> None:
    foreign = address(acme, route, furnished)
    _, secret = globex.key()
    for outsider in (globex.client(), keyed(secret)):
        answer = call(outsider, method, foreign)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "tenant_not_found"

    # The ids of acme's things within globex's own addresses.
    if "<" in route:
        answer = call(globex.client(), method, address(globex, route, furnished), BODIES.get((route, method)))
        assert answer.status_code == 404
        assert answer.json()["error"]["fix"]


@pytest.mark.parametrize(("route", "method"), CASES, ids=[f"{m.upper()} {r}" for r, m in CASES])
def test_nobody(acme: Any, furnished: dict[str, Any], route: str, method: str) -> None:
    for client in (APIClient(), keyed("lk_abcdefgh_wrong"), keyed("nonsense")):
        answer = call(client, method, address(acme, route, furnished))
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["error"]["request_id"] == answer["X-Request-Id"]


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(("route", "method"), CASES, ids=[f"{m.upper()} {r}" for r, m in CASES])
def test_roles(acme: Any, furnished: dict[str, Any], committing: Any, role: Role, route: str, method: str) -> None:
    needed = ROUTES[route].needs[method.upper()]
    with committing():
        answer = call(acme.client(role), method, address(acme, route, furnished))
    if needed in CAPABILITIES[role]:
        assert answer.status_code < 500
        assert answer.status_code not in (401, 403)
    else:
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "role_not_allowed"


@pytest.mark.parametrize(("route", "method"), CASES, ids=[f"{m.upper()} {r}" for r, m in CASES])
def test_key_scopes(acme: Any, furnished: dict[str, Any], committing: Any, route: str, method: str) -> None:
    needed = ROUTES[route].needs[method.upper()]
    _, inference_only = acme.key(scopes=["infer"])
    answer = call(keyed(inference_only), method, address(acme, route, furnished))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "key_scope_missing"
    _, all_scopes = acme.key()
    with committing():
        answer = call(keyed(all_scopes), method, address(acme, route, furnished))
    assert (answer.status_code == 403) is (needed not in KEY_SCOPES)


def keyed(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


OWNED = {
    "adapters_adapter", "adapters_adapterversion", "adapters_alias", "adapters_upload", "usage_usageevent",
    "audit_auditevent", "keys_apikey", "usage_hourlyusage", "usage_dailyusage", "usage_dailytotals",
    "usage_dailylatency", "usage_storageday", "webhooks_endpoint", "webhooks_event", "reports_export",
    "reports_exportschedule", "tenants_invitation", "tenants_membership", "quotas_limitset", "slo_objective",
}  # fmt: skip


@contextmanager
def only_scoped_queries(tenant: Any) -> Iterator[list[str]]:
    """Fails on SELECT, UPDATE or DELETE of a tenant's table that does not name a tenant or one row by its key."""
    unscoped: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        main = re.match(r'\s*(?:SELECT .*? FROM|UPDATE|DELETE FROM) "(\w+)"', sql, re.DOTALL)
        if main and main[1] in OWNED:
            where = sql.partition(" WHERE ")[2]
            by_slug = '"tenants_tenant"."slug" =' in where
            by_key = (f'"{main[1]}"."id" =', f'"{main[1]}"."id" IN (%s)', '."prefix" =')
            cleared = '_id" = NULL WHERE' in sql  # references to a row that was deleted
            if "tenant_id" not in where and not by_slug and not cleared and not any(one in where for one in by_key):
                unscoped.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield unscoped


@pytest.mark.parametrize("client", ["session", "key"])
def test_queries_name_the_tenant(acme: Any, furnished: dict[str, Any], committing: Any, client: str) -> None:
    own = acme.client() if client == "session" else keyed(acme.key()[1])
    with only_scoped_queries(acme.tenant) as unscoped:
        for route, method in sorted(CASES, key=lambda case: case[1] == "delete"):
            with committing():
                call(own, method, address(acme, route, furnished))
    assert unscoped == []


def test_the_watcher_sees_an_unscoped_query(acme: Any) -> None:
    with only_scoped_queries(acme.tenant) as unscoped:
        list(ApiKey.objects.all())
        list(ApiKey.objects.for_tenant(acme.tenant))
    assert len(unscoped) == 1


def test_hosts_hide_other_tenants_adapters(acme: Any, globex: Any, ready_version: Any, host: Any) -> None:
    ours, theirs = ready_version(acme), ready_version(globex, name="secret-project", seed=7)
    host.last_status = {
        "adapters": [
            {"digest": digest, "tier": "device", "running": 0, "bytes": 1, "rank": 4}
            for digest in (ours.digest, theirs.digest, "sha256:" + "f" * 64)
        ]
    }
    host.save()
    shown = acme.client().get(acme.path("hosts")).json()
    assert [adapter["name"] for adapter in shown[0]["adapters"]] == ["support@v1", None, None]
    assert [adapter["digest"] for adapter in shown[0]["adapters"]] == [ours.digest, None, None]
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
