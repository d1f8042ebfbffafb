"""Two that make the same thing at once: both go well, or one is told why not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.evaluations.actions import SetNotFoundError, create_set, delete_set
from control_plane.adapters.registry import archiving, locks, storage_limits, versions
from control_plane.adapters.registry.models import Adapter, AdapterVersion, Alias, EvaluationMetric
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job
from control_plane.billing.slo.actions import set_objective
from control_plane.console.administration.actions import delete_tenant
from control_plane.console.webhooks.events import publish_quota
from control_plane.console.webhooks.models import Delivery, Endpoint
from control_plane.core.db import is_duplicate
from control_plane.core.http.errors import exception_handler
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts import sign_ins
from control_plane.identity.accounts.actions import create_user
from control_plane.identity.accounts.identities import user_of
from control_plane.identity.accounts.models import Identity, SignIn, User
from control_plane.identity.accounts.oidc import Claims
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.members.invitations import accept_as, invitation_link, invite, open_invitation
from control_plane.identity.members.memberships import remove_member
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.identity.tenants.roles import Role


def received(org: Any, seed: int) -> str:
    files = [SimpleUploadedFile(file, content) for file, content in adapter_files(seed=seed).items()]
    answer = org.client().post(org.path("uploads"), {"name": "fresh", "files": files}, format="multipart")
    assert answer.status_code == 202
    return str(answer.json()["id"])


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("host", "queue", "in_process")
def test_two_uploads_of_a_new_name(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 2):
        received(acme, seed)
    claimed = iter([uploads.claim_next(), uploads.claim_next()])
    monkeypatch.setattr(uploads, "claim_next", claimed.__next__)
    while_another_commits(validation_job.validate_next, validation_job.validate_next)
    adapter = Adapter.objects.get(name="fresh")
    assert sorted(adapter.versions.values_list("number", flat=True)) == [1, 2]


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_setting_is_set_twice_and_a_set_deleted_twice(acme: Any, queue: Any) -> None:
    """The first value of a setting, too, has one row in the audit log, and what is gone is not found."""
    set_first = lambda: set_objective(acting=acme.principal(), first_token_ms=9, inter_token_ms=None, target=0.9)  # noqa: E731
    while_another_commits(set_first, set_first)
    assert AuditEvent.objects.filter(action="slo.update").count() == 1
    items = b'{"prompt": "1 + 1 =", "expected": "2"}'
    create_set(acting=acme.principal(), name="sums", metric=EvaluationMetric.EXACT, max_tokens=4, content=items)

    def delete() -> None:
        with pytest.raises(SetNotFoundError):
            delete_set(acting=acme.principal(), name="sums")

    while_another_commits(lambda: delete_set(acting=acme.principal(), name="sums"), delete)


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_two_workers_publish_one_occasion(acme: Any, queue: Any) -> None:
    Endpoint.objects.create(tenant=acme.tenant, url="https://example.org")
    tell = lambda: publish_quota(acme.tenant, limit="tokens", period="2026-05", used=9, allowed=10)  # noqa: E731
    while_another_commits(tell, tell)
    assert Delivery.objects.count() == 1


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_two_first_versions_become_ready(acme: Any, upload: Any) -> None:
    one, two = (upload(acme, "fresh", seed=seed).version for seed in (1, 2))
    while_another_commits(lambda: versions.mark_version_ready(one), lambda: versions.mark_version_ready(two))
    assert Alias.objects.get(adapter__name="fresh").version == one
    assert set(AdapterVersion.objects.values_list("state", flat=True)) == {"ready"}


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_rows_may_refer_to_an_adapter_and_a_version_that_are_locked(acme: Any, upload: Any) -> None:
    """Their transactions may have locked the tenant, which the holder of the lock needs next."""
    version = upload(acme).version

    def refer() -> None:
        Alias.objects.create(tenant=acme.tenant, adapter=version.adapter, name="try", version=version)
        connection.close()

    with ThreadPoolExecutor(1) as thread, transaction.atomic():
        locks.lock_version(version)
        archiving._lock_adapter(Adapter.objects.all())
        thread.submit(refer).result(5)


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("host", "queue", "in_process")
def test_a_version_is_restored_while_its_content_is_uploaded_again(
    acme: Any, upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each locks the tenant first, then the adapter: in another order they would wait for each other."""
    version = upload(acme, "fresh", seed=1).version
    archiving.archive_version(acting=acme.principal(), version=version)
    received(acme, 1)
    claimed = uploads.claim_next()
    monkeypatch.setattr(uploads, "claim_next", lambda: claimed)

    def restore() -> None:
        with pytest.raises(archiving.NotArchivedError):
            archiving.restore_version(acting=acme.principal(), version=version)

    while_another_commits(lambda: storage_limits.lock_tenant(acme.tenant), restore, validation_job.validate_next)
    assert AdapterVersion.objects.get().state != "archived", "the upload has brought it back"


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_two_tabs_sign_in_for_the_first_time(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_domains": "acme.example"})
    claims = Claims("https://id.example", "1", "ada@acme.example", True, "Ada")
    while_another_commits(lambda: user_of(claims), lambda: user_of(claims))
    assert User.objects.get().identities.count() == Identity.objects.count() == 1


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_session_ends_once(acme: Any) -> None:
    """Signed out in its browser while it is signed out elsewhere."""
    client, owner = acme.client(), acme.users[Role.OWNER]
    key = client.cookies["lorikeet_session"].value
    SignIn.objects.create(user=owner, session_key=key, last_seen_at=timezone.now())
    answer = while_another_commits(
        lambda: sign_ins.end_others(owner, None), lambda: client.delete("/api/session").status_code
    )
    assert answer == 200 and not client.get("/api/session").json()["authenticated"]
    rows = AuditEvent.objects.filter(action__startswith="session.").values_list("action", flat=True)
    assert list(rows) == ["session.end_others"]


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ends", ["the sender's membership", "the tenant"])
def test_an_invitation_is_accepted_while_its_end_waits(acme: Any, ends: str) -> None:
    invitee = create_user(actor=SYSTEM, email="late@example.org", password=None)
    invitation = invite(acting=acme.principal(Role.ADMIN), email=invitee.email, role=Role.VIEWER)
    token = invitation_link(invitation).partition("#")[2]
    sender = acme.users[Role.ADMIN]

    def end() -> None:
        if ends == "the tenant":
            delete_tenant(actor=SYSTEM, tenant=acme.tenant, confirm="acme")
        else:
            remove_member(acting=acme.principal(Role.OWNER), user_id=sender.pk)

    while_another_commits(lambda: open_invitation(token, lock=True), end, lambda: accept_as(token=token, user=invitee))
    members = Membership.objects.filter(tenant=acme.tenant, user__in=[invitee, sender])
    assert {row.user for row in members} == (set() if ends == "the tenant" else {invitee})


@pytest.mark.django_db
def test_what_nobody_foresaw_is_a_conflict() -> None:
    """Not an internal error, and no other broken rule of the tables."""
    Tenant.objects.create(slug="acme", name="Acme")
    with pytest.raises(IntegrityError) as twice:
        Tenant.objects.create(slug="acme", name="Acme")
    answer = exception_handler(twice.value, {})
    assert answer is not None and answer.status_code == 409
    assert answer.data["error"]["code"] == "conflict" and answer.data["error"]["fix"]
    assert not is_duplicate(IntegrityError("NOT NULL constraint failed"))
