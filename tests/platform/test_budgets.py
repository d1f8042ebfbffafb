"""Budgets in money: who sets them and how far, what the ledger says is spent, and when it is told."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.platform_fixtures import error_of
from rest_framework.test import APIClient

from control_plane.billing.prices.actions import PriceList, publish_prices
from control_plane.billing.quotas import budget_reports, limiter_factory, reconciliation
from control_plane.billing.quotas.budgets import (
    BudgetTerms,
    caller_budgets,
    counter_of,
    money_spent,
    set_key_budgets,
    set_tenant_budgets,
)
from control_plane.billing.quotas.limiter_interface import Limiter, Reading, Scope, period_of
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.models import AtLimit, Budget, BudgetSpan
from control_plane.billing.quotas.queries import OF_TENANT, Limits
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.sums import midnight
from control_plane.console.webhooks.actions import WebhookSettings, create_endpoint
from control_plane.console.webhooks.models import Event
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
EURO = 1_000_000


@pytest.fixture(autouse=True)
def fresh_counters(monkeypatch: pytest.MonkeyPatch) -> MemoryLimiter:
    limiter = MemoryLimiter()
    monkeypatch.setattr(limiter_factory, "_process_limiter", lambda: limiter)
    return limiter


@pytest.fixture
def priced(db: None) -> None:
    """A millionth for a prompt token, half of it if cached, two for one of output; of batches a tenth."""
    prices = PriceList("EUR", EURO, EURO // 2, 2 * EURO, 0, EURO // 10, EURO // 20, EURO // 5)
    publish_prices(actor=SYSTEM, prices=prices, effective_on=timezone.now().date() - timedelta(days=60))


def month(amount: int, **more: Any) -> dict[str, Any]:
    return {"month": {"amount_micros": amount, **more}}


def use(org: Any, prompt: int, completion: int = 0, **more: Any) -> None:
    record_event(
        request_id=f"req_{uuid.uuid4().hex}",
        tenant=org.tenant,
        model="support",
        endpoint="chat.completions",
        outcome="finished",
        created_at=more.pop("at", None) or timezone.now(),
        counts=Counts(prompt_tokens=prompt, completion_tokens=completion, cached_prompt_tokens=more.pop("cached", 0)),
        **more,
    )


def now_period() -> Any:
    return period_of(int(timezone.now().timestamp() * 1000))


def test_admins_set_the_tenants_own_below_the_operators(acme: Any, operator: APIClient, priced: None) -> None:
    assert operator.put("/api/operator/tenants/acme/budgets", month(10 * EURO), format="json").status_code == 200
    admin, path = acme.client(Role.ADMIN), acme.path("budgets")
    assert error_of(admin.put(path, month(11 * EURO), format="json")) == (400, "budget_above_grant")
    shown = admin.put(path, month(5 * EURO, at_limit="warn", alerts=[90, 50, 90]), format="json").json()
    assert shown["currency"] == "EUR"
    assert (shown["granted"]["month"]["amount_micros"], shown["granted"]["day"]) == (10 * EURO, None)
    own = {"amount_micros": 5 * EURO, "at_limit": "warn", "alerts": [50, 90], "spent_micros": 0, "reached": None}
    assert shown["own"]["month"] == own
    assert error_of(acme.client(Role.DEVELOPER).put(path, {}, format="json")) == (403, "role_not_allowed")
    assert acme.client(Role.VIEWER).get(path).json() == shown
    assert admin.put(path, {}, format="json").json()["own"] == {"day": None, "month": None}
    rows = [row.detail for row in AuditEvent.objects.filter(action="tenant.budgets").order_by("id")]
    assert [row["granted"] for row in rows] == [True, False, False]
    stored = {"month": {"amount_micros": 5 * EURO, "at_limit": "warn", "alerts": [50, 90]}}
    assert [(row["before"], row["budgets"]) for row in rows[1:]] == [({}, stored), (stored, {})]


def test_a_keys_budget_is_its_tenants(acme: Any, globex: Any, priced: None) -> None:
    key, _ = acme.key("ci")
    path = f"keys/{key.pk}/budgets"
    body = {"day": {"amount_micros": 3}, "month": {"amount_micros": 50}}
    shown = acme.client(Role.ADMIN).put(acme.path(path), body, format="json").json()["keys"]
    assert [(each["name"], each["day"]["amount_micros"]) for each in shown] == [("ci", 3)]
    assert acme.client(Role.VIEWER).get(acme.path(path)).json()["day"]["amount_micros"] == 3
    assert globex.client().get(globex.path(path)).status_code == 404
    assert globex.client().put(globex.path(path), body, format="json").status_code == 404
    assert globex.client().get(globex.path("budgets")).json()["keys"] == []


@pytest.mark.parametrize(
    "body", [month(0), month(-1), month(10**16), month(5, alerts=[0]), month(5, at_limit="stop"), {"day": "much"}]
)
def test_nonsense_is_refused(acme: Any, priced: None, body: Any) -> None:
    assert acme.client().put(acme.path("budgets"), body, format="json").status_code == 400


def test_without_prices_there_is_nothing_to_count(acme: Any) -> None:
    assert error_of(acme.client().put(acme.path("budgets"), month(5), format="json")) == (409, "no_prices")
    assert acme.client().get(acme.path("budgets")).json()["currency"] is None


def test_what_is_spent_is_the_ledger_to_its_end(acme: Any, globex: Any, priced: None) -> None:
    key, _ = acme.key()
    use(acme, 100, 10, cached=40, api_key=key)  # 60 + 20 + 20
    use(acme, 1000, 500, at=datetime.now(UTC) - timedelta(days=40), api_key=key)
    aggregate()
    use(acme, 100, 10, api_key=key, batch=True)  # 10 + 2
    use(acme, 7)
    use(globex, 1000)
    for _ in range(2):  # the second time all of it is in the rollups
        scopes = [OF_TENANT, key.pk.hex]
        of_tenant, of_key = money_spent(counter_of(acme.tenant.pk), scopes, now_period())
        assert (of_tenant.day, of_tenant.month) == (119_000, 119_000)
        assert (of_key.day, of_key.month) == (112_000, 112_000)
        aggregate()


def test_spent_is_as_the_usage_page_says(acme: Any, priced: None) -> None:
    use(acme, 123, 45, cached=7)
    aggregate()
    client = acme.client()
    shown = client.put(acme.path("budgets"), month(EURO), format="json").json()["own"]["month"]["spent_micros"]
    assert shown == client.get(acme.path("usage?days=1")).json()["totals"]["cost_micros"]


def test_the_smallest_that_refuses_holds(acme: Any, operator: APIClient, priced: None) -> None:
    key, _ = acme.key()
    operator.put("/api/operator/tenants/acme/budgets", month(100), format="json")
    client = acme.client()
    client.put(acme.path("budgets"), {**month(60), "day": {"amount_micros": 9, "at_limit": "warn"}}, format="json")
    client.put(acme.path(f"keys/{key.pk}/budgets"), {"day": {"amount_micros": 7}}, format="json")
    of_key = caller_budgets(acme.tenant, key)
    assert {scope.name: scope.limits for scope in of_key.scopes} == {
        OF_TENANT: Limits(tokens_per_month=60_000),
        key.pk.hex: Limits(tokens_per_day=7_000),
    }
    assert [scope.name for scope in caller_budgets(acme.tenant, None).scopes] == [OF_TENANT]


def test_of_many_keys_those_with_least_left_are_shown(
    acme: Any, priced: None, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(budget_reports, "MAX_KEYS", 2)
    for number, prompt in enumerate((10, 90, 50, 0)):
        key, _ = acme.key(f"k{number}")
        set_key_budgets(acting=acme.principal(), key=key, terms={BudgetSpan.DAY: BudgetTerms(100)})
        use(acme, prompt, api_key=key)
    client = acme.client()
    client.get("/api/session")
    with django_assert_max_num_queries(16):
        shown = client.get(acme.path("budgets")).json()
    assert ([key["name"] for key in shown["keys"]], shown["keys_total"]) == (["k1", "k2"], 4)


def test_each_threshold_is_told_once(acme: Any, priced: None, queue: Any) -> None:
    create_endpoint(acting=acme.principal(), settings=WebhookSettings("https://hooks.example.org/x", "", [], True))
    terms = {BudgetSpan.MONTH: BudgetTerms(1000, AtLimit.WARN)}
    set_tenant_budgets(acting=acme.principal(), terms=terms)
    told = []
    for prompt in (100, 450, 0, 300, 400):
        use(acme, prompt)
        reconciliation.reconcile()
        told.append([event.data["threshold"] for event in Event.objects.for_tenant(acme.tenant).order_by("created_at")])
    assert told == [[], [50], [50], [50, 80], [50, 80, 100]]
    event = Event.objects.for_tenant(acme.tenant).latest("created_at")
    assert (event.type, event.data["spent_micros"], event.data["currency"]) == ("budget.alert", 1250, "EUR")
    assert acme.client().get(acme.path("budgets")).json()["own"]["month"]["reached"] == 100


@pytest.mark.parametrize(
    ("day", "late", "told"),
    [("2028-02-29", [], ["2028-02", "2028-02-29"]), ("2027-12-30", ["2027-12"], ["2027-12", "2027-12-30"])],
)
def test_thresholds_of_a_days_last_minute_are_told(
    acme: Any, queue: Any, monkeypatch: pytest.MonkeyPatch, day: str, late: list[str], told: list[str]
) -> None:
    publish_prices(actor=SYSTEM, prices=PriceList("EUR", EURO, EURO, EURO, 0), effective_on=date(2026, 1, 1))
    create_endpoint(acting=acme.principal(), settings=WebhookSettings("https://hooks.example.org/x", "", [], True))
    terms = dict.fromkeys(BudgetSpan, BudgetTerms(1000, AtLimit.WARN, (100,)))
    set_tenant_budgets(acting=acme.principal(), terms=terms)
    end = midnight(date.fromisoformat(day)) + timedelta(days=1)
    use(acme, 1250, at=end - timedelta(seconds=20))
    for minutes, periods in ((11, late), (1, told)):
        moment = end + timedelta(minutes=minutes)
        period = period_of(int(moment.timestamp() * 1000))
        monkeypatch.setattr(reconciliation, "current_period", lambda period=period: period)
        monkeypatch.setattr(clocks, "database_time", lambda moment=moment: moment)
        reconciliation.reconcile()
        assert sorted(event.data["period"] for event in Event.objects.for_tenant(acme.tenant)) == periods


def test_counters_are_lifted_to_the_ledger(acme: Any, priced: None, fresh_counters: MemoryLimiter) -> None:
    set_tenant_budgets(acting=acme.principal(), terms={BudgetSpan.DAY: BudgetTerms(1000)})
    use(acme, 85)
    assert reconciliation.reconcile() == 1

    async def read(limiter: Limiter) -> tuple[Reading, ...]:
        return await limiter.read(counter_of(acme.tenant.pk), [Scope(OF_TENANT, Limits())])

    assert limiter_factory.with_limiter(read)[0].day == 85_000


def test_a_revoked_keys_budget_is_not_shown(acme: Any, priced: None) -> None:
    key, _ = acme.key()
    acme.client().put(acme.path(f"keys/{key.pk}/budgets"), month(5), format="json")
    acme.client().delete(acme.path(f"keys/{key.pk}"))
    assert acme.client().get(acme.path("budgets")).json()["keys"] == []
    assert Budget.objects.count() == 1
