"""Roles, removal, leaving, invitations: who may do what to whom, and that links open nothing twice."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone
from rest_framework.test import APIClient

from control_plane.console.administration.actions import delete_tenant
from control_plane.core.config import current
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user
from control_plane.identity.accounts.models import User
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.members.tasks import mail_invitation
from control_plane.identity.tenants.models import Invitation, Membership
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
PASSWORD = "correct horse battery"


def role_of(org: Any, user: User) -> str | None:
    return Membership.objects.for_tenant(org.tenant).filter(user=user).values_list("role", flat=True).first()


def change(org: Any, acting: Role, subject: Role, role: str) -> Any:
    path = org.path(f"members/{org.users[subject].pk}")
    return org.client(acting).patch(path, {"role": role}, format="json")


def remove(org: Any, acting: Role, subject: Role) -> Any:
    return org.client(acting).delete(org.path(f"members/{org.users[subject].pk}"))


def invite(org: Any, email: str, role: str = "developer", acting: Role = Role.ADMIN) -> Any:
    return org.client(acting).post(org.path("invitations"), {"email": email, "role": role}, format="json")


def token_of(answer: Any) -> str:
    assert answer.status_code == 201, answer.content
    return str(answer.json()["link"].partition("#")[2])


def test_an_invitation_says_whether_it_is_mailed(acme: Any, settings: Any) -> None:
    assert invite(acme, "one@example.org").json()["mailed"] is False
    assert acme.client().get("/api/session").json()["sends_mail"] is False
    settings.LORIKEET = current().model_copy(update={"mail_url": "smtp://mail.example.org"})
    assert invite(acme, "two@example.org").json()["mailed"] is True
    assert acme.client().get("/api/session").json()["sends_mail"] is True


def accept(client: APIClient, token: str, **body: str) -> Any:
    return client.post("/api/invitations/accept", {"token": token, **body}, format="json")


def test_an_owner_gives_and_takes_roles(acme: Any) -> None:
    answer = change(acme, Role.OWNER, Role.DEVELOPER, "owner")
    assert (answer.status_code, answer.json()["role"]) == (200, "owner")
    assert change(acme, Role.DEVELOPER, Role.OWNER, "viewer").status_code == 200
    row = AuditEvent.objects.for_tenant(acme.tenant).filter(action="member.role")[0]
    assert row.detail == {"user": str(acme.users[Role.OWNER].pk), "role": "viewer", "before": "owner"}
    assert row.target_label == "owner@acme.example"


def test_an_admin_gives_no_more_than_their_own(acme: Any) -> None:
    assert change(acme, Role.ADMIN, Role.DEVELOPER, "admin").status_code == 200
    for refused in (change(acme, Role.ADMIN, Role.VIEWER, "owner"), change(acme, Role.ADMIN, Role.OWNER, "viewer")):
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "role_above_own")
    assert remove(acme, Role.ADMIN, Role.OWNER).status_code == 403
    assert invite(acme, "new@acme.example", "owner").json()["error"]["code"] == "role_above_own"
    assert remove(acme, Role.ADMIN, Role.VIEWER).status_code == 204
    assert role_of(acme, acme.users[Role.VIEWER]) is None


def test_the_last_owner_stays(acme: Any) -> None:
    for refused in (
        change(acme, Role.OWNER, Role.OWNER, "admin"),
        remove(acme, Role.OWNER, Role.OWNER),
        acme.client(Role.OWNER).delete(acme.path("membership")),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "last_owner")
    change(acme, Role.OWNER, Role.ADMIN, "owner")
    assert acme.client(Role.OWNER).delete(acme.path("membership")).status_code == 204
    assert role_of(acme, acme.users[Role.OWNER]) is None


def test_leaving(acme: Any) -> None:
    client = acme.client(Role.VIEWER)
    assert client.delete(acme.path("membership")).status_code == 204
    assert client.get(acme.path("members")).status_code == 404


def test_strangers_are_no_members(acme: Any, globex: Any) -> None:
    other = globex.users[Role.VIEWER]
    answer = acme.client().delete(acme.path(f"members/{other.pk}"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "member_not_found")
    assert role_of(globex, other) == "viewer"


def test_invited_without_an_account(acme: Any, anonymous: APIClient) -> None:
    made = invite(acme, "New@Acme.example")
    assert made["Cache-Control"] == "no-store"
    assert acme.client().get(acme.path("invitations")).json()[0]["email"] == "new@acme.example"
    assert "link" not in acme.client().get(acme.path("invitations")).json()[0]
    token = token_of(made)
    offer = anonymous.post("/api/invitations/read", {"token": token}, format="json").json()
    assert (offer["tenant"], offer["role"], offer["has_account"]) == ("acme", "developer", False)

    without = accept(anonymous, token)
    assert (without.status_code, without.json()["error"]["code"]) == (400, "password_required")
    weak = accept(anonymous, token, password="1234567890")
    assert (weak.status_code, weak.json()["error"]["code"]) == (400, "weak_password")
    session = accept(anonymous, token, name="New", password=PASSWORD).json()
    assert session["authenticated"]
    assert [(tenant["slug"], tenant["role"]) for tenant in session["tenants"]] == [("acme", "developer")]
    assert anonymous.get(acme.path("adapters")).status_code == 200
    user = User.objects.get(email="new@acme.example")
    assert user.email_verified_at is None

    again = accept(APIClient(), token, password=PASSWORD)
    assert (again.status_code, again.json()["error"]["code"]) == (404, "invitation_invalid")
    assert acme.client().get(acme.path("invitations")).json() == []
    actions = [row.action for row in AuditEvent.objects.order_by("id")][-4:]
    assert actions == ["user.create", "invitation.accept", "member.add", "session.create"]


def test_invited_with_an_account(acme: Any, globex: Any) -> None:
    ours = globex.users[Role.VIEWER]
    token = token_of(invite(acme, ours.email, "admin"))
    refused = accept(APIClient(), token, password=PASSWORD)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "account_exists")
    wrong = accept(globex.client(Role.OWNER), token)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "invitation_for_other")
    session = accept(globex.client(Role.VIEWER), token).json()
    assert {tenant["slug"]: tenant["role"] for tenant in session["tenants"]} == {"acme": "admin", "globex": "viewer"}


def test_a_member_is_not_invited_and_keeps_the_role(acme: Any) -> None:
    refused = invite(acme, "viewer@acme.example")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_member")
    user = create_user(actor=SYSTEM, email="late@acme.example", password=PASSWORD)
    token = token_of(invite(acme, user.email, "viewer"))
    Membership.objects.create(tenant=acme.tenant, user=user, role=Role.OWNER)
    client = APIClient()
    client.force_login(user)
    assert accept(client, token).status_code == 200
    assert role_of(acme, user) == "owner"


@pytest.mark.parametrize("way", ["revoked", "replaced", "expired", "forged"])
def test_links_that_open_nothing(acme: Any, way: str) -> None:
    answer = invite(acme, "new@acme.example")
    token = token_of(answer)
    if way == "revoked":
        assert acme.client().delete(acme.path(f"invitations/{answer.json()['id']}")).status_code == 204
    elif way == "replaced":
        invite(acme, "new@acme.example", "viewer")
    elif way == "expired":
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    else:
        token = token[:-4] + "AAAA"
    for path, more in (("/api/invitations/read", {}), ("/api/invitations/accept", {"password": PASSWORD})):
        refused = APIClient().post(path, {"token": token, **more}, format="json")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "invitation_invalid")
    assert not User.objects.filter(email="new@acme.example").exists()


@pytest.mark.parametrize("token", ["", "x", ".", "é.é", "\x00", "0" * 32 + "."])
def test_nonsense_tokens(db: None, token: str) -> None:
    answer = APIClient().post("/api/invitations/read", {"token": token}, format="json")
    assert answer.status_code in (400, 404)


def test_an_admin_does_not_revoke_what_they_could_not_give(acme: Any) -> None:
    made = invite(acme, "boss@acme.example", "owner", acting=Role.OWNER).json()
    assert acme.client(Role.ADMIN).delete(acme.path(f"invitations/{made['id']}")).status_code == 403


def test_the_mail(acme: Any, committing: Any, queue: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"public_url": "https://lorikeet.example/"})
    with committing():
        made = invite(acme, "new@acme.example").json()
    assert queue.names() == ["mail_invitation"]
    assert made["link"].partition("#")[2] not in str(queue.calls)
    mail_invitation(made["id"])
    (message,) = mail.outbox
    assert message.to == ["new@acme.example"]
    found = re.search(r"https://\S+", message.body)
    assert found is not None and found[0] == made["link"]
    Invitation.objects.update(revoked_at=timezone.now())
    mail_invitation(made["id"])
    assert len(mail.outbox) == 1


def test_an_address_of_the_greatest_length(acme: Any) -> None:
    email = f"{'a' * 62}@{'.'.join(['b' * 61] * 3)}.io"
    assert len(email) == 251
    answer = accept(APIClient(), token_of(invite(acme, email)), password=PASSWORD)
    assert answer.json()["user"]["email"] == email
    assert AuditEvent.objects.filter(target_label=email, action="member.add").exists()


@pytest.mark.parametrize("way", ["remove", "viewer", "developer", "admin"])
def test_invitations_of_whoever_could_not_send_them_now_end(acme: Any, way: str) -> None:
    change(acme, Role.OWNER, Role.ADMIN, "owner")
    for role in ("owner", "viewer"):
        invite(acme, f"{role}@example.org", role)
    invite(acme, "other@example.org", "owner", acting=Role.OWNER)
    answer = remove(acme, Role.OWNER, Role.ADMIN) if way == "remove" else change(acme, Role.OWNER, Role.ADMIN, way)
    assert answer.status_code in (200, 204)
    left = set(Invitation.objects.filter(revoked_at=None).values_list("email", flat=True))
    assert left == {"other@example.org"} | ({"viewer@example.org"} if way == "admin" else set())
    rows = AuditEvent.objects.filter(action="invitation.revoke", actor_label="owner@acme.example")
    assert set(rows.values_list("target_label", flat=True)) == {"owner@example.org", "viewer@example.org"} - left


def test_an_invitation_from_the_moment_of_a_tenants_deletion(acme: Any) -> None:
    """One that was written after the others were revoked, as the tenant was locked."""
    token = token_of(invite(acme, "late@example.org"))
    delete_tenant(actor=SYSTEM, tenant=acme.tenant, confirm="acme")
    Invitation.objects.update(revoked_at=None)
    refused = accept(APIClient(), token, password=PASSWORD)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "invitation_invalid")
    assert not Membership.objects.filter(tenant=acme.tenant).exists()
