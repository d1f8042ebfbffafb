"""Objectives: who sets them, how they reach the engine, and attainment from what was measured."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from lorikeet_testing.ledger import record_event
from rest_framework.test import APIClient

from control_plane.billing.slo.actions import set_objective
from control_plane.billing.slo.queries import Targets, attainment, targets_of
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def answered(org: Any, first_token_ms: int, *, decode_ms: int = 90, outcome: str = "finished") -> None:
    record_event(
        request_id=uuid.uuid4().hex,
        tenant=org.tenant,
        model="support",
        endpoint="completions",
        outcome=outcome,
        created_at=datetime.now(UTC),
        counts=Counts(
            prompt_tokens=3,
            completion_tokens=10,
            queue_ms=4,
            first_token_ms=first_token_ms,
            decode_ms=decode_ms,
        ),
    )


def objective(org: Any, first: int | None = 200, between: int | None = None, target: float = 0.9) -> None:
    set_objective(acting=org.principal(), first_token_ms=first, inter_token_ms=between, target=target)


def test_none_to_begin_with(acme: Any) -> None:
    assert targets_of(acme.tenant) == Targets(None, None, 0.99)
    shown = acme.client(Role.VIEWER).get(acme.path("slo")).json()
    assert shown["first_token"]["objective_ms"] is None
    assert shown["first_token"]["attainment"] is None
    assert shown["first_token"]["budget"] is None
    assert shown["weight"] == 1.0
    assert len(shown["first_token"]["by_day"]) == 30


def test_an_owner_sets_them(acme: Any) -> None:
    body = {"first_token_ms": 200, "target": 0.95}
    assert acme.client(Role.ADMIN).put(acme.path("slo"), body, format="json").status_code == 403
    answer = acme.client().put(acme.path("slo"), body, format="json")
    assert answer.json() == {"first_token_ms": 200, "inter_token_ms": None, "target": 0.95}
    assert targets_of(acme.tenant) == Targets(200, None, 0.95)
    assert AuditEvent.objects.get(action="slo.update").detail["objective"]["first_token_ms"] == 200
    assert acme.client().put(acme.path("slo"), {}, format="json").json()["first_token_ms"] is None


@pytest.mark.parametrize("body", [{"first_token_ms": 0}, {"target": 1.0}, {"inter_token_ms": "soon"}])
def test_nonsense_is_refused(acme: Any, body: Any) -> None:
    answer = acme.client().put(acme.path("slo"), body, format="json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(body)))


def test_attainment_and_budget(acme: Any, globex: Any) -> None:
    objective(acme, first=200, between=10, target=0.9)
    for first in (50, 100, 150, 200, 201, 900):
        answered(acme, first)
    answered(acme, 0, outcome="refused")  # was never answered, so nothing was measured
    for _ in range(50):
        answered(globex, 5000)
    aggregate()
    slo = attainment(acme.tenant, 7)
    first = slo["first_token"]
    assert (first["measured"], first["met"]) == (6, 4)  # 200 is met, 201 is not
    assert first["attainment"] == pytest.approx(4 / 6)
    assert first["budget"]["missed"] == 2
    assert first["budget"]["allowed"] == pytest.approx(0.6)
    assert first["budget"]["left"] == pytest.approx((0.6 - 2) / 0.6)
    assert [day["measured"] for day in first["by_day"]] == [0] * 6 + [6]
    assert slo["inter_token"]["attainment"] == 1.0  # 90 ms over nine gaps
    assert slo["mean_queue_ms"] == 4
    assert slo["requests"] == 7
    assert [(row["window"], row["measured"], row["missed"]) for row in first["burn"]] == [
        (window, 6, 2) for window in ("1h", "6h", "1d", "7d")
    ]
    assert first["burn"][0]["rate"] == pytest.approx(2 / 6 / 0.1)
    assert acme.client().get(acme.path("slo")).json()["first_token"]["burn"][3]["missed"] == 2


def test_the_objective_of_now_judges_the_past(acme: Any) -> None:
    answered(acme, 300)
    aggregate()
    objective(acme, first=250)
    assert attainment(acme.tenant, 1)["first_token"]["met"] == 0
    objective(acme, first=300)
    assert attainment(acme.tenant, 1)["first_token"]["met"] == 1


def test_operators_set_weights(acme: Any) -> None:
    path = "/api/operator/tenants/acme/weight"
    assert acme.client().put(path, {"weight": 2}, format="json").status_code == 403
    operator = create_user(actor=SYSTEM, email="ops@example.org", password="correct horse battery")
    operator.is_operator = True
    operator.save()
    client = APIClient()
    client.force_login(operator)
    assert client.put(path, {"weight": 2.5}, format="json").json() == {"weight": 2.5}
    assert Tenant.objects.get(slug="acme").weight == 2.5
    assert AuditEvent.objects.get(action="tenant.weight").detail == {"weight": 2.5, "before": 1.0}
    assert client.put(path, {"weight": 0}, format="json").status_code == 400
    assert client.put("/api/operator/tenants/nobody/weight", {"weight": 1}, format="json").status_code == 404


def test_a_first_token_within_the_first_millisecond_counts(acme: Any) -> None:
    objective(acme, first=1, target=0.9)
    answered(acme, 0)
    answered(acme, 5)
    aggregate()
    shown = attainment(acme.tenant, 1)["first_token"]
    assert (shown["measured"], shown["met"]) == (2, 1)
    assert shown["percentiles"]["p50_ms"] == 0.5


def test_a_request_that_ended_before_its_first_token_is_not_measured(acme: Any) -> None:
    record_event(
        request_id="cut",
        tenant=acme.tenant,
        model="support",
        endpoint="completions",
        outcome="aborted",
        created_at=datetime.now(UTC),
        counts=Counts(prompt_tokens=3, queue_ms=4),
    )
    aggregate()
    assert attainment(acme.tenant, 1)["first_token"]["measured"] == 0
