"""Every request is counted somewhere, once, and billed by the rule that docs/api.md states."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lorikeet_testing.ledger import record_event
from lorikeet_testing.platform_fixtures import Org

from control_plane.billing.refusals import actions as refusals
from control_plane.billing.refusals.actions import Count, Reason
from control_plane.billing.refusals.models import Refusal
from control_plane.billing.reports.operator import operator_report
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.sums import last_days

pytestmark = pytest.mark.django_db


def refuse(org: Org, count: int, *, code: str = "rate_limit_exceeded", at: float | None = None) -> None:
    at = at or time.time()
    reason = Reason(org.tenant.pk, None, "completions", 429, code, "", int(at // 60))
    refusals.add({reason: Count(count, at, "support")})


def ended(org: Org, outcome: str, number: int, **counts: int) -> None:
    record_event(
        request_id=f"{org.tenant.slug}-{outcome}-{number}",
        tenant=org.tenant,
        model="support",
        endpoint="completions",
        outcome=outcome,
        created_at=datetime.now(UTC),
        counts=Counts(**counts),
    )


def rows(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {row["tenant"]: (row["refused"], row["failed"]) for row in report["by_tenant"]}


def test_the_operators_report_counts_refusals_wherever_they_happened(acme: Org, globex: Org) -> None:
    refuse(acme, 31)
    refuse(acme, 4, code="no_ready_host")
    refuse(globex, 2)  # of this tenant nothing else is known
    ended(acme, "refused", 1)
    ended(acme, "failed", 1)
    ended(acme, "finished", 1, prompt_tokens=3, completion_tokens=5)
    aggregate()
    report = operator_report(last_days(7))
    assert report["outcomes"] == {"finished": 1, "aborted": 0, "failed": 1, "refused": 38}
    assert rows(report) == {"acme": (36, 1), "globex": (2, 0)}
    assert report["tenants"] == 2


def test_it_still_does_when_the_rows_by_minute_are_forgotten(acme: Org) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=40)
    refuse(acme, 7, at=long_ago.timestamp())
    refuse(acme, 1)
    refusals.forget()
    assert Refusal.objects.count() == 1
    assert operator_report(last_days(90))["outcomes"]["refused"] == 8
    assert operator_report(last_days(7))["outcomes"]["refused"] == 1
