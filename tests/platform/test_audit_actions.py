"""Every write has its audit row, in its own transaction, and the ledgers only grow."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.versions import mark_version_failed, promote_version
from control_plane.fleet.placements.actions import restage_version, set_adapter_dtype
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.tenants.append_only import AppendOnlyError

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def actions_of(org: Any) -> list[str]:
    return list(AuditEvent.objects.for_tenant(org.tenant).order_by("id").values_list("action", flat=True))


def test_an_adapters_life(acme: Any, ready_version: Any, committing: Any, queue: Any) -> None:
    before = len(actions_of(acme))
    version = ready_version(acme)
    with committing():
        promote_version(acting=acme.principal(), version=version)
        restage_version(acting=acme.principal(), version=version)
        for dtype in ("fp8", "fp8"):
            set_adapter_dtype(acting=acme.principal(), version=version, dtype=dtype)
        archive_adapter(acting=acme.principal(), adapter=version.adapter)
    assert actions_of(acme)[before:] == [
        "upload.receive",
        "upload.validating",
        "adapter.create",
        "version.create",
        "upload.accepted",
        "version.staging",
        "version.ready",
        "version.promote",
        "version.promote",
        "version.restage",
        "version.set_dtype",
        "adapter.archive",
    ]
    promoted = AuditEvent.objects.filter(action="version.promote").order_by("id")
    assert [row.actor_kind for row in promoted] == ["system", "user"]
    assert promoted[1].target_label == "support@v1"


def test_keys_and_sessions(acme: Any, anonymous: Any) -> None:
    key, secret = acme.key("ci")
    revoke_key(acting=acme.principal(), key=key)
    revoke_key(acting=acme.principal(), key=key)
    rows = AuditEvent.objects.for_tenant(acme.tenant).filter(action__startswith="key.")
    assert sorted(row.action for row in rows) == ["key.create", "key.revoke"]
    assert secret.split("_", 2)[2] not in str([row.detail for row in rows])


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("api-settings", *({"refuse_unknown_fields": on, "never_store_responses": not on} for on in (True, False))),
        ("recording", {"enabled": True, "days": 3}, {"enabled": False, "days": 9}),
        ("slo", {"first_token_ms": 200, "target": 0.9}, {"inter_token_ms": 20}),
        ("origins", {"origins": ["https://a.example"]}, {"origins": ["https://b.example"]}),
        ("hub-models", {"enabled": True, "organizations": ["a"]}, {"enabled": False, "organizations": []}),
        ("/api/profile", {"name": "Ada"}, {"name": "Ada L."}),
        ("keys/{key}", {"name": "a", "scopes": ["infer"]}, {"name": "b", "scopes": ["view"]}),
        ("keys/{key}/limits", {"concurrency": 2}, {"requests_per_minute": 3}),
    ],
)  # fmt: skip
def test_a_change_names_what_was_before(acme: Any, path: str, first: Any, second: Any) -> None:
    client, key = acme.client(), acme.key("ci")[0]
    write = client.patch if path.endswith("{key}") else client.put
    address = path if path.startswith("/") else acme.path(path.format(key=key.pk))
    last = AuditEvent.objects.latest("id").pk
    for body in (first, second, second):
        assert write(address, body, format="json").status_code == 200
    one, two = (row.detail for row in AuditEvent.objects.filter(pk__gt=last).order_by("id"))
    written = {name: value for name, value in one.items() if name not in ("before", "prefix")}
    before = two["before"]
    assert before == (written if isinstance(before, dict) and before.keys() == written.keys() else written.popitem()[1])
    assert before != one["before"]


def test_row_names_the_request(acme: Any) -> None:
    answer = acme.client().post(acme.path("keys"), {"name": "k"}, format="json", HTTP_X_REQUEST_ID="trace-12345678")
    assert answer["X-Request-Id"] == "trace-12345678"
    assert AuditEvent.objects.get(action="key.create").request_id == "trace-12345678"


def test_ledger_only_grows(acme: Any) -> None:
    acme.key()
    row = AuditEvent.objects.order_by("-id")[0]
    with pytest.raises(AppendOnlyError):
        row.save()
    with pytest.raises(AppendOnlyError):
        row.delete()
    with pytest.raises(AppendOnlyError):
        AuditEvent.objects.update(action="x")
    with pytest.raises(AppendOnlyError):
        AuditEvent.objects.all().delete()


@pytest.mark.django_db(transaction=True)
def test_row_outside_a_transaction_is_refused(acme: Any) -> None:
    with pytest.raises(RuntimeError, match="atomic"):
        audit.record(SYSTEM, "tenant.create", acme.tenant, tenant=acme.tenant)


def test_failed_version_tells_why(acme: Any, upload: Any, committing: Any, events: Any) -> None:
    version = upload(acme).version
    error = {"code": "adapter_too_large", "message": "It does not fit.", "fix": "Use a lower rank."}
    with committing():
        assert mark_version_failed(version, error).error == error
    assert events[-1][1] == "adapter.updated"
    assert events[-1][2]["versions"][0]["error"] == error
