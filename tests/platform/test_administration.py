"""What operators do with tenants: what each does to keys, members and adapters, and that the tenant's log says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.clients import keyed
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.ledger import record_event
from lorikeet_testing.platform_fixtures import error_of, signed_in
from lorikeet_testing.seed import add_version
from rest_framework.test import APIClient

from control_plane.adapters.evaluations.models import Evaluation
from control_plane.adapters.registry.models import Adapter, AdapterVersion, VersionState
from control_plane.adapters.uploads.models import Upload
from control_plane.billing.refusals.actions import Count, Reason, add
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import ApiEndpoint, UsageEvent
from control_plane.billing.usage.sums import today
from control_plane.console.administration import actions
from control_plane.console.administration.actions import archive_of_deleted
from control_plane.console.administration.tasks import clear_deleted
from control_plane.gateway.batches import files
from control_plane.gateway.batches.actions import create_batch
from control_plane.gateway.batches.models import Batch, StoredFile
from control_plane.gateway.conversations import actions as conversations
from control_plane.gateway.conversations.models import StoredResponse
from control_plane.gateway.transcripts.models import Transcript
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import TenantSuspendedError
from control_plane.identity.accounts.models import Identity, SignIn
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.origins.actions import set_origins
from control_plane.identity.origins.models import AllowedOrigin
from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def ask(client: APIClient, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    return getattr(client, method)(f"/api/operator/{path}", body, format="json")


def listed(client: APIClient, query: str = "") -> Any:
    answer = client.get(f"/api/operator/tenants?{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def slugs(client: APIClient, query: str = "") -> list[str]:
    return [row["slug"] for row in listed(client, query)["results"]]


def last_row(action: str) -> AuditEvent:
    return AuditEvent.objects.filter(action=action).latest("id")


# -- the list ----------------------------------------------------------------------------------------------------------


def test_a_thousand_tenants_come_in_pages(operator: APIClient, django_assert_max_num_queries: Any) -> None:
    Tenant.objects.bulk_create(Tenant(slug=f"t{n:04}", name=f"Tenant {n}", weight=1 + n) for n in range(1000))
    operator.get("/api/session")  # notes where the session is used from, once in five minutes
    with django_assert_max_num_queries(10):
        page = listed(operator, "limit=50&offset=950&search=t0")
    assert (page["total"], len(page["results"])) == (1000, 50)
    assert slugs(operator, "search=TENANT 99&sort=-weight&limit=2") == ["t0999", "t0998"]
    assert slugs(operator, "search=nobody") == []
    assert operator.get("/api/operator/tenants?sort=secret").status_code == 400
    assert len(operator.get("/api/operator/tenants?limit=50").content) < 60_000


def test_each_is_told_what_it_used(acme: Any, operator: APIClient) -> None:
    key, _ = acme.key()
    version = add_version(acme.tenant, "support", 1)
    for number, outcome in enumerate(("finished", "finished", "failed", "refused")):
        record_event(request_id=f"r{number}", tenant=acme.tenant, model="support", outcome=outcome,
                     endpoint="completions", created_at=version.created_at, counts=Counts())  # fmt: skip
    aggregate()
    minute = int(version.created_at.timestamp() // 60)
    for status, count in ((429, 5), (503, 3)):
        add({Reason(acme.tenant.pk, key.pk, "completions", status, "x", "", minute): Count(count, minute * 60.0)})
    (row,) = listed(operator, "search=acme")["results"]
    assert row["usage"] == {"days": 30, "requests": 4 + 5 + 3, "failed": 1 + 3, "refused": 1 + 5, "tokens": 0}
    assert (row["members"], row["adapters"], row["keys"], row["state"]) == (4, 1, 1, "active")
    assert slugs(operator, "sort=-requests")[0] == "acme"
    report = ask(operator, "get", f"report?from={today()}&to={today()}").json()
    assert (report["outcomes"]["failed"], report["outcomes"]["refused"]) == (4, 6)
    assert [(r["tenant"], r["failed"], r["refused"]) for r in report["by_tenant"]] == [("acme", 4, 6)]


# -- their lives -------------------------------------------------------------------------------------------------------


def test_create_invites_the_owner(operator: APIClient, queue: Any, committing: Any) -> None:
    with committing():
        answer = ask(operator, "post", "tenants", {"slug": "new", "name": "N🦜w", "owner": "Ada@new.example"})
    assert answer.status_code == 201, answer.content
    assert answer["Cache-Control"] == "no-store"
    assert "#" in answer.json()["link"]
    invitation = Invitation.objects.get(tenant__slug="new")
    assert (invitation.email, invitation.role) == ("ada@new.example", "owner")
    assert "mail_invitation" in queue.names()
    assert "new" in slugs(operator)
    again = ask(operator, "post", "tenants", {"slug": "new", "name": "N", "owner": "a@new.example"})
    assert error_of(again) == (409, "tenant_exists")
    for bad in ({"slug": "No!"}, {"owner": "nobody"}, {"name": ""}):
        body = {"slug": "other", "name": "O", "owner": "a@new.example", **bad}
        assert ask(operator, "post", "tenants", body).status_code == 400


def test_rename_keeps_the_short_name(acme: Any, operator: APIClient) -> None:
    answer = ask(operator, "patch", "tenants/acme", {"name": "شركة أكمي 🏭"})
    assert (answer.json()["name"], answer.json()["slug"]) == ("شركة أكمي 🏭", "acme")
    assert last_row("tenant.rename").detail["name"] == "شركة أكمي 🏭"
    assert acme.client().get(acme.path("overview")).status_code == 200


def test_a_suspended_tenant_only_reads(acme: Any, operator: APIClient, committing: Any) -> None:
    _, secret = acme.key()
    with committing():
        answer = ask(operator, "put", "tenants/acme/suspension", {"reason": "Unpaid since May."})
    assert (answer.status_code, answer.json()["state"]) == (200, "suspended")
    assert error_of(keyed(secret).get(acme.path("adapters"))) == (403, "tenant_suspended")
    owner = acme.client(Role.OWNER)
    refused = owner.post(acme.path("keys"), {"name": "more"}, format="json")
    assert error_of(refused) == (403, "tenant_suspended")
    assert "Unpaid since May" in refused.json()["error"]["message"]
    assert owner.get(acme.path("keys")).status_code == 200
    own = next(tenant for tenant in owner.get("/api/session").json()["tenants"] if tenant["slug"] == "acme")
    assert (own["suspended_for"], "infer" in own["capabilities"]) == ("Unpaid since May.", False)
    assert slugs(operator, "state=suspended") == ["acme"]
    assert "acme" not in slugs(operator, "state=active")
    row = last_row("tenant.suspend")
    assert (row.tenant, row.actor_label) == (acme.tenant, "ops@example.org")

    assert ask(operator, "delete", "tenants/acme/suspension").json()["state"] == "active"
    assert keyed(secret).get(acme.path("adapters")).status_code == 200
    assert owner.post(acme.path("keys"), {"name": "more"}, format="json").status_code == 201


def test_deletion_is_confirmed_and_leaves_the_books(
    acme: Any, operator: APIClient, furnished: Any, committing: Any, queue: Any
) -> None:
    key, secret = acme.key()
    on_its_way = acme.principal()
    file = files.upload_file(acting=on_its_way, name="x.jsonl", content=[b"{}"], size=2)
    waiting = Upload.objects.create(tenant=acme.tenant, adapter_name="x", bytes=0, files=[], folder="/nowhere/x")
    evaluation = Evaluation.objects.create(tenant=acme.tenant, set_name="x", api_key=key, upload=waiting)
    conversations.store(acme.tenant, "resp_x", input_items="[]", body="{}")
    set_origins(acting=acme.principal(), origins=["https://app.example.org"])
    assert error_of(operator.delete("/api/operator/tenants/acme")) == (400, "not_confirmed")
    assert error_of(operator.delete("/api/operator/tenants/acme?confirm=globex")) == (400, "not_confirmed")
    with committing():
        answer = operator.delete("/api/operator/tenants/acme?confirm=acme")
    assert (answer.status_code, answer.json()["state"]) == (200, "deleted")
    assert keyed(secret).get(acme.path("adapters")).status_code == 401
    assert acme.client().get(acme.path("adapters")).status_code == 404
    assert not Membership.objects.for_tenant(acme.tenant).exists()
    assert not ApiKey.objects.for_tenant(acme.tenant).filter(revoked_at=None).exists()
    for texts in (Transcript, StoredFile, StoredResponse, AllowedOrigin):
        assert not texts.objects.for_tenant(acme.tenant).exists()
    writes: list[Callable[[], object]] = [
        lambda: files.upload_file(acting=on_its_way, name="x.jsonl", content=[b"{}"], size=2),
        lambda: create_batch(acting=on_its_way, api_key=key, input_file=str(file), endpoint=ApiEndpoint.CHAT),
    ]
    for write in writes:
        with pytest.raises(TenantSuspendedError):
            write()
    assert not Invitation.objects.for_tenant(acme.tenant).filter(accepted_at=None, revoked_at=None).exists()
    assert last_row("tenant.delete").detail["keys"] == 2
    assert "clear_deleted" in queue.names()

    with committing():
        clear_deleted()
    assert archive_of_deleted() == 0
    assert Upload.objects.get(pk=waiting.pk).state == "cancelled"
    evaluation.refresh_from_db()
    assert evaluation.state == "cancelled" and evaluation.ended_at is not None
    assert not Adapter.objects.for_tenant(acme.tenant).filter(archived_at=None).exists()
    assert set(AdapterVersion.objects.for_tenant(acme.tenant).values_list("state", flat=True)) == {
        VersionState.ARCHIVED
    }

    assert "acme" not in slugs(operator)
    assert slugs(operator, "state=deleted") == ["acme"]
    assert ask(operator, "get", "tenants/acme/statement").status_code == 200
    for method, path, body in (
        ("put", "tenants/acme/suspension", {"reason": "x"}),
        ("delete", "tenants/acme/suspension", None),
        ("patch", "tenants/acme", {"name": "x"}),
        ("post", "tenants/acme/invitations", {"email": "a@b.example", "role": "owner"}),
        ("put", "tenants/acme/objectives", {}),
        ("delete", "tenants/acme?confirm=acme", None),
    ):
        assert error_of(ask(operator, method, path, body)) == (409, "tenant_deleted"), path
    again = ask(operator, "post", "tenants", {"slug": "acme", "name": "A", "owner": "a@new.example"})
    assert error_of(again) == (409, "tenant_exists")


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_tenant_is_deleted_while_a_line_of_its_batch_ends(acme: Any) -> None:
    """The deletion waits for the batch's row, whose worker then writes to the ledger: neither ends in a deadlock."""
    key, _ = acme.key()
    file = files.upload_file(acting=acme.principal(), name="x.jsonl", content=[b"{}"], size=2)
    create_batch(acting=acme.principal(), api_key=key, input_file=str(file), endpoint=ApiEndpoint.CHAT)
    while_another_commits(
        lambda: Batch.objects.select_for_update().get(),
        lambda: actions.delete_tenant(actor=SYSTEM, tenant=acme.tenant, confirm="acme"),
        lambda: record_event(
            request_id="late", tenant=acme.tenant, model="m", endpoint="chat.completions", outcome="finished",
            created_at=timezone.now(), counts=Counts(),
        ),
    )  # fmt: skip
    assert not Batch.objects.exists() and UsageEvent.objects.get().request_id == "late"


