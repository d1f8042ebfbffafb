"""The response times of the usage pages over ten million events: PostgreSQL, everything but the network.

    python benchmarks/usage_pages.py [--events 10000000] [--tenants 500] [--rounds 20] [--bases 0]

Starts a throw-away PostgreSQL, fills the ledger (90 days; one tenant has a tenth of all, the others share the rest;
each with three adapters and the base model; with `--bases` on so many base models, each other one with prices of its
own), aggregates it, then asks for each page through Django's client. Prints
milliseconds and appends a line to benchmarks/results/usage_pages.jsonl.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform as machine
import statistics
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rows import parser_of

ROOT = Path(__file__).resolve().parents[1]
for folder in ("platform", "inference_engine", ".", "tests/support"):
    sys.path.insert(0, str(ROOT / folder))
RESULTS = ROOT / "benchmarks" / "results" / "usage_pages.jsonl"
ADAPTERS = 3
LARGEST_SHARE = 0.1


def main() -> None:
    from scripts.test_services import services

    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--tenants", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bases", type=int, default=0)
    options = parser.parse_args()
    with services() as running, tempfile.TemporaryDirectory() as var:
        settings = {
            "LORIKEET_DATABASE_URL": running.environment()["LORIKEET_TEST_DATABASE_URL"],
            "LORIKEET_SECRET_KEY": "benchmark",
            "LORIKEET_VAR_DIR": var,
            "LORIKEET_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        }
        os.environ.update(settings)
        import django

        django.setup()
        report(measure(options.events, options.tenants, options.rounds, options.bases))


def measure(events: int, tenants: int, rounds: int, bases: int) -> dict[str, Any]:
    from django.core.management import call_command

    from control_plane.billing.usage.aggregation import aggregate

    call_command("migrate", verbosity=0)
    largest, filled_s = fill_ledger(events, tenants, bases)
    began = time.monotonic()
    added = aggregate()
    aggregated_s = time.monotonic() - began
    assert added == events
    vacuum()
    return {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {machine.machine()}",
        "events": events,
        "tenants": tenants,
        "bases": bases,
        "rows": row_counts(),
        "filled_s": round(filled_s, 1),
        "aggregated_s": round(aggregated_s, 1),
        "events_per_second": round(events / aggregated_s),
        "pages_ms": pages(largest, rounds),
    }


def fill_ledger(events: int, tenants: int, bases: int) -> tuple[Any, float]:
    """The tenant with most rows, and the seconds it took."""
    from django.db import connection
    from lorikeet_testing.ledger import fill
    from lorikeet_testing.seed import add_version

    from control_plane.billing.prices.models import PriceVersion
    from control_plane.identity.accounts.models import User
    from control_plane.identity.tenants.models import Membership, Tenant

    PriceVersion.objects.create(
        number=1, effective_on=date(2026, 1, 1), currency="USD", input_per_million=200_000,
        cached_input_per_million=50_000, output_per_million=600_000, storage_per_gb_month=250_000,
    )  # fmt: skip
    served = [priced_base(number, PriceVersion) for number in range(bases)]
    made = [Tenant.objects.create(slug=f"t{number}", name=f"Tenant {number}") for number in range(tenants)]
    user = User.objects.create_user("operator@example.org", "benchmark password")
    User.objects.filter(pk=user.pk).update(is_operator=True)
    Membership.objects.create(tenant=made[0], user=user, role="owner")
    large = int(events * LARGEST_SHARE)
    rest, odd = divmod(events - large, tenants - 1)
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # the rows are right: their keys need no look-up
    for number, tenant in enumerate(made):
        count = large if number == 0 else rest + (number <= odd)
        owners = [None, *(add_version(tenant, f"a{index}") for index in range(ADAPTERS))]
        for index, version in enumerate(owners):
            part = count // len(owners) + (index < count % len(owners))
            on = served if version is None else served[index % bases :][:1] if bases else []
            fill(part, f"{number}-{index}-", tenant, version, bases=on)
    return made[0], time.monotonic() - began


def priced_base(number: int, prices: Any) -> int:
    """The primary key of a base model; every other one has a list of its own."""
    from django.utils import timezone

    from control_plane.fleet.base_models.models import BaseModel

    row = BaseModel.objects.create(
        name=f"base-{number}", digest=f"sha256:{number}", description={}, decided_by="", decided_at=timezone.now()
    )
    if number % 2:
        prices.objects.create(
            number=2 + number, effective_on=date(2026, 2, 20), currency="USD", input_per_million=900_000,
            cached_input_per_million=90_000, output_per_million=2_000_000, storage_per_gb_month=0, base_model=row,
        )  # fmt: skip
    return row.pk


def vacuum() -> None:
    """Vacuum and analyse, as autovacuum would have done long before a ledger is this large."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def row_counts() -> dict[str, int]:
    from control_plane.billing.usage.models import DailyLatency, DailyUsage, HourlyUsage, Series

    return {model.__name__: model.objects.count() for model in (Series, HourlyUsage, DailyUsage, DailyLatency)}


def pages(largest: Any, rounds: int) -> dict[str, dict[str, float]]:
    from django.test import Client
    from lorikeet_testing.ledger import DAYS, FIRST_DAY

    from control_plane.asgi import settle_memory
    from control_plane.identity.accounts.models import User

    asyncio.run(settle_memory())  # as a web process does when it has started
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(email="operator@example.org"))
    last = FIRST_DAY + timedelta(days=DAYS - 1)
    ago = (date.today() - FIRST_DAY).days + 1
    tenant_path, everyone = f"/api/tenants/{largest.slug}", "/api/operator"
    month = f"from={last - timedelta(days=29)}&to={last}"
    addresses = {
        "tenant: usage, all 90 days": f"{tenant_path}/usage?days={ago}",
        "tenant: statement of a month": f"{tenant_path}/statement?month={FIRST_DAY:%Y-%m}",
        "tenant: requests": f"{tenant_path}/requests?limit=50",
        "tenant: overview": f"{tenant_path}/overview",
        "operator: report, 30 days": f"{everyone}/report?{month}",
        "operator: report, 90 days": f"{everyone}/report?from={FIRST_DAY}&to={last}",
    }
    return {name: timed(client, address, rounds) for name, address in addresses.items()}


def timed(client: Any, address: str, rounds: int) -> dict[str, float]:
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        answer = client.get(address)
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.content
    warm = sorted(taken[1:])
    return {
        "first": round(taken[0], 1),
        "median": round(statistics.median(warm), 1),
        "p95": round(warm[int(len(warm) * 0.95) - 1], 1),
        "worst": round(warm[-1], 1),
    }


def report(result: dict[str, Any]) -> None:
    print(f"{result['events']:,} events, aggregated in {result['aggregated_s']} s ({result['events_per_second']:,}/s)")
    print("rows:", ", ".join(f"{name} {count:,}" for name, count in result["rows"].items()))
    for name, times in result["pages_ms"].items():
        print(f"  {name:<32} {times['median']:>8.1f} ms median {times['p95']:>8.1f} p95 {times['first']:>8.1f} first")
    with RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
