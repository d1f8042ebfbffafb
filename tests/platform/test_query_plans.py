"""What lists and series ask of PostgreSQL is found by an index, however much other tenants have.

A small tenant beside thousands of rows of others: whoever reads a whole table for it would read ten million rows of one
day. What operators read is looked at likewise, but for the stagings, of which they are told how many there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from lorikeet_testing.scale import EMAIL, Size, seed

from control_plane.billing.usage.aggregation import aggregate
from control_plane.identity.accounts.models import User
from control_plane.identity.tenants.models import Membership, Tenant

pytestmark = [pytest.mark.django_db, pytest.mark.services]

SIZE = Size(
    adapters=1500, keys=50, tenants=120, events=6_000, audit_events=5_000, refusals=5_000, members=50, uploads=1_100,
    deliveries=1_100, batches=1_100, archived=1_100,
)  # fmt: skip
SMALL = "t7"
# Tables below this are read whole by whoever plans well.
LARGE = 1000
OWN = [
    "overview", "adapters?limit=50", "adapters?search=a1&limit=50", "adapters?sort=-bytes&limit=50",
    "adapters?status=failed&limit=50", "archived-adapters?limit=20", "storage", "uploads", "models?limit=50", "audit",
    "audit?action=key.create", "audit?actor=olga", "batches?limit=50", "files?limit=50", "keys?limit=50", "members",
    "members?search=olga&sort=-joined_at&limit=50", "invitations?limit=20", "limits?limit=50", "refusals?limit=50",
    "refusals/series?range=1d", "requests?limit=50", "requests?outcome=failed&limit=50", "requests?model=a1&limit=50",
    "requests?adapter=a1&limit=50", "requests?min_ms=30000&limit=50", "requests?host=host-b&limit=50",
    "series?range=1h", "series?range=1d", "series?range=30d", "series?range=90d", "series?adapter=a1&range=30d",
    "slo?days=30", "webhooks",
]  # fmt: skip
OPERATORS = [
    "audit", f"audit?tenant={SMALL}", f"series?tenant={SMALL}&range=7d", "tenants?limit=3&offset=60",
    "tenants?search=tenant 99&limit=3", f"tenants/{SMALL}", f"tenants/{SMALL}/adapters?limit=50",
    f"tenants/{SMALL}/members?limit=50", f"tenants/{SMALL}/limits",
]  # fmt: skip


@dataclass(frozen=True)
class Scan:
    table: str
    rows: int
    query: str


@pytest.fixture
def client(db: None) -> Client:
    seed(SIZE)
    while aggregate(SIZE.events):
        pass
    user = User.objects.get(email=EMAIL)
    Membership.objects.create(tenant=Tenant.objects.get(slug=SMALL), user=user, role="owner")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    signed_in = Client(headers={"host": "localhost"})
    signed_in.force_login(user)
    return signed_in


def test_no_list_or_series_of_a_tenant_reads_a_whole_table(client: Client) -> None:
    rows = table_rows()
    assert sum(count > LARGE for count in rows.values()) >= 10, rows
    addresses = [*(f"tenants/{SMALL}/{each}" for each in OWN), *(f"operator/{each}" for each in OPERATORS)]
    found = {}
    for address in addresses:
        with CaptureQueriesContext(connection) as made:
            answer = client.get(f"/api/{address}")
        assert answer.status_code == 200, (address, answer.content)
        selects = [query["sql"] for query in made.captured_queries if query["sql"].startswith(("SELECT", "WITH"))]
        whole = [scan for select in selects for scan in scans(select, rows)]
        if whole:
            found[address] = [f"{scan.table} ({scan.rows} rows): {scan.query[:300]}" for scan in whole]
    assert not found, json.dumps(found, indent=1)


def table_rows() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reltuples::bigint FROM pg_class WHERE relkind = 'r'")
        return dict(cursor.fetchall())


def scans(select: str, rows: dict[str, int]) -> Iterator[Scan]:
    """Of large tables, from their first row to their last."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {select.replace('%', '%%')}", [])
        plan = cursor.fetchone()[0]
    for node in nodes((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]):
        table = node.get("Relation Name", "")
        if node["Node Type"] == "Seq Scan" and rows.get(table, 0) > LARGE:
            yield Scan(table, rows[table], select)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize("table", ["usage_usageevent", "audit_auditevent"])
def test_tables_in_the_order_of_time_have_its_index_and_none_for_texts(table: str) -> None:
    """What models cannot describe is in the migrations: a small index by time, and autovacuum by fewer rows."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", [table])
        indexes = dict(cursor.fetchall())
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
        (options,) = cursor.fetchone()
    assert "USING brin (created_at) WITH (autosummarize=" in indexes[f"{table}_created_brin"]
    assert not any("_pattern_ops" in definition for definition in indexes.values()), indexes
    assert set(options) == {"autovacuum_vacuum_scale_factor=0.02", "autovacuum_analyze_scale_factor=0.02"}
