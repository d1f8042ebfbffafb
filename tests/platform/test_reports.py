"""Cost, statements, CSV and the operator's report: from the rollups, exact, and each for whom it is."""

from __future__ import annotations

import asyncio
import csv
import io
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lorikeet_testing.ledger import record_event
from rest_framework.test import APIClient

from control_plane.billing.prices.actions import PriceList, publish_prices
from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import micros, storage_micros, tokens_cost
from control_plane.billing.prices.periods import periods
from control_plane.billing.reports.models import Grain
from control_plane.billing.reports.usage_csv import PAGE, UsageTable
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import DailyTotals, DailyUsage, OverallTotals, StorageDay, Watermark
from control_plane.billing.usage.rollup_check import differences
from control_plane.billing.usage.sums import Span, summed, today
from control_plane.core.errors import LorikeetError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
MAY = Span(date(2026, 5, 1), date(2026, 5, 31))


def used(org: Any, request_id: str, at: datetime, prompt: int, completion: int, **more: Any) -> None:
    record_event(
        request_id=request_id,
        tenant=org.tenant,
        model="m",
        endpoint="completions",
        outcome=more.pop("outcome", "finished"),
        created_at=at,
        counts=Counts(
            prompt_tokens=prompt,
            cached_prompt_tokens=more.pop("cached", 0),
            completion_tokens=completion,
            device_us=more.pop("device_us", 0),
            first_token_ms=more.pop("first_token_ms", 0),
        ),
        **more,
    )


def prices(input_: int = 200_000, output: int = 600_000, **more: Any) -> PriceList:
    return PriceList("USD", input_, more.pop("cached", 50_000), output, more.pop("storage", 250_000))


def version_from(day: date, number: int, price_list: PriceList) -> PriceVersion:
    """As if published long ago; `publish_prices` refuses days that have begun."""
    values = {name: getattr(price_list, name) for name in price_list.__dataclass_fields__}
    return PriceVersion.objects.create(number=number, effective_on=day, **values)


def at(day: int, hour: int = 12) -> datetime:
    return datetime(2026, 5, day, hour, tzinfo=UTC)


def test_a_statement_line_by_line(acme: Any, globex: Any) -> None:
    version_from(date(2026, 1, 1), 1, prices())
    version_from(date(2026, 5, 11), 2, prices(400_000, 1_000_000))
    used(acme, "a", at(10, 23), 3_000_001, 1_000_000, cached=1_000_000)
    used(acme, "b", at(11, 0), 1_000_000, 1)
    used(acme, "c", at(1) - timedelta(days=1), 10**6, 10**6)
    used(globex, "d", at(10), 10**6, 10**6)
    StorageDay.objects.create(
        tenant=acme.tenant, start=date(2026, 5, 3), byte_hours=10**9 * 31 * 24, measured_hours=24, last_hour=at(3)
    )
    aggregate()
    statement = acme.client().get(acme.path("statement?month=2026-05")).json()
    shown = ("kind", "price_version", "quantity", "amount_micros")
    lines = [tuple(line[name] for name in shown) for line in statement["lines"]]
    assert lines == [
        ("input", 1, 2_000_001, 400_000),
        ("cached_input", 1, 1_000_000, 50_000),
        ("output", 1, 1_000_000, 600_000),
        ("storage", 1, 10**9 * 31 * 24, 250_000),
        ("input", 2, 1_000_000, 400_000),
        ("output", 2, 1, 1),
    ]
    assert statement["total_micros"] == 1_700_001
    assert (statement["currency"], statement["complete"]) == ("USD", True)
    Watermark.objects.update(checked_at=at(31, 23))
    assert acme.client().get(acme.path("statement?month=2026-05")).json()["complete"] is False, "rollups are behind"
    assert [line["last"] for line in statement["lines"]][3:5] == ["2026-05-10", "2026-05-31"]


def test_batches_have_their_own_price(acme: Any) -> None:
    version_from(date(2026, 1, 1), 1, replace(prices(), batch_input_per_million=50_000))
    used(acme, "a", at(10), 1_000_000, 1_000_000)
    used(acme, "b", at(10), 3_000_000, 2_000_000, batch=True)
    aggregate()
    statement = acme.client().get(acme.path("statement?month=2026-05")).json()
    lines = [(line["kind"], line["quantity"], line["amount_micros"]) for line in statement["lines"]]
    assert lines == [
        ("input", 1_000_000, 200_000),
        ("output", 1_000_000, 600_000),
        ("batch_input", 3_000_000, 150_000),
        ("batch_output", 2_000_000, 1_200_000),  # without a price of its own, as of others
    ]
    for rows in (DailyUsage.objects.all(), DailyTotals.objects.all(), OverallTotals.objects.all()):
        assert summed(MAY.of(rows), periods(MAY.first, MAY.last), ())[()].cost_micros == 2_150_000
    assert differences() == []


