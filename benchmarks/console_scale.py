"""The console's costs with 10,000 adapters, 1,000 keys, 1,000 tenants and 10 million events, on PostgreSQL.

    python benchmarks/console_scale.py [--events 10000000] [--rounds 20] [--database URL] [--no-browser]

Starts a throw-away PostgreSQL and Redis, fills them, adds the ledger up, and then measures

- each address that the console reads, through Django's client (all but the network): milliseconds, queries, bytes;
- each page in Chromium against a real web process: milliseconds until it is there, DOM nodes, the API's kB as sent;
- the searches and the palette: milliseconds from a key press to the next frame.

Appends a line to benchmarks/results/console_scale.jsonl. A database that `--database` names and that holds the tenants
already is measured as it is; one that is empty is filled and kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform as machine
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from rows import parser_of

ROOT = Path(__file__).resolve().parents[1]
for folder in ("platform", "inference_engine", ".", "tests/support"):
    sys.path.insert(0, str(ROOT / folder))
RESULTS = ROOT / "benchmarks" / "results" / "console_scale.jsonl"
AGGREGATED_AT_A_TIME = 200_000


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--database", help="postgres://… of one that is kept; LORIKEET_TEST_REDIS_URL beside it")
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--no-report", action="store_true", help="only print")
    options = parser.parse_args()
    with installation(options.database) as settings, tempfile.TemporaryDirectory() as var:
        settings |= {
            "LORIKEET_SECRET_KEY": "benchmark" * 8,
            "LORIKEET_VAR_DIR": var,
            "LORIKEET_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        }
        os.environ.update(settings)
        import django

        django.setup()
        result = {
            "date": date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, {machine.machine()}",
            **prepare(options.events),
            "api": addresses(options.rounds),
        }
        if not options.no_browser:
            from console_scale_browser import measured_in_browser

            result |= measured_in_browser(settings, Path(var))
        show(result)
        if not options.no_report:
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")


@contextmanager
def installation(database: str | None) -> Iterator[dict[str, str]]:
    from scripts.test_services import services

    if database:
        yield {"LORIKEET_DATABASE_URL": database, "LORIKEET_REDIS_URL": os.environ["LORIKEET_TEST_REDIS_URL"]}
        return
    with services() as running:
        yield {"LORIKEET_DATABASE_URL": running.database_url, "LORIKEET_REDIS_URL": running.redis_url}


def prepare(events: int) -> dict[str, Any]:
    """Fill the database, aggregate and vacuum it, as autovacuum would have done long before a ledger is this large."""
    from django.core.management import call_command
    from django.db import connection
    from lorikeet_testing.scale import Size, seed

    from control_plane.billing.usage.aggregation import aggregate
    from control_plane.identity.tenants.models import Tenant

    call_command("migrate", verbosity=0)
    size = Size(events=events)
    made: dict[str, Any] = {"size": asdict(size)}
    if not Tenant.objects.exists():
        began = time.monotonic()
        seed(size)
        made["filled_s"] = round(time.monotonic() - began, 1)
        print(f"filled in {made['filled_s']} s", flush=True)
    began = time.monotonic()
    if aggregate(AGGREGATED_AT_A_TIME):
        made["added_up_s"] = round(time.monotonic() - began, 1)
        print(f"added up in {made['added_up_s']} s", flush=True)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
    return made


def addresses(rounds: int) -> dict[str, dict[str, float]]:
    from django.test import Client
    from lorikeet_testing.scale import EMAIL

    from control_plane.asgi import settle_memory
    from control_plane.identity.accounts.models import User

    asyncio.run(settle_memory())  # as a web process does when it has started
    client = Client(headers={"host": "localhost", "accept-encoding": "gzip"})
    client.force_login(User.objects.get(email=EMAIL))
    results = {}
    for address in read_by_the_console():
        results[address] = cost(client, address, rounds)
        taken, queries, size = (results[address][name] for name in ("p50_ms", "queries", "kb"))
        print(f"  {taken:>8.1f} ms {queries:>3} queries {size:>7.1f} kB  {address}", flush=True)
    return results


def read_by_the_console() -> list[str]:
    """Return the console's requests: first and last pages, searches and filters that match much and nothing."""
    from control_plane.console.webhooks.models import Endpoint

    webhook = Endpoint.objects.values_list("pk", flat=True).first()
    now = datetime.now(UTC).replace(microsecond=0)
    month = (now.date().replace(day=1) - timedelta(days=1)).strftime("%Y-%m")
    tenant_paths = [
        "overview", "adapters?limit=50", "adapters?limit=50&offset=9950", "adapters?search=legal&limit=50",
        "adapters?search=zzz&limit=50", "adapters?search=legal&limit=8", "adapters/support-00000",
        "adapters/support-00000/versions/1", "adapters?sort=-bytes&limit=50", "adapters?status=failed&limit=50",
        "archived-adapters?limit=20", "archived-adapters?search=support&sort=name&limit=20",
        "storage", "uploads", "models?limit=50", "models?search=legal-004&limit=50",
        "audit", "audit?action=key.create", "audit?action=nothing", "audit?actor=olga", "audit?target=support@v77",
        "batches?limit=50", "batches?search=batch&limit=50", "files?limit=50",
        "export-schedules", "exports", "hosts", "invitations?limit=20",
        "keys?limit=50&offset=0", "keys?limit=50&offset=950",
        "keys?search=key 99&limit=50", "limits?limit=50",
        "members?limit=50", "members?search=person 49&sort=-joined_at&limit=50", "origins", "prices", "recording",
        "refusals?limit=50",
        "requests?limit=50", "requests?outcome=failed&limit=50", "requests?outcome=refused&limit=50",
        "requests?adapter=support-00000&limit=50", "requests?model=legal&limit=50", "requests?model=zzz&limit=50",
        "requests?error=nothing&limit=50", "requests?host=host-b&limit=50", "requests?min_ms=34000&limit=50",
        "requests?min_tokens=4000&limit=50", "requests?id=req_9999990&limit=50", "requests?key=console&limit=50",
        "series?range=15m", "series?range=1h", "series?range=1d", "series?range=7d", "series?range=30d",
        "series?range=90d", "series?adapter=support-00000&range=30d", "series?host=host-a&range=30d",
        "slo?days=30", f"statement?month={month}", "webhooks",
        f"webhooks/{webhook}/deliveries", "hub-token", "hub-models", "follows", "bucket-credentials",
    ]  # fmt: skip
    operator = [
        "audit", "audit?tenant=t0", "audit?action=nothing", "base-model", "hosts", "prices", "report?days=30",
        "report?days=90",
        "series?range=1h", "series?range=1d", "series?range=7d", "series?range=30d", "series?range=90d",
        "series?host=host-a&range=7d", "series?tenant=t0&range=7d", "staging?limit=50", "staging?phase=failed&limit=50",
        "staging?search=legal&limit=50", "tenants?limit=50", "tenants?limit=50&offset=950",
        "tenants?search=tenant 99&limit=50", "tenants?sort=-requests&limit=50", "tenants/t0",
        "tenants/t0/adapters?limit=50", "tenants/t0/members?limit=50",
        "tenants/t0/limits", f"tenants/t0/statement?month={month}",
    ]  # fmt: skip
    return ["session", *(f"tenants/t0/{each}" for each in tenant_paths), *(f"operator/{each}" for each in operator)]