# -- one tenant --------------------------------------------------------------------------------------------------------


def test_a_look_is_in_the_tenants_log_once_an_hour(acme: Any, operator: APIClient) -> None:
    for _ in range(3):
        detail = ask(operator, "get", "tenants/acme").json()
    people = ask(operator, "get", "tenants/acme/members?search=OWNER&limit=1").json()
    assert ([person["email"] for person in people["results"]], people["total"]) == (["owner@acme.example"], 1)
    assert detail["invitation_count"] == len(detail["invitations"]) == 0
    assert (detail["weight"], detail["objectives"]["first_token_ms"]) == (1.0, None)
    looks = AuditEvent.objects.filter(action="tenant.open", tenant=acme.tenant)
    assert [row.actor_label for row in looks] == ["ops@example.org"]
    shown = acme.client(Role.ADMIN).get(acme.path("audit")).json()["events"]
    assert shown[0]["action"] == "tenant.open"
    AuditEvent.objects.filter(pk=looks[0].pk)._raw_delete(using="default")  # type: ignore[attr-defined]
    assert ask(operator, "get", "tenants/acme").status_code == 200
    assert AuditEvent.objects.filter(action="tenant.open", tenant=acme.tenant).count() == 1


def test_links_to_the_provider_are_shown_and_removed(acme: Any, globex: Any, operator: APIClient) -> None:
    owner = acme.users[Role.OWNER]
    link = Identity.objects.create(user=owner, issuer="https://id.example.org", subject="p1")
    browser = signed_in(owner)
    key = browser.cookies["lorikeet_session"].value
    SignIn.objects.create(user=owner, session_key=key, last_seen_at=timezone.now())
    (person,) = ask(operator, "get", "tenants/acme/members?search=owner").json()["results"]
    assert [one["subject"] for one in person["identities"]] == ["p1"]
    path = f"members/{owner.pk}/identities/{link.pk}"
    assert ask(operator, "delete", f"tenants/globex/{path}").status_code == 404
    guest = acme.users[Role.VIEWER]
    assert ask(operator, "delete", f"tenants/acme/members/{guest.pk}/identities/{link.pk}").status_code == 404
    assert ask(operator, "delete", f"tenants/acme/{path}").status_code == 204
    assert not Identity.objects.exists() and not browser.get("/api/session").json()["authenticated"]
    assert last_row("identity.unlink").actor_label == "ops@example.org"
    assert last_row("member.unlink-identity").tenant == acme.tenant


