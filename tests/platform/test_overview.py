"""The first page: what a new tenant has done already."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event

from control_plane.billing.limits.actions import set_key_limits
from control_plane.billing.limits.values import Limits
from control_plane.billing.usage.counters import Counts
from control_plane.identity.members.invitations import invite
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db


def steps(org: Any) -> set[str]:
    shown = org.client().get(org.path("overview")).json()["first_steps"]
    return {name for name, done in shown.items() if done}


def test_first_steps_are_ones_own(acme: Any, globex: Any) -> None:
    for org in (acme, globex):
        for role in list(Role)[1:]:
            org.users[role].memberships.all().delete()
    assert steps(acme) == set()
    invite(acting=acme.principal(), email="new@acme.example", role=Role.VIEWER)
    key, _ = acme.key()
    set_key_limits(acting=acme.principal(), key=key, limits=Limits(concurrency=1))
    used = {"endpoint": "chat.completions", "outcome": "finished", "counts": Counts(prompt_tokens=1)}
    record_event(request_id="req_1", tenant=acme.tenant, model="support", created_at=timezone.now(), **used)
    assert steps(acme) == {"called", "limited", "invited"}
    assert steps(globex) == set()