def cost(client: Any, address: str, rounds: int) -> dict[str, float]:
    with counted_queries() as queries:
        answer = client.get(f"/api/{address}")
    assert answer.status_code == 200, (address, answer.status_code, answer.content[:500])
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        client.get(f"/api/{address}")
        taken.append((time.perf_counter() - began) * 1000)
        if sum(taken) > 5000:
            break
    taken.sort()
    return {
        "p50_ms": round(taken[len(taken) // 2], 1),
        "p99_ms": round(taken[int(len(taken) * 0.99)], 1),
        "queries": len(queries),
        "kb": round(len(answer.content) / 1000, 1),
    }


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """Record the queries of all connections: views run in other threads."""
    from django.db.backends.utils import CursorWrapper

    made: list[str] = []
    execute = CursorWrapper.execute

    def counting(cursor: Any, sql: Any, params: Any = None) -> Any:
        made.append(str(sql))
        return execute(cursor, sql, params)

    CursorWrapper.execute = counting  # type: ignore[method-assign, assignment]
    try:
        yield made
    finally:
        CursorWrapper.execute = execute  # type: ignore[method-assign]


def show(result: dict[str, Any]) -> None:
    for address, costs in sorted(result["api"].items(), key=lambda item: -item[1]["p50_ms"])[:10]:
        print(f"  {costs['p50_ms']:>8.1f} ms {costs['kb']:>8.1f} kB  {address}")
    for name, costs in {**result.get("pages", {}), **result.get("keys", {})}.items():
        print(f"  {name:<28} {costs}")


if __name__ == "__main__":
    main()
