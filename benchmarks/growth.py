"""Figures of growth: bytes a request, and the cost of rollups, pages and retention at ten million requests a month.

    python benchmarks/growth.py [--events 10000000] [--stages fill,rollups,pages,retention,partitions] [--database URL]

Starts a throw-away PostgreSQL that flushes as in production, and fills last month with so many requests, and this month
with a tenth of that, in the shapes that the product writes: 500 tenants, 2,000 adapters of the largest, ids of their
real length. It measures each table and index, the aggregator, the slowest pages, and then the retention run: the ledger
of last month to Parquet, read back, deleted in batches, vacuumed. `partitions` copies the ledger to a table that is
partitioned by month and drops a partition. A database that `--database` names is kept, for further stages. Needs 20 GB.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
for folder in ("platform", "inference_engine", ".", "tests/support"):
    sys.path.insert(0, str(ROOT / folder))
RESULTS = ROOT / "benchmarks" / "results" / "growth.jsonl"
STAGES = ("fill", "rollups", "pages", "retention", "partitions")
# As in production, unlike the servers of tests.
DURABLE = {
    "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "1GB",
    "max_wal_size": "4GB",
}  # fmt: skip
# Ledger rows of one INSERT: each is one transaction.
PART = 500_000


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--database", help="postgres://… of one that is kept")
    options = parser.parse_args()
    with database(options.database) as url, tempfile.TemporaryDirectory() as var:
        os.environ |= {
            "LORIKEET_DATABASE_URL": url,
            "LORIKEET_SECRET_KEY": "benchmark" * 8,
            "LORIKEET_VAR_DIR": var,
            "LORIKEET_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        }
        import django

        django.setup()
        figures = Figures(options.events, dry=options.dry)
        for stage in options.stages.split(","):
            globals()[stage](figures, options)


@contextmanager
def database(url: str | None) -> Iterator[str]:
    from scripts.test_services import postgres, server_folder

    if url:
        yield url
        return
    with server_folder() as root, postgres(root / "postgres", **DURABLE) as server:
        yield server.url


class Figures:
    """Appends figures to the file of results as they are measured."""

    def __init__(self, events: int, *, dry: bool) -> None:
        self.events, self._dry = events, dry

    def add(self, case: str, metric: str, value: float, unit: str, **settings: Any) -> None:
        settings = {"events": self.events, **machine(), **settings}
        append(RESULTS, [row("growth", case, metric, value, unit, settings)], dry=self._dry)

    @contextmanager
    def timed(self, case: str, **settings: Any) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.add(case, "time", time.monotonic() - began, "s", **settings)


def months() -> tuple[date, date]:
    """Return the first days of last month and of this month."""
    this = date.today().replace(day=1)
    return (this - timedelta(days=1)).replace(day=1), this


def fill(figures: Figures, options: Any) -> None:
    """Fill the database."""
    from django.core.management import call_command
    from django.db import connection
    from lorikeet_testing.scale import Size, seed

    call_command("migrate", verbosity=0)
    size = Size(adapters=2000, keys=200, tenants=500, events=0, audit_events=options.events // 100)
    seed(size)
    last, this = months()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # the rows are right: their keys need no look-up
        owners(cursor)
        with figures.timed("fill the ledger", rows=options.events):
            events(cursor, options.events, last, (this - last).days)
        events(cursor, options.events // 10, this, max(1, (date.today() - this).days))
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM ANALYZE")
    sizes(figures, "usage_usageevent", options.events * 11 // 10)
    sizes(figures, "audit_auditevent", size.audit_events)


def owners(cursor: Any) -> None:
    """Make the table of callers: the large tenant's versions, then the others', each with a key of its tenant."""
    cursor.execute(
        "CREATE TEMPORARY TABLE owners AS"
        " SELECT row_number() OVER (ORDER BY t.slug <> 't0', v.id) - 1 AS n, v.tenant_id AS tenant,"
        " v.adapter_id AS adapter, v.id AS version, a.name, t.slug = 't0' AS large,"
        " (SELECT k.id FROM keys_apikey k WHERE k.tenant_id = v.tenant_id"
        "  ORDER BY md5(k.id::text || v.id::text) LIMIT 1) AS api_key"
        " FROM registry_adapterversion v JOIN registry_adapter a ON a.id = v.adapter_id"
        " JOIN tenants_tenant t ON t.id = v.tenant_id"
    )
    cursor.execute("CREATE UNIQUE INDEX ON owners (n)")
    cursor.execute("ANALYZE owners")


def events(cursor: Any, count: int, first: date, days: int) -> None:
    """Append requests that are spread over the days from `first` on; one in ten is the large tenant's."""
    from lorikeet_testing.ledger import COLUMNS

    cursor.execute("SELECT count(*) FILTER (WHERE large), count(*) FROM owners")
    large, everyone = cursor.fetchone()

    def skewed(among: int) -> str:
        return f"{among}::bigint * draw * draw * draw / {10_007**3}"

    owner = f"CASE WHEN i % 10 = 0 THEN {skewed(large)} ELSE {large} + {skewed(everyone - large)} END"
    for start in range(0, count, PART):
        cursor.execute(
            f"INSERT INTO usage_usageevent ({COLUMNS}, base_model_id, finish_reason, adapter_loaded_from, auth_ms,"
            f" quota_ms) SELECT 'req_' || substr(md5(i::text || '{first}'), 1, 22) || 'k'"
            " || substr(replace(o.api_key::text, '-', ''), 1, 22) || 'cs', o.tenant, o.adapter, o.version, o.api_key,"
            " o.name, 'chat.completions', true, CASE WHEN i % 3 = 0 THEN 'host-b' ELSE 'host-a' END, i % 3000 + 100,"
            " i % 100, i % 500 + 1, CASE WHEN i % 97 = 0 THEN 'failed' WHEN i % 20 = 0 THEN 'aborted'"
            " ELSE 'finished' END, CASE WHEN i % 97 = 0 THEN 'engine_lost' ELSE '' END, i % 70, i % 9, i % 4000,"
            f" i % 300, i % 30000, 0, i % 100000, timestamptz '{first} 00:00+00'"
            f" + (i * {days * 86_400}::numeric / {count + 1}) * interval '1 second',"
            " (SELECT id FROM base_models_basemodel LIMIT 1), 'stop', 'device', i % 2, i % 3"
            f" FROM (SELECT i, i * 7919 % 10007 AS draw FROM generate_series({start}::bigint,"
            f" {min(count, start + PART) - 1}) i) numbers JOIN owners o ON o.n = ({owner}) ORDER BY i"
        )


