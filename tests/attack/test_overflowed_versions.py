"""An adapter that overflowed shows it: in the ledger, the audit log, the API and an event, for its own tenant only."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from lorikeet_testing.ledger import record_event

from control_plane.billing.usage import request_ids
from control_plane.billing.usage.actions import record_events
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import ApiEndpoint, UsageEvent
from control_plane.billing.usage.recovery import _ended
from control_plane.identity.audit.models import AuditEvent
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def fail(org: Any, version: Any, request_id: str, code: str = "adapter_overflow") -> bool:
    return record_event(
        request_id=request_id, tenant=org.tenant, model="support", endpoint=ApiEndpoint.CHAT, outcome="failed",
        created_at=datetime.now(UTC), counts=Counts(prompt_tokens=4), error_code=code, adapter=version.adapter,
        version=version,
    )  # fmt: skip


def shown(org: Any, version: Any) -> Any:
    path = f"adapters/{version.adapter.name}"
    whole = org.client().get(org.path(path)).json()["versions"][0]
    single = org.client().get(org.path(f"{path}/versions/{version.number}")).json()
    assert whole["overflowed_at"] == single["overflowed_at"]
    return single["overflowed_at"]


def overflows_audited() -> int:
    return AuditEvent.objects.filter(action="version.overflow").count()


def test_a_version_tells_that_it_overflowed(
    acme: Any, globex: Any, ready_version: Any, committing: Any, events: Any
) -> None:
    version, theirs = ready_version(acme), ready_version(globex)
    assert version.digest == theirs.digest
    with committing():
        fail(acme, version, "another", code="device_error")
    assert shown(acme, version) is None
    events.clear()
    with committing():
        fail(acme, version, "first")
    first = shown(acme, version)
    assert first is not None
    assert [event for _, event, _ in events] == ["usage.tick", "adapter.updated"]
    assert UsageEvent.objects.get(request_id="first").error_code == "adapter_overflow"
    with committing():
        fail(acme, version, "second")
    assert shown(acme, version) == first
    assert overflows_audited() == 1
    assert shown(globex, theirs) is None


def test_one_that_only_the_engines_journal_tells_of(acme: Any, ready_version: Any, committing: Any) -> None:
    version = ready_version(acme)
    request_id = request_ids.make(acme.principal(), ApiEndpoint.CHAT, streamed=False)
    record = pb.UsageRecord(
        request_id=request_id, tenant=str(acme.tenant.pk), adapter_digest=version.digest, outcome="failed",
        error_code="adapter_overflow", submitted_unix=time.time(),
    )  # fmt: skip
    with committing():
        assert record_events(_ended("gpu-1", [record])) == 1
    assert shown(acme, version) is not None
    assert UsageEvent.objects.get(request_id=request_id).error_code == "adapter_overflow"
