"""Every address as a second tenant, as nobody, and as each role; and every query with its tenant.

All in one furnished world: some five hundred tests would take longer to furnish it than to ask.
"""

from __future__ import annotations

from typing import Any

import pytest
from lorikeet_testing.addresses import METHODS, TENANT_PREFIX, Address, tenant_addresses
from lorikeet_testing.clients import call, keyed
from lorikeet_testing.in_one_world import *  # noqa: F403
from lorikeet_testing.scoped_queries import only_scoped_queries
from rest_framework.test import APIClient

from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.roles import CAPABILITIES, KEY_SCOPES, Role

pytestmark = pytest.mark.django_db
BY_RIGHTS = sorted(Role, key=lambda role: len(CAPABILITIES[role]))
ROUTES = tenant_addresses()
CASES = [
    (route, method)
    for route, view in ROUTES.items()
    for method in METHODS
    if hasattr(view, method) and method in view.http_method_names
]


def at_the_border(route: str, method: str) -> set[Role]:
    """Return the role with the fewest rights that may, and the one with the most that may not, as far as there are."""
    needed = ROUTES[route].needs[method.upper()]
    may = [role for role in BY_RIGHTS if needed in CAPABILITIES[role]]
    return {*may[:1], *[role for role in BY_RIGHTS if role not in may][-1:]}


# Every role with every address runs in `make test-long`: one function decides for all roles.
OF_ROLES = [
    pytest.param(route, method, role, marks=() if role in at_the_border(route, method) else pytest.mark.long,
                 id=f"{method.upper()} {route}-{role}")
    for route, method in CASES for role in Role
]  # fmt: skip


# What a method must be sent to get as far as looking for its subject.
BODIES: dict[tuple[str, str], Any] = {
    ("members/<uuid:user_id>", "patch"): {"role": "viewer"},
    ("adapters/<str:name>/aliases/<str:alias>", "put"): {"version": 1},
    ("adapters/<str:name>/aliases/<str:alias>/canary", "put"): {"version": 1, "percent": 5},
    ("adapters/<str:name>/promotion-rule", "put"): {"set": "sums"},
}


def address(org: Any, route: str, values: dict[str, Any]) -> str:
    # Hosts are nobody's own: what a tenant sees of one is tested in test_hosts_page_maps.py.
    return Address(TENANT_PREFIX + route, call).path({**values, "host_name": "nowhere", "tenant": org.tenant.slug})


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


@pytest.mark.parametrize(("route", "method", "role"), OF_ROLES)
def test_roles(acme: Any, furnished: dict[str, Any], committing: Any, route: str, method: str, role: Role) -> None:
    needed = ROUTES[route].needs[method.upper()]
    with committing():
        answer = call(acme.client(role), method, address(acme, route, furnished))
    if needed in CAPABILITIES[role]:
        assert answer.status_code < 500
        assert answer.status_code not in (401, 403)
        assert b'"conflict"' not in getattr(answer, "content", b"")
    else:
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "role_not_allowed"


@pytest.mark.parametrize(("route", "method"), CASES, ids=[f"{m.upper()} {r}" for r, m in CASES])
def test_key_scopes(acme: Any, furnished: dict[str, Any], committing: Any, route: str, method: str) -> None:
    needed = ROUTES[route].needs[method.upper()]
    _, lacking = acme.key(scopes=sorted(KEY_SCOPES - {needed}))
    answer = call(keyed(lacking), method, address(acme, route, furnished))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "key_scope_missing"
    _, all_scopes = acme.key()
    with committing():
        answer = call(keyed(all_scopes), method, address(acme, route, furnished))
    assert (answer.status_code == 403) is (needed not in KEY_SCOPES)


@pytest.mark.parametrize("client", ["session", "key"])
def test_queries_name_the_tenant(acme: Any, furnished: dict[str, Any], committing: Any, client: str) -> None:
    own = acme.client() if client == "session" else keyed(acme.key()[1])
    with only_scoped_queries() as unscoped:
        for route, method in sorted(CASES, key=lambda case: case[1] == "delete"):
            with committing():
                call(own, method, address(acme, route, furnished))
    assert unscoped == []


def test_the_watcher_sees_an_unscoped_query(acme: Any) -> None:
    with only_scoped_queries() as unscoped:
        list(ApiKey.objects.all())
        list(ApiKey.objects.for_tenant(acme.tenant))
    assert len(unscoped) == 1
