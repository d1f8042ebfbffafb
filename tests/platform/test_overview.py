"""The first page: what a new tenant has done already."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.seed import add_version

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.billing.limits.actions import set_key_limits, set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.billing.usage.counters import Counts
from control_plane.console.overview.views import CREATED_TOGETHER
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.models import User
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


def test_members_who_came_with_the_tenant_were_not_invited(acme: Any) -> None:
    assert "invited" not in steps(acme)
    joined = acme.tenant.created_at + 2 * CREATED_TOGETHER
    acme.users[Role.VIEWER].memberships.update(created_at=joined)
    assert "invited" in steps(acme)


def test_a_quota_of_pins_is_no_limit(acme: Any) -> None:
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(pinned_bytes=1))
    assert "limited" not in steps(acme), "nothing is limited by it: without it nothing may be pinned"
    set_tenant_limits(actor=SYSTEM, tenant=acme.tenant, limits=Limits(pinned_bytes=1, adapters=9))
    assert "limited" in steps(acme)


def test_an_invitation_by_an_operator_and_an_archived_version_do_not_count(acme: Any) -> None:
    for role in list(Role)[1:]:
        acme.users[role].memberships.all().delete()
    operator = User.objects.create_user(email="operator@lorikeet.example", is_operator=True)
    invite(acting=Principal.of_operator(acme.tenant, operator), email="new@acme.example", role=Role.OWNER)
    for name in ("kept", "archived"):
        add_version(acme.tenant, name, 1)
    AdapterVersion.objects.filter(adapter__name="archived").update(state=VersionState.ARCHIVED)
    shown = acme.client().get(acme.path("overview")).json()
    assert not shown["first_steps"]["invited"]
    assert shown["adapters"] == {"total": 1, "ready": 0}