def test_a_month_without_prices_or_use(acme: Any) -> None:
    statement = acme.client().get(acme.path("statement")).json()
    assert (statement["lines"], statement["total_micros"], statement["currency"]) == ([], 0, None)
    assert statement["complete"] is False
    for month in ("2026-13", "soon", "2026-5", "0000-01", "0001-01", "9999-12"):
        answer = acme.client().get(acme.path(f"statement?month={month}"))
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "month"


def test_cost_by_day_adapter_and_key(acme: Any, ready_version: Any) -> None:
    version = ready_version(acme)
    key, _ = acme.key("backend")
    publish_prices(actor=SYSTEM, prices=prices(), effective_on=today() - timedelta(days=1))
    now = datetime.now(UTC)
    used(acme, "a", now, 10**6, 0, adapter=version.adapter, version=version, api_key=key)
    used(acme, "b", now - timedelta(days=1), 0, 10**6)
    used(acme, "free", now - timedelta(days=2), 10**6, 10**6)
    aggregate()
    usage = acme.client().get(acme.path("usage?days=3")).json()
    assert usage["currency"] == "USD"
    assert usage["totals"]["cost_micros"] == 800_000
    assert [day["cost_micros"] for day in usage["by_day"]] == [None, 600_000, 200_000]
    assert {row["adapter"]: row["cost_micros"] for row in usage["by_adapter"]} == {"support": 200_000, None: 600_000}
    assert {row["key"]: row["cost_micros"] for row in usage["by_key"]} == {"backend": 200_000, None: 600_000}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_money_is_added_exactly(requests: list[tuple[int, int, int]], unit: int, cached_unit: int) -> None:
    price = PriceVersion(
        input_per_million=unit, cached_input_per_million=cached_unit, output_per_million=unit, storage_per_gb_month=0
    )
    one_by_one = sum(tokens_cost(price, prompt=p + c, cached=c, completion=o, batch=False) for p, c, o in requests)
    at_once = tokens_cost(
        price,
        prompt=sum(p + c for p, c, _ in requests),
        cached=sum(c for _, c, _ in requests),
        completion=sum(o for _, _, o in requests),
        batch=False,
    )
    assert one_by_one == at_once
    assert abs(micros(at_once) * 10**6 - at_once) * 2 <= 10**6


