"""Aliases, canaries by weight, what ends them, and the way back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from lorikeet_testing.ledger import record_event
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.canaries.judging import VersionStats, judge_canaries, verdict
from control_plane.adapters.registry.aliases import (
    fail_canary,
    remove_alias,
    roll_back,
    set_alias,
    start_canary,
    stop_canary,
)
from control_plane.adapters.registry.models import AdapterVersion, Alias, VersionState
from control_plane.adapters.registry.resolve import resolve_model
from control_plane.billing.usage.counters import Counts
from control_plane.console.webhooks.events import FROM_AUDIT
from control_plane.console.webhooks.models import EventType
from control_plane.fleet.hosts.models import EngineHost, StagingPhase
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.dispatch.admission import admit
from control_plane.identity.access.actor import ActorKind
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def live(version: AdapterVersion) -> Alias:
    return Alias.objects.select_related("version", "canary", "previous", "adapter", "tenant").get(
        adapter=version.adapter, name="live"
    )


def served(
    version: AdapterVersion,
    times: int,
    *,
    outcome: str = "finished",
    first: int = 50,
    load: int = 0,
    batch: bool = False,
) -> None:
    for _ in range(times):
        record_event(
            request_id=str(uuid4()), tenant=version.tenant, model="support", endpoint="chat.completions",
            outcome=outcome, created_at=datetime.now(UTC) + timedelta(seconds=1), adapter=version.adapter,
            version=version, counts=Counts(
                prompt_tokens=3, completion_tokens=11, first_token_ms=first, adapter_load_ms=load, decode_ms=200
            ), batch=batch,
        )  # fmt: skip


def test_a_share_of_requests_always_the_same_ones(acme: Any, two: Any) -> None:
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    model, canary = resolve_model(acme.tenant, "support")
    assert (model.version, canary.model.version) == (first, second)
    assert canary.model.display_name == "support"
    ids = [f"req_{number}" for number in range(5000)]
    taken = [name for name in ids if canary.takes(name)]
    assert 0.18 < len(taken) / len(ids) < 0.22
    assert taken == [name for name in ids if canary.takes(name)]
    assert resolve_model(acme.tenant, "support@v1")[1] is None, "a pinned version stays what it is"


def test_admission_of_one_request(acme: Any, two: Any, host: EngineHost) -> None:
    first, second = two
    Placement.objects.update(phase=StagingPhase.READY, boot_id=host.boot_id)
    start_canary(acting=acme.principal(), version=second, name="live", percent=50)
    admission = admit(acme.principal(), "support")
    versions = {admission.for_request(f"req_{number}").model.version for number in range(40)}
    assert versions == {first, second}
    Placement.objects.filter(version=second).update(phase=StagingPhase.FAILED)
    admission = admit(acme.principal(), "support")
    assert {admission.for_request(f"req_{number}").model.version for number in range(40)} == {first}, (
        "a canary that is on no host takes nothing"
    )


def test_promoting_it_ends_it_and_rollback_leads_back(acme: Any, two: Any) -> None:
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=5)
    start_canary(acting=acme.principal(), version=second, name="live", percent=50)
    set_alias(acting=acme.principal(), version=second, name="live")
    alias = live(first)
    assert (alias.version, alias.canary, alias.canary_percent, alias.previous) == (second, None, None, first)
    roll_back(acting=acme.principal(), adapter=first.adapter, name="live")
    assert (live(first).version, live(first).previous) == (first, second)


def test_too_many_errors_end_it(acme: Any, two: Any) -> None:
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    served(first, 60)
    served(second, 16)
    served(second, 3, outcome="failed")
    served(second, 40, outcome="aborted")
    assert judge_canaries() == 0, "19 requests say nothing yet"
    served(second, 3, outcome="failed")
    assert judge_canaries() == 1
    assert judge_canaries() == 0
    alias = live(first)
    assert (alias.version, alias.canary) == (first, None)
    assert (alias.rolled_back["version"], alias.rolled_back["code"]) == (2, "error_rate")
    row = AuditEvent.objects.filter(action="alias.canary_fail").get()
    assert row.actor_kind == ActorKind.SYSTEM
    assert FROM_AUDIT[row.action] == EventType.CANARY_FAILED
    shown = acme.client().get(acme.path("adapters/support")).json()["aliases"][0]["rolled_back"]
    assert shown["message"] == "6 of 22 requests failed, of the version beside it 0 of 60."


def test_an_alias_that_is_removed_as_its_canary_is_judged(acme: Any, two: Any) -> None:
    first, second = two
    alias = set_alias(acting=acme.principal(), version=first, name="beta")
    start_canary(acting=acme.principal(), version=second, name="beta", percent=20)
    judged = Alias.objects.select_related("canary", "adapter", "tenant").get(pk=alias.pk)
    remove_alias(acting=acme.principal(), adapter=first.adapter, name="beta")
    assert not fail_canary(judged, {"code": "error_rate", "message": "x"}), "the others are judged too"


def test_slowness_ends_it_but_a_cold_start_does_not(acme: Any, two: Any) -> None:
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    served(first, 30)
    served(second, 30, first=900, load=840)
    assert judge_canaries() == 0
    served(second, 40, first=900)
    assert judge_canaries() == 1
    assert live(first).rolled_back["code"] == "first_token"


def test_lines_of_batches_do_not_count_in_its_times(acme: Any, two: Any) -> None:
    """They run when there is little else to do: an evaluation of a later version asks the live one too."""
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    served(first, 19, first=900)
    served(second, 30, first=900)
    served(first, 40, batch=True)
    assert judge_canaries() == 0, "19 requests say nothing yet"
    served(first, 1, first=900)
    assert judge_canaries() == 0
    served(second, 40, outcome="failed", batch=True)
    assert judge_canaries() == 1
    assert live(first).rolled_back["code"] == "error_rate"


@pytest.mark.parametrize(
    ("canary", "own", "code"),
    [
        (VersionStats(19, 19, 1, 1, 0), VersionStats(100, 0, 1, 1, 100), None),
        (VersionStats(20, 20, None, None, 0), VersionStats(0, 0, None, None, 0), "error_rate"),
        (VersionStats(100, 3, 1, 1, 97), VersionStats(100, 0, 1, 1, 100), None),
        (VersionStats(100, 50, 1, 1, 50), VersionStats(100, 50, 1, 1, 50), None),
        (VersionStats(100, 0, 1000, 1, 100), VersionStats(10, 0, 1, 1, 10), None),
        (VersionStats(100, 0, 50, 60, 100), VersionStats(100, 0, 50, 20, 100), "inter_token"),
        (VersionStats(100, 0, 140, 1, 100), VersionStats(100, 0, 50, 1, 100), None),
    ],
)
def test_verdict(canary: VersionStats, own: VersionStats, code: str | None) -> None:
    judged = verdict(canary, own)
    assert (judged["code"] if judged else None) == code


def test_an_alias_keeps_its_age_through_its_canaries(acme: Any, two: Any) -> None:
    first, second = two
    began = live(first).updated_at
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    start_canary(acting=acme.principal(), version=second, name="live", percent=40)
    fail_canary(live(first), {"code": "error_rate", "message": ""})
    start_canary(acting=acme.principal(), version=second, name="live", percent=5)
    stop_canary(acting=acme.principal(), adapter=first.adapter, name="live")
    start_canary(acting=acme.principal(), version=second, name="live", percent=5)
    set_alias(acting=acme.principal(), version=first, name="live")
    now = live(first)
    assert (now.updated_at, now.canary, now.previous) == (began, None, None)
    set_alias(acting=acme.principal(), version=second, name="live")
    assert live(first).updated_at > began
    assert live(first).previous == first


def test_judged_too_late(acme: Any, two: Any) -> None:
    first, second = two
    start_canary(acting=acme.principal(), version=second, name="live", percent=20)
    seen = live(first)
    stop_canary(acting=acme.principal(), adapter=first.adapter, name="live")
    start_canary(acting=acme.principal(), version=second, name="live", percent=10)
    assert not fail_canary(seen, {"code": "error_rate", "message": ""})
    assert live(first).canary == second


def test_api(acme: Any, two: Any, upload: Any) -> None:
    client, at = acme.client(Role.DEVELOPER), acme.path("adapters/support/aliases/prod")
    assert client.put(at + "/canary", {"version": 2, "percent": 5}, format="json").status_code == 404
    assert client.put(at, {"version": 1}, format="json").json()["aliases"][1]["version"] == 1
    answer = client.put(at + "/canary", {"version": 2, "percent": 5}, format="json").json()["aliases"][1]
    assert (answer["canary"], answer["canary_percent"]) == (2, 5)
    served(two[1], 2)
    measured = client.get(at + "/canary").json()
    assert (measured["canary"]["requests"], measured["own"]["requests"]) == (2, 0)
    assert measured["canary"]["inter_token_ms"] == 20.0
    assert client.delete(at + "/canary").status_code == 204
    assert client.get(at + "/canary").json()["canary"] is None
    for path, body, code in (
        (at + "/canary", {"version": 1, "percent": 5}, "already_there"),
        (at + "/canary", {"version": 2, "percent": 100}, "invalid_request"),
        (at.replace("prod", "v3"), {"version": 1}, "bad_alias_name"),
    ):
        assert client.put(path, body, format="json").json()["error"]["code"] == code
    for strange in ("%00", "a%00b", "%F0%9F%A6%9C", "A", "x" * 300):
        for method, path in (("get", "/canary"), ("delete", "/canary"), ("delete", ""), ("post", "/rollback")):
            assert getattr(client, method)(at.replace("prod", strange) + path).status_code == 404
        refused = client.put(at.replace("prod", strange), {"version": 1}, format="json")
        assert refused.json()["error"]["code"] == "bad_alias_name"
    assert client.post(at + "/rollback").json()["error"]["code"] == "nothing_before"
    assert client.delete(at).status_code == 204
    assert client.delete(at.replace("prod", "live")).json()["error"]["code"] == "live_stays"
    third = upload(acme, files=adapter_files(seed=5)).version
    assert third.state == VersionState.STAGING
    refused = client.put(at.replace("prod", "live") + "/canary", {"version": 3, "percent": 5}, format="json")
    assert refused.json()["error"]["code"] == "version_not_ready"