def sizes(figures: Figures, table: str, requests: int) -> None:
    """Measure the bytes of a table and of each of its indexes."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*), pg_table_size('{table}'), pg_total_relation_size('{table}') FROM {table}")
        rows, heap, total = cursor.fetchone()
        cursor.execute(
            "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index"
            f" WHERE indrelid = '{table}'::regclass"
        )
        indexes = dict(cursor.fetchall())
    noun = "row" if table.startswith("audit") else "request"
    figures.add(f"{table}, total", f"bytes a {noun}", total / requests, "B", rows=rows)
    if total < requests:
        return
    figures.add(f"{table}, heap", f"bytes a {noun}", heap / requests, "B", rows=rows)
    for name, size in indexes.items():
        if size < requests:
            continue  # less than a byte a request
        figures.add(f"{table}, index {name}", f"bytes a {noun}", size / requests, "B")


def rollups(figures: Figures, options: Any) -> None:
    """Add the ledger up, and measure what that adds to the database."""
    from django.db import connection

    from control_plane.billing.usage.aggregation import aggregate

    with figures.timed("aggregate all", rows=options.events * 11 // 10):
        aggregate()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'usage\\_%' ORDER BY 1")
        tables = [name for (name,) in cursor.fetchall() if name != "usage_usageevent"]
    for table in tables:
        sizes(figures, table, options.events * 11 // 10)


def pages(figures: Figures, options: Any, suffix: str = "") -> None:
    """Measure the slowest pages that read usage, through Django's client."""
    from django.test import Client
    from lorikeet_testing.scale import EMAIL

    from control_plane.asgi import settle_memory
    from control_plane.identity.accounts.models import User

    asyncio.run(settle_memory())
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(email=EMAIL))
    last, this = months()
    for name, address in {
        "usage, 90 days": "/api/tenants/t0/usage?days=90",
        "statement of a month": f"/api/tenants/t0/statement?month={last:%Y-%m}",
        "requests": "/api/tenants/t0/requests?limit=50",
        "requests, filter matches nothing": "/api/tenants/t0/requests?limit=50&model=zzz",
        "requests, failed": "/api/tenants/t0/requests?limit=50&outcome=failed",
        "operator's report, 30 days": f"/api/operator/report?from={this - timedelta(days=30)}&to={this}",
        "audit, second page": "/api/tenants/t0/audit?size=50&before=1000",
    }.items():
        median, worst = response_ms(lambda address=address: client.get(address), options.rounds)
        figures.add(f"page{suffix}: {name}", "median", median, "ms", worst_ms=worst)


def response_ms(get: Callable[[], Any], rounds: int) -> tuple[float, float]:
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        answer = get()
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.content
    return statistics.median(taken[1:]), round(max(taken), 1)


if __name__ == "__main__":
    main()
