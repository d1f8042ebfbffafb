"""Limits in the database: who sets them, what the ledger says of them, and what they refuse at upload."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing import peft_files
from lorikeet_testing.ledger import record_event

from control_plane.billing.limits.actions import set_key_limits, set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.billing.quotas import limiter_factory, reconciliation
from control_plane.billing.quotas.limiter_interface import Limiter, Reading, ReservationRequest, Scope, period_of
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.queries import OF_TENANT, limits_of, spending
from control_plane.billing.usage import aggregation
from control_plane.billing.usage.counters import Counts
from control_plane.console.webhooks.actions import WebhookSettings, create_endpoint
from control_plane.console.webhooks.models import Event
from control_plane.core.errors import LorikeetError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
GRANTED = {"requests_per_minute": 60, "tokens_per_day": 1000, "adapters": 3}


@pytest.fixture(autouse=True)
def fresh_counters(monkeypatch: pytest.MonkeyPatch) -> MemoryLimiter:
    limiter = MemoryLimiter()
    monkeypatch.setattr(limiter_factory, "_process_limiter", lambda: limiter)
    return limiter


def use(org: Any, tokens: int, when: datetime | None = None, key: Any = None) -> None:
    record_event(
        request_id=f"req_{uuid.uuid4().hex}",
        tenant=org.tenant,
        model="support",
        endpoint="chat.completions",
        outcome="finished",
        created_at=when or timezone.now(),
        counts=Counts(prompt_tokens=tokens - 1, completion_tokens=1),
        api_key=key,
    )


def now_period() -> Any:
    return period_of(int(timezone.now().timestamp() * 1000))


def test_an_operator_sets_the_tenants_limits(acme: Any, operator: Any) -> None:
    path = "/api/operator/tenants/acme/limits"
    assert set(operator.get(path).json().values()) == {None}
    assert operator.put(path, GRANTED, format="json").json()["requests_per_minute"] == 60
    assert operator.get(path).json() == acme.client(Role.VIEWER).get(acme.path("limits")).json()["tenant"]["limits"]
    row = AuditEvent.objects.get(action="tenant.limits")
    assert (row.actor_label, row.tenant, row.detail) == (
        "ops@example.org",
        acme.tenant,
        {"limits": GRANTED, "before": {}},
    )
    # A limit that is left out is lifted.
    assert operator.put(path, {}, format="json").json()["requests_per_minute"] is None
    assert AuditEvent.objects.filter(action="tenant.limits")[0].detail == {"limits": {}, "before": GRANTED}


def test_nobody_else_does(acme: Any) -> None:
    answer = acme.client().put("/api/operator/tenants/acme/limits", GRANTED, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "operator_only")


def test_members_limit_their_keys(acme: Any, globex: Any) -> None:
    key, _ = acme.key("ci")
    path = acme.path(f"keys/{key.pk}/limits")
    assert acme.client(Role.DEVELOPER).put(path, {"concurrency": 2}, format="json").status_code == 200
    assert limits_of(acme.tenant, key).key == Limits(concurrency=2)
    shown = acme.client().get(acme.path("limits")).json()["keys"]
    assert [(each["name"], each["limits"]["concurrency"]) for each in shown] == [("ci", 2)]
    assert globex.client().put(globex.path(f"keys/{key.pk}/limits"), {}, format="json").status_code == 404
    assert AuditEvent.objects.get(action="key.limits").detail == {"limits": {"concurrency": 2}, "before": {}}


@pytest.mark.parametrize("body", [{"concurrency": -1}, {"tokens_per_day": "many"}, {"max_output_tokens": 0}])
def test_nonsense_is_refused(acme: Any, body: Any) -> None:
    key, _ = acme.key()
    answer = acme.client().put(acme.path(f"keys/{key.pk}/limits"), body, format="json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(body)))


def test_spending_is_the_ledger_to_its_end(acme: Any, globex: Any) -> None:
    key, _ = acme.key()
    now = datetime.now(UTC)
    use(acme, 100, key=key)
    use(acme, 10, now - timedelta(days=40), key=key)
    aggregation.aggregate()
    use(acme, 7, key=key)
    use(acme, 5)
    use(globex, 1000)
    for _ in range(2):  # the second time all of it is in the rollups
        of_tenant, of_key = spending(acme.tenant.pk, [OF_TENANT, key.pk.hex], now_period())
        assert (of_tenant.day, of_tenant.month) == (112, 112)
        assert (of_key.day, of_key.month) == (107, 107)
        aggregation.aggregate()


def test_standing_shows_counters_and_ledger(acme: Any, fresh_counters: MemoryLimiter, ready_version: Any) -> None:
    key, _ = acme.key("ci")
    ready_version(acme)
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(requests_per_minute=5, tokens_per_day=500))
    use(acme, 100, key=key)
    scopes = limits_of(acme.tenant, key).scopes(key.pk)

    async def reserve(limiter: Limiter) -> tuple[Reading, ...]:
        await limiter.raise_to(str(acme.tenant.pk), now_period(), spending_now)
        return (await limiter.reserve(ReservationRequest("l1", str(acme.tenant.pk), scopes, 30))).readings

    spending_now = spending(acme.tenant.pk, [OF_TENANT, key.pk.hex], now_period())
    limiter_factory.with_limiter(reserve)
    shown = acme.client().get(acme.path("limits")).json()
    assert shown["counters_reachable"]
    used = shown["tenant"]["used"]
    assert (used["requests_per_minute"], used["tokens_per_minute"], used["concurrency"]) == (1, 30, 1)
    assert (used["tokens_per_day"], used["adapters"]) == (130, 1)
    assert used["storage_bytes"] > 0
    assert shown["keys"][0]["used"]["tokens_per_day"] == 130


def test_standing_without_limits_reads_the_ledger(acme: Any) -> None:
    use(acme, 100)
    used = acme.client().get(acme.path("limits")).json()["tenant"]["used"]
    assert (used["requests_per_minute"], used["tokens_per_day"], used["tokens_per_month"]) == (None, 100, 100)


def test_standing_when_counters_are_away(acme: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"redis_url": "redis://127.0.0.1:1"})
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(requests_per_minute=5))
    shown = acme.client().get(acme.path("limits")).json()
    assert not shown["counters_reachable"]
    assert shown["tenant"]["used"]["requests_per_minute"] is None


def test_reconciling_lifts_counters_and_warns_once(acme: Any, fresh_counters: MemoryLimiter, queue: Any) -> None:
    create_endpoint(acting=acme.principal(), settings=WebhookSettings("https://hooks.example.org/x", "", [], True))
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(tokens_per_day=100))
    use(acme, 85)
    assert [reconciliation.reconcile(), reconciliation.reconcile()] == [1, 1]

    async def read(limiter: Limiter) -> tuple[Reading, ...]:
        return await limiter.read(str(acme.tenant.pk), [Scope(OF_TENANT, Limits())])

    assert limiter_factory.with_limiter(read)[0].day == 85
    assert [event.type for event in Event.objects.for_tenant(acme.tenant)] == ["quota.warning"]


# -- what is stored ------------------------------------------------------------------


def test_the_number_of_adapters(acme: Any, upload: Any) -> None:
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(adapters=1))
    assert upload(acme, "one").state == "accepted"
    assert upload(acme, "one", seed=5).state == "accepted"
    with pytest.raises(LorikeetError) as full:
        upload(acme, "two")
    assert (full.value.code, full.value.status) == ("adapter_limit_reached", 403)


def test_storage(acme: Any, upload: Any) -> None:
    size = upload(acme, "one").version.bytes
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(storage_bytes=size + 10))
    with pytest.raises(LorikeetError) as full:
        upload(acme, "two", seed=5)
    assert full.value.code == "storage_limit_reached"


def test_limits_hold_where_an_upload_ends(acme: Any, upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(adapters=0))
    monkeypatch.setattr(
        "control_plane.adapters.uploads.actions.require_room", lambda *_: None
    )  # as if it began earlier
    refused = upload(acme, "late")
    assert (refused.state, refused.reason["code"]) == ("refused", "adapter_limit_reached")


def test_rank(acme: Any, upload: Any) -> None:
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(max_rank=2))
    refused = upload(acme, "wide", files=peft_files.adapter_files(rank=8))
    assert refused.state == "refused"
    assert "rank" in refused.reason["message"]


def test_a_keys_limits_and_the_tenants(acme: Any) -> None:
    key, _ = acme.key()
    assert limits_of(acme.tenant, key).scopes(key.pk) == ()
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(max_output_tokens=100))
    set_key_limits(acting=acme.principal(), key=key, limits=Limits(max_output_tokens=50, concurrency=1))
    both = limits_of(acme.tenant, key)
    assert both.max_output_tokens == 50
    assert [scope.name for scope in both.scopes(key.pk)] == [OF_TENANT, key.pk.hex]
    assert [scope.name for scope in limits_of(acme.tenant, None).scopes(None)] == []