def test_storage_rounds_half_up() -> None:
    price = PriceVersion(storage_per_gb_month=1)
    month = 10**9 * 720
    assert [storage_micros(price, hours, 720) for hours in (0, month // 2 - 1, month // 2, month)] == [0, 0, 1, 1]


def test_prices_do_not_change_what_was_shown(operator: APIClient, acme: Any) -> None:
    body = {"effective_on": "2020-01-01", "currency": "USD", "input_per_million": 1, "cached_input_per_million": 1,
            "output_per_million": 2, "storage_per_gb_month": 3}  # fmt: skip
    assert operator.post("/api/operator/prices", body, format="json").status_code == 201
    assert AuditEvent.objects.get(action="prices.publish").actor_label == "ops@example.org"
    refusals = [
        ({**body}, 409, "effective_on"),
        ({**body, "effective_on": str(today())}, 409, "effective_on"),
        ({**body, "effective_on": str(today() + timedelta(days=1)), "currency": "EUR"}, 409, "currency"),
        ({**body, "input_per_million": -1}, 400, "input_per_million"),
        ({**body, "input_per_million": 10**10}, 400, "input_per_million"),
        ({**body, "currency": "usd"}, 400, "currency"),
    ]
    for wrong, status, param in refusals:
        answer = operator.post("/api/operator/prices", wrong, format="json")
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    tomorrow = {**body, "effective_on": str(today() + timedelta(days=1)), "input_per_million": 7}
    assert operator.post("/api/operator/prices", tomorrow, format="json").json()["number"] == 2
    listed = acme.client().get(acme.path("prices")).json()
    assert [(row["number"], row["input_per_million"]) for row in listed] == [(2, 7), (1, 1)]


def test_of_two_lists_for_a_day_the_later_counts() -> None:
    day = today() + timedelta(days=2)
    publish_prices(actor=SYSTEM, prices=prices(1), effective_on=day)
    publish_prices(actor=SYSTEM, prices=prices(2), effective_on=day)
    found = periods(day - timedelta(days=1), day)
    assert [(period.first, period.general and period.general.input_per_million) for period in found] == [
        (day - timedelta(days=1), None),
        (day, 2),
    ]
    with pytest.raises(LorikeetError):
        publish_prices(actor=SYSTEM, prices=prices(3), effective_on=today())


def test_the_operators_report(acme: Any, globex: Any, operator: APIClient, ready_version: Any) -> None:
    version_from(date(2026, 1, 1), 1, prices())
    version = ready_version(acme)
    own = {"adapter": version.adapter, "version": version}
    used(acme, "a", at(2), 10**6, 0, device_us=3_000_000, first_token_ms=100, **own)
    used(acme, "b", at(3), 0, 10**6, device_us=1_000_000, first_token_ms=300, outcome="aborted")
    used(acme, "c", at(3), 0, 0, outcome="refused")
    used(globex, "d", at(3), 5, 5, device_us=4_000_000, first_token_ms=200)
    aggregate()
    report = operator.get("/api/operator/report?from=2026-05-01&to=2026-05-31").json()
    assert report["totals"]["requests"] == 4
    assert report["outcomes"] == {"finished": 2, "aborted": 1, "failed": 0, "refused": 1}
    rows = {row["tenant"]: row for row in report["by_tenant"]}
    assert rows["acme"]["device_share"] == rows["globex"]["device_share"] == 0.5
    assert (rows["acme"]["refused"], rows["acme"]["cost_micros"]) == (1, 800_000)
    assert rows["acme"]["latency"]["first_token"]["p99_ms"] <= 300
    assert 150 < report["latency"]["first_token"]["p50_ms"] <= 200
    assert [(row["tenant"], row["adapter"], row["device_us"]) for row in report["top_adapters"]] == [
        ("globex", None, 4_000_000),
        ("acme", "support", 3_000_000),
        ("acme", None, 1_000_000),
    ]
    assert sum(day["requests"] for day in report["by_day"]) == 4
    assert operator.get("/api/operator/tenants/globex/statement?month=2026-05").json()["total_micros"] == 4
    assert operator.get("/api/operator/tenants/nobody/statement?month=2026-05").status_code == 404


OPERATOR_PATHS = ("report", "usage.csv", "prices", "tenants/acme/statement?month=2026-05")


@pytest.mark.parametrize("path", OPERATOR_PATHS)
def test_only_operators(acme: Any, operator: APIClient, anonymous: APIClient, path: str) -> None:
    address = f"/api/operator/{path}"
    assert operator.get(address).status_code == 200
    assert anonymous.get(address).status_code == 401
    for role in (Role.OWNER, Role.ADMIN, Role.DEVELOPER):
        assert acme.client(role).get(address).json()["error"]["code"] == "operator_only"
    keyed = APIClient()
    keyed.credentials(HTTP_AUTHORIZATION=f"Bearer {acme.key()[1]}")
    assert keyed.get(address).status_code == 403


def rows_of(answer: Any) -> list[dict[str, str]]:
    text = b"".join(answer.streaming_content if not answer.is_async else collected(answer)).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def collected(answer: Any) -> list[bytes]:
    async def read() -> list[bytes]:
        return [part async for part in answer.streaming_content]

    return asyncio.run(read())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("grain", ["day", "hour"])
def test_csv_is_the_rollups(acme: Any, globex: Any, operator: APIClient, grain: str) -> None:
    version_from(date(2026, 1, 1), 1, prices())
    for hour in range(48):
        used(acme, f"a{hour}", at(1) + timedelta(hours=hour), 1000, 10)
    used(globex, "theirs", at(2), 1, 1)
    aggregate()
    query = f"usage.csv?from=2026-05-01&to=2026-05-31&grain={grain}"
    answer = acme.client().get(acme.path(query))
    assert answer["Content-Disposition"] == f'attachment; filename="usage-acme-2026-05-01-2026-05-31-by-{grain}.csv"'
    rows = rows_of(answer)
    assert len(rows) == (3 if grain == "day" else 48)
    assert {row["tenant"] for row in rows} == {"acme"}
    assert sum(int(row["prompt_tokens"]) for row in rows) == 48_000
    assert sum(int(row["cost_micros"]) for row in rows) == 48 * 206
    assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
    everyone = rows_of(operator.get(f"/api/operator/{query}"))
    assert {row["tenant"] for row in everyone} == {"acme", "globex"}


def test_csv_in_pages(acme: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("control_plane.billing.reports.usage_csv.PAGE", 7)
    for hour in range(20):
        used(acme, f"a{hour}", at(1) + timedelta(hours=hour), 1, 1)
        used(acme, f"b{hour}", at(1) + timedelta(hours=hour), 1, 1, outcome="aborted")
    aggregate()
    pages = list(UsageTable(acme.tenant, MAY, Grain.HOUR).pages())
    assert [page.count("\r\n") for page in pages] == [1, 7, 7, 7, 7, 7, 5]
    lines = "".join(pages).splitlines()
    assert len(set(lines)) == len(lines) == 41
    assert PAGE == 1000


def test_a_name_is_no_formula(acme: Any) -> None:
    key, _ = acme.key('=HYPERLINK("http://evil")')
    used(acme, "a", at(1), 1, 1, api_key=key)
    aggregate()
    assert "'=HYPERLINK" in "".join(UsageTable(acme.tenant, MAY, Grain.DAY).pages())


@pytest.mark.parametrize(
    "query", ["from=2026-05-01", "to=2026-05-01", "from=2026-05-02&to=2026-05-01", "from=2025-01-01&to=2026-05-01",
              "days=0", "grain=minute", "from=x&to=y", "from=9999-12-31&to=9999-12-31&grain=hour"]
)  # fmt: skip
def test_bad_spans(acme: Any, query: str) -> None:
    answer = acme.client().get(acme.path(f"usage.csv?{query}"))
    assert answer.status_code == 400
    assert answer.json()["error"]["fix"]
