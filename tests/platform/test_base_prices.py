"""Every page, statement and budget is the ledger, row by row, at the prices of the base models that served."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.platform_fixtures import Org
from lorikeet_testing.seed import add_version
from rest_framework.test import APIClient

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import micros, tokens_cost
from control_plane.billing.prices.periods import periods
from control_plane.billing.quotas.budgets import CallerBudgets, counter_of, money_spent
from control_plane.billing.quotas.limiter_interface import period_of
from control_plane.billing.quotas.queries import OF_TENANT
from control_plane.billing.reports.models import Grain
from control_plane.billing.reports.operator import operator_report
from control_plane.billing.reports.usage_csv import UsageTable
from control_plane.billing.usage import recovery
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.base_models import named_bases
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import Outcome, UsageEvent
from control_plane.billing.usage.rollup_check import differences
from control_plane.billing.usage.sums import last_days, today
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.models import EngineHost
from control_plane.identity.audit.models import AuditEvent
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
DAYS, EVENTS = 8, 250


def base(name: str) -> BaseModel:
    return BaseModel.objects.create(
        name=name, digest=f"sha256:{name}", description={}, decided_by="t", decided_at=timezone.now()
    )


def price(number: int, days_ago: int, unit: int, of: BaseModel | None = None, **more: Any) -> PriceVersion:
    """As if published long ago."""
    return PriceVersion.objects.create(
        number=number, effective_on=today() - timedelta(days=days_ago), currency="USD", base_model=of,
        input_per_million=unit, cached_input_per_million=unit // 3, output_per_million=unit * 3 + 1,
        storage_per_gb_month=0, **more,
    )  # fmt: skip


@pytest.fixture
def bases(db: None) -> dict[str, BaseModel]:
    return {name: base(name) for name in ("small", "large", "plain")}


@pytest.fixture
def lists(bases: dict[str, BaseModel]) -> dict[str, Callable[[date], PriceVersion | None]]:
    """By base model, "" for one that is not known: what a day costs. Two have lists of their own, one for some days."""
    first, second = price(1, 6, 199_999), price(2, 2, 300_007)
    large = price(3, 5, 7_000_003, bases["large"], batch_output_per_million=11)
    small, _ = price(4, 4, 50_021, bases["small"]), price(5, 1, 0, bases["small"], inherits=True)

    def general(day: date) -> PriceVersion | None:
        return None if day < first.effective_on else first if day < second.effective_on else second

    return {
        "": general,
        "plain": general,
        "large": lambda day: large if day >= large.effective_on else general(day),
        "small": lambda day: small if small.effective_on <= day < today() - timedelta(days=1) else general(day),
    }


def record(org: Org, name: str, at: datetime, on: BaseModel | None, **more: Any) -> None:
    version, counts = more.pop("version", None), more.pop("counts", Counts(prompt_tokens=10**6))
    record_event(
        request_id=name, tenant=org.tenant, model="m", endpoint="completions", created_at=at, counts=counts,
        outcome=more.pop("outcome", "finished"), base_model_id=on and on.pk, version=version,
        adapter=version and version.adapter, host="h", **more,
    )  # fmt: skip


def fill(org: Org, bases: dict[str, BaseModel]) -> None:
    """Requests of adapters of two base models, of base models, of several adapters as one, and of before bases were
    written down; over all days, of batches or not, however they ended."""
    rnd, key = random.Random(3), org.key()[0]
    owners = [(add_version(org.tenant, "a", 1), "small"), (add_version(org.tenant, "b", 1), "large"), (None, "small")]
    owners += [(None, "large"), (None, "plain"), (None, ""), (add_version(org.tenant, "old", 1), "")]
    now = timezone.now()
    for number in range(EVENTS):
        version, name = rnd.choice(owners)
        prompt = rnd.randint(0, 10**6)
        record(
            org, f"r{number}", now - timedelta(days=rnd.randrange(DAYS), seconds=rnd.randrange(60)), bases.get(name),
            version=version, outcome=rnd.choice(Outcome.values), batch=rnd.random() < 0.3,
            api_key=key if rnd.random() < 0.5 else None,
            counts=Counts(prompt_tokens=prompt, cached_prompt_tokens=rnd.randint(0, prompt),
                          completion_tokens=rnd.randint(0, 10**6), device_us=rnd.randint(0, 10**6)),
        )  # fmt: skip
        if number == EVENTS // 2:
            aggregate(batch=37)


def priced_at(row: UsageEvent, lists: dict[str, Callable[[date], PriceVersion | None]]) -> PriceVersion | None:
    return lists[row.base_model.name if row.base_model else ""](row.created_at.astimezone(UTC).date())


def pico(row: UsageEvent, lists: dict[str, Callable[[date], PriceVersion | None]]) -> int:
    found, used = priced_at(row, lists), (row.prompt_tokens, row.cached_prompt_tokens, row.completion_tokens)
    if found is None:
        return 0
    return tokens_cost(found, prompt=used[0], cached=used[1], completion=used[2], batch=row.batch)


def test_every_figure_is_the_ledger_at_the_price_of_its_base(acme: Any, bases: Any, lists: Any) -> None:
    fill(acme, bases)
    everything = list(UsageEvent.objects.select_related("base_model"))
    unknown = micros(sum(pico(row, lists) for row in everything if row.base_model is None))
    aggregate()
    assert differences() == []
    right: Counter[str | None] = Counter()
    requests: Counter[str | None] = Counter()
    for row in everything:
        right[row.base_model.name if row.base_model else None] += pico(row, lists)
        requests[row.base_model.name if row.base_model else None] += 1
    whole = micros(sum(right.values()))
    shown = {name: (requests[name], micros(right[name])) for name in right}

    client, span = acme.client(), last_days(DAYS)
    usage = client.get(acme.path(f"usage?days={DAYS}")).json()
    assert usage["totals"]["cost_micros"] == whole
    # What the ledger does not say is known of an adapter's versions, and its price is the installation's.
    by_base = {row["base_model"]: row for row in usage["by_base_model"]}
    assert sum(row["cost_micros"] or 0 for row in by_base.values()) == pytest.approx(whole, abs=len(by_base))
    assert sum(row["requests"] for row in by_base.values()) == EVENTS
    known = {name: figures for name, figures in shown.items() if name}
    assert {name: (by_base[name]["requests"], by_base[name]["cost_micros"]) for name in known} == known
    assert sum(row["cost_micros"] or 0 for name, row in by_base.items() if name not in known) == pytest.approx(
        unknown, abs=2
    )

    for found in (
        client.get(acme.path("series?range=30d&step=86400")).json(),
        client.get(acme.path("series?range=30d&step=86400&host=h")).json(),
    ):
        assert found["totals"]["cost_micros"] == whole
        assert {row["name"]: (row["requests"], row["cost_micros"]) for row in found["by_base_model"]} == shown
        assert sum(point["cost_micros"] or 0 for point in found["points"]) == pytest.approx(whole, abs=DAYS)
    for report in (operator_report(span), operator_report(last_days(90))):
        assert report["totals"]["cost_micros"] == report["by_tenant"][0]["cost_micros"] == whole
        assert {row["base_model"]: (row["requests"], row["cost_micros"]) for row in report["by_base_model"]} == shown

    lines = list(csv.DictReader("".join(UsageTable(acme.tenant, span, Grain.HOUR).pages()).splitlines()))
    assert sum(int(line["cost_micros"]) for line in lines) == pytest.approx(whole, abs=len(lines))
    assert {line["price_version"] for line in lines if line["base_model"] == "large"} <= {"", "1", "3"}
    assert sum(int(line["requests"]) for line in lines) == EVENTS
    by_request = {
        row["id"]: row["cost_micros"] for row in client.get(acme.path("requests?limit=100")).json()["results"]
    }
    named = {
        row["id"]: row["base_model"] for row in client.get(acme.path("requests?base_model=large")).json()["results"]
    }
    assert set(named.values()) == {"large"}, "also of several adapters as one"
    assert by_request == {
        row.request_id: None if priced_at(row, lists) is None else micros(pico(row, lists))
        for row in everything
        if row.request_id in by_request
    }


def test_one_base_alone(acme: Any, operator: APIClient, bases: Any, lists: Any) -> None:
    fill(acme, bases)
    aggregate()
    client = acme.client()
    of_large = list(UsageEvent.objects.filter(base_model=bases["large"]))
    cost = micros(sum(pico(row, lists) for row in of_large))
    for answer in (
        client.get(acme.path(f"usage?days={DAYS}&base_model=large")),
        client.get(acme.path("series?range=30d&base_model=large")),
        client.get(acme.path("series?range=30d&base_model=large&host=h")),
        operator.get("/api/operator/series?range=30d&base_model=large"),
        operator.get("/api/operator/series?range=30d&base_model=large&host=h"),
        operator.get(f"/api/operator/report?days={DAYS}&base_model=large"),
    ):
        found = answer.json()
        assert (found["totals"]["requests"], found["totals"]["cost_micros"]) == (len(of_large), cost)
        assert len(found["by_base_model"]) == 1
        latency = found["latency"] if "latency" in found else found["totals"]["latency"]
        assert latency["first_token"]["p50_ms"] is not None
    for tenant in (acme.tenant, None):
        table = UsageTable(tenant, last_days(DAYS), Grain.DAY, named_bases("large"))
        lines = list(csv.DictReader("".join(table.pages()).splitlines()))
        assert {line["base_model"] for line in lines} == {"large"}
        assert sum(int(line["requests"]) for line in lines) == len(of_large)
    for path in ("usage", "series", "usage.csv"):
        answer = client.get(acme.path(path), {"base_model": "no such"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "base_model_not_found")
    assert client.get(acme.path("series?adapter=a&base_model=large")).status_code == 400
    bases["large"].name = "renamed"
    bases["large"].withdrawn_at = timezone.now()
    bases["large"].save()
    assert client.get(acme.path(f"usage?days={DAYS}&base_model=renamed")).json()["totals"]["cost_micros"] == cost


def test_a_statement_has_lines_for_each_list(acme: Any, bases: dict[str, BaseModel]) -> None:
    price(1, 500, 200_000)
    own = price(2, 500, 800_000, bases["large"])
    noon = datetime.combine(today().replace(day=1), datetime.min.time(), UTC) + timedelta(hours=12)
    for number, name in enumerate(["small", "large", "plain", ""]):
        record(
            acme, name, noon, bases.get(name), counts=Counts(prompt_tokens=(number + 1) * 10**6, completion_tokens=1)
        )
    aggregate()
    found = acme.client().get(acme.path("statement")).json()
    lines = [(each["base_model"], each["kind"], each["price_version"], each["quantity"]) for each in found["lines"]]
    assert lines == [
        (None, "input", 1, 8 * 10**6),  # what has no list of its own, together, as if there were none
        (None, "output", 1, 3),
        ("large", "input", own.number, 2 * 10**6),
        ("large", "output", own.number, 1),
    ]
    assert found["total_micros"] == 8 * 200_000 + 2 * 800_000 + 2 + 2
    assert found["total_micros"] == sum(each["amount_micros"] for each in found["lines"])


def test_budgets_count_at_the_price_of_the_base(acme: Any, bases: dict[str, BaseModel]) -> None:
    price(1, 50, 1_000_000)
    price(2, 50, 9_000_000, bases["large"])
    now = period_of(int(timezone.now().timestamp() * 1000))
    key = acme.key()[0]
    one = Counts(prompt_tokens=1000)
    for _ in range(2):
        record(acme, f"large{_}", timezone.now(), bases["large"], counts=one, api_key=key)
        record(acme, f"small{_}", timezone.now(), bases["small"], counts=one)
        of_tenant, of_key = money_spent(counter_of(acme.tenant.pk), [OF_TENANT, key.pk.hex], now)
        assert (of_tenant.day, of_key.day) == ((_ + 1) * 10_000_000, (_ + 1) * 9_000_000)
        aggregate()  # the second of each is not in the rollups yet
    budgets = CallerBudgets((), periods(today(), today())[0])
    pks = (bases["large"].pk, bases["small"].pk, None)
    of_each = [budgets.nanos(pk, prompt=1000, completion=0, batch=False) for pk in pks]
    assert of_each == [9_000_000, 1_000_000, 1_000_000]
    assert budgets.most_nanos(bases["large"].pk, prompt=10, completion=0, batch=True) == 90_000


def test_publishing(acme: Any, operator: APIClient, bases: dict[str, BaseModel]) -> None:
    amounts = {"currency": "USD", "input_per_million": 1, "cached_input_per_million": 0, "output_per_million": 2}
    tomorrow, digest = str(today() + timedelta(days=1)), bases["large"].digest

    def publish(day: str, of: str | None, **more: Any) -> Any:
        body = {**amounts, "effective_on": day, "base_model_digest": of, **more}
        return operator.post("/api/operator/prices", body, format="json")

    def end(day: str) -> Any:
        body = {"effective_on": day, "base_model_digest": digest}
        return operator.post("/api/operator/prices/end", body, format="json")

    def code(answer: Any) -> tuple[int, str, str]:
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["param"]

    assert code(publish(str(today()), None)) == (400, "invalid_request", "storage_per_gb_month")
    assert publish(str(today()), None, storage_per_gb_month=5).status_code == 201
    assert code(publish(tomorrow, digest, storage_per_gb_month=5)) == (400, "invalid_request", "storage_per_gb_month")
    assert code(publish(tomorrow, "sha256:never")) == (404, "base_model_not_found", "base_model_digest")
    assert code(publish(tomorrow, digest, currency="EUR")) == (409, "price_currency_differs", "currency")
    assert code(end(tomorrow)) == (409, "no_prices_of_its_own", "base_model_digest")
    # Whoever approves a base model prices it before anybody uses it; then its day is as any other.
    first = publish(str(today()), digest).json()
    assert (first["base_model"], first["storage_per_gb_month"], first["inherits"]) == ("large", None, False)
    record(acme, "a", timezone.now(), bases["large"])
    assert code(publish(str(today()), digest)) == (409, "price_day_has_begun", "effective_on")
    aggregate()
    assert code(publish(str(today()), digest)) == (409, "price_day_has_begun", "effective_on")
    assert code(end(str(today()))) == (409, "price_day_has_begun", "effective_on")
    assert code(publish(str(today()), None, storage_per_gb_month=0)) == (409, "price_day_has_begun", "effective_on")
    ended = end(tomorrow).json()
    assert (ended["number"], ended["inherits"]) == (3, True)
    assert code(end(tomorrow)) == (409, "no_prices_of_its_own", "base_model_digest")
    assert AuditEvent.objects.get(action="prices.end").detail["base_model"] == "large"
    assert [row["base_model"] for row in acme.client().get(acme.path("prices")).json()] == ["large", "large", None]
    held = [period.price(bases["large"].pk) for period in periods(today(), today() + timedelta(days=1))]
    assert [version.number for version in held if version] == [first["number"], 1]


def test_a_journal_of_before_its_host_changed(acme: Any, bases: dict[str, BaseModel]) -> None:
    """What an adapter's requests cost is its base model's, also where the host serves another one by now."""
    EngineHost.objects.create(name="h", address="unix:/x", description={"base_digest": bases["small"].digest})
    version = add_version(acme.tenant, "a", 1)
    type(version).objects.filter(pk=version.pk).update(base_digest=bases["large"].digest)
    version.refresh_from_db()
    lookup = recovery._Lookup(acme.tenant, [pb.UsageRecord(adapter_digest=version.digest)])
    served = recovery._base_of("h")
    assert (lookup._base_of(version, served), lookup._base_of(None, served)) == (bases["large"].pk, bases["small"].pk)
