"""Figures of growth: bytes a request, and the cost of rollups, pages and retention at ten million requests a month.

    python benchmarks/growth.py [--events 10000000] [--stages fill,rollups,pages,partitions,retention] [--database URL]

Starts a throw-away PostgreSQL that flushes as in production, and fills last month with so many requests, and this month
with a tenth of that, in the shapes that the product writes: 500 tenants, 2,000 adapters of the largest, ids of their
real length. It measures each table and index, the aggregator, the slowest pages, and then the retention run: the ledger
of last month to Parquet, read back, deleted in batches, vacuumed. `partitions` copies the ledger to a table that is
partitioned by month and drops a partition. A database that `--database` names is kept, for further stages. Needs 20 GB.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import tempfile
import threading
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
STAGES = ("fill", "rollups", "pages", "partitions", "retention")
# Settings of PostgreSQL as in production, unlike those of tests.
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
    """A writer that appends figures to the file of results as they are measured."""

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
    """Fill the database with tenants and usage."""
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


def retention(figures: Figures, options: Any) -> None:
    """Archive last month's ledger while requests are recorded, then vacuum, and measure the pages again."""
    from django.core.management import call_command
    from django.db import connection

    from control_plane.adapters.artifacts.file_store import FolderFiles
    from control_plane.billing.archives import archiving, parquet
    from control_plane.billing.archives.models import ArchivePart
    from control_plane.billing.archives.tables import ArchivedTable
    from control_plane.billing.usage.ledger_archive import LEDGER

    with figures.timed("retention: migrate, which builds the index by time and drops one"):
        call_command("migrate", verbosity=0)
    sizes(figures, "usage_usageevent", options.events * 11 // 10)

    class LastMonth(ArchivedTable):
        """The ledger, of which only the present month is kept."""

        def cutoff(self, now: Any) -> date:
            return months()[1]

    table = LastMonth(**{**vars(LEDGER), "kept_months": lambda: 1})
    for owner, name, step in (
        (archiving, "_in_database", "sum up in the database"),
        (parquet, "write", "write the file"),
        (FolderFiles, "put", "copy it into the store"),
        (parquet, "count", "read it back"),
        (archiving, "_delete", "delete the rows in batches"),
    ):
        setattr(owner, name, measured(figures, f"retention: {step}", getattr(owner, name)))
    report_latency(figures, "before the retention run", 100)
    with Recorder() as recorder, figures.timed("retention: whole run", rows=options.events):
        archiving.run(table)
    figures.add("record a request during the run", "median", statistics.median(recorder.taken), "ms",
                p99_ms=percentile(recorder.taken, 0.99), worst_ms=round(max(recorder.taken), 1))  # fmt: skip
    part = ArchivePart.objects.get()
    figures.add("archive of the ledger", "bytes a request", part.bytes / part.rows, "B", rows=part.rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.add("retention: peak memory of the process", "memory", peak, "MiB")
    with connection.cursor() as cursor, figures.timed("retention: vacuum"):
        cursor.execute("VACUUM (ANALYZE) usage_usageevent")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('usage_usageevent'), count(*) FROM usage_usageevent")
        size, rows = cursor.fetchone()
    figures.add("ledger after the retention run and vacuum", "size", size / 1e9, "GB", rows=rows)
    pages(figures, options, " after retention")


def measured(figures: Figures, case: str, function: Any) -> Any:
    """Return the function with its time as a figure."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        with figures.timed(case):
            return function(*args, **kwargs)

    return timed


def record_one(number: int) -> float:
    """Append one request as the web process does. Returns the milliseconds."""
    from django.utils import timezone
    from lorikeet_testing.ledger import record_event

    from control_plane.billing.usage.counters import Counts
    from control_plane.identity.tenants.models import Tenant

    tenant, began = Tenant.objects.get(slug="t1"), time.perf_counter()
    record_event(
        request_id=f"req_live_{os.urandom(8).hex()}_{number}", tenant=tenant, model="m", endpoint="completions",
        outcome="finished", created_at=timezone.now(), counts=Counts(prompt_tokens=1, completion_tokens=1),
    )  # fmt: skip
    return (time.perf_counter() - began) * 1000


def report_latency(figures: Figures, case: str, count: int) -> None:
    taken = [record_one(number) for number in range(count)]
    figures.add(f"record a request {case}", "median", statistics.median(taken), "ms",
                p99_ms=percentile(taken, 0.99), worst_ms=round(max(taken), 1))  # fmt: skip


def percentile(taken: list[float], share: float) -> float:
    return round(sorted(taken)[int(len(taken) * share) - 1], 1)


class Recorder(threading.Thread):
    """A thread that records a request every 100 ms while the block runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.taken: list[float] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self.taken.append(record_one(len(self.taken)))

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def partitions(figures: Figures, options: Any) -> None:
    """Compare a table by months with one that is deleted from in batches: two million rows, with two unique indexes."""
    from django.db import connection

    last, this = months()
    rows = min(2_000_000, options.events // 5)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE by_month (LIKE usage_usageevent) PARTITION BY RANGE (created_at)")
        cursor.execute(f"CREATE TABLE by_month_1 PARTITION OF by_month FOR VALUES FROM ('{last}') TO ('{this}')")
        cursor.execute("CREATE UNIQUE INDEX ON by_month (id, created_at)")
        # Not what the ledger needs: it lets the same request in twice, with two times.
        cursor.execute("CREATE UNIQUE INDEX ON by_month (request_id, created_at)")
        cursor.execute("CREATE TABLE in_one (LIKE usage_usageevent)")
        cursor.execute("CREATE UNIQUE INDEX ON in_one (id)")
        cursor.execute("CREATE UNIQUE INDEX ON in_one (request_id)")
        chosen = f"SELECT * FROM usage_usageevent WHERE created_at < '{this}' LIMIT {rows}"
        for table in ("by_month", "in_one"):
            with figures.timed(f"partitions: fill {table}", rows=rows):
                cursor.execute(f"INSERT INTO {table} {chosen}")
        with figures.timed("partitions: drop a month", rows=rows):
            cursor.execute("DROP TABLE by_month_1")
        with figures.timed("partitions: delete a month in batches of 5,000", rows=rows):
            cursor.execute("SELECT id FROM in_one")
            ids = [number for (number,) in cursor.fetchall()]
            for start in range(0, len(ids), 5000):
                cursor.execute("DELETE FROM in_one WHERE id = ANY(%s)", [ids[start : start + 5000]])
        cursor.execute("DROP TABLE by_month, in_one")


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