def test_what_is_decided_about_it(acme: Any, operator: APIClient) -> None:
    assert ask(operator, "put", "tenants/acme/weight", {"weight": 2.5}).status_code == 200
    assert ask(operator, "put", "tenants/acme/objectives", {"first_token_ms": 300}).status_code == 200
    assert ask(operator, "put", "tenants/acme/limits", {"concurrency": 7}).status_code == 200
    invited = ask(operator, "post", "tenants/acme/invitations", {"email": "new@acme.example", "role": "owner"})
    assert (invited.status_code, invited["Cache-Control"]) == (201, "no-store")
    detail = ask(operator, "get", "tenants/acme").json()
    assert (detail["weight"], detail["objectives"]["first_token_ms"]) == (2.5, 300)
    assert [one["email"] for one in detail["invitations"]] == ["new@acme.example"]
    assert last_row("slo.update").actor_label == "ops@example.org"


def test_its_adapters_come_in_pages(acme: Any, globex: Any, operator: APIClient) -> None:
    for number in range(5):
        add_version(acme.tenant, f"a{number}", 1)
    add_version(acme.tenant, "a1", 2)
    add_version(globex.tenant, "a9", 1)
    page = ask(operator, "get", "tenants/acme/adapters?limit=2&offset=1").json()
    assert (page["total"], [(row["name"], row["version"]) for row in page["results"]]) == (5, [("a1", 2), ("a2", 1)])
    assert ask(operator, "get", "tenants/acme/adapters?search=A4").json()["total"] == 1


def test_nothing_of_it_works_for_others(acme: Any, globex: Any) -> None:
    _, secret = acme.key()
    for client in (keyed(secret), acme.client(Role.OWNER)):
        for method, path in (("delete", "tenants/acme?confirm=acme"), ("put", "tenants/globex/suspension")):
            assert error_of(ask(client, method, path, {"reason": "x"})) == (403, "operator_only")
    assert Tenant.objects.filter(suspended_at__isnull=False).count() == 0


def test_no_write_without_a_csrf_token(acme: Any, operator: APIClient, globex: Any) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(globex.users[Role.VIEWER])
    refused = client.put("/api/operator/tenants/acme/suspension", {"reason": "x"}, format="json")
    assert error_of(refused) == (403, "csrf_failed")


def test_the_days_of_usage_end(acme: Any, operator: APIClient) -> None:
    version = add_version(acme.tenant, "support", 1)
    old = version.created_at - timedelta(days=31)
    record_event(
        request_id="r",
        tenant=acme.tenant,
        model="m",
        endpoint="completions",
        outcome="failed",
        created_at=old,
        counts=Counts(),
    )
    aggregate()
    assert listed(operator, "search=acme")["results"][0]["usage"]["failed"] == 0
