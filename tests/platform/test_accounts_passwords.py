"""Changing a password, and the link for a forgotten one."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from rest_framework.test import APIClient

from control_plane.identity.accounts import mail as mails
from control_plane.identity.accounts import passwords
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.accounts.tasks import mail_reset_link
from control_plane.identity.audit.models import AuditEvent

pytestmark = pytest.mark.django_db
PASSWORD, NEW = "correct horse battery", "a wholly new pass phrase"


def signed_in(email: str = "owner@acme.example", password: str = PASSWORD) -> APIClient:
    client = APIClient()
    assert client.post("/api/session", {"email": email, "password": password}, format="json").status_code == 200
    return client


def change(client: APIClient, current: str, new: str) -> Any:
    return client.post("/api/password", {"current_password": current, "password": new}, format="json")


def reset(token: str, password: str = NEW) -> Any:
    return APIClient().post("/api/password/reset", {"token": token, "password": password}, format="json")


def test_change_ends_other_sessions(acme: Any) -> None:
    here, elsewhere = signed_in(), signed_in()
    before = here.cookies["lorikeet_session"].value
    assert change(here, PASSWORD, NEW).json()["authenticated"] is True
    assert here.cookies["lorikeet_session"].value != before
    assert here.get("/api/session").json()["authenticated"] is True
    assert elsewhere.get("/api/session").json()["authenticated"] is False
    signed_in(password=NEW)
    assert AuditEvent.objects.filter(action="password.change", actor_label="owner@acme.example").count() == 1


def test_a_change_that_a_reset_overtakes(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knows the old password must not replace the new one while theirs is hashed."""
    thief, owner = signed_in(), User.objects.get(email="owner@acme.example")
    real, others = passwords.hashed, ["another pass phrase 7"]

    def hash_slowly(password: str, user: User) -> str:
        if others:
            assert reset(reset_token(User.objects.get(pk=owner.pk)), others.pop()).status_code == 204
        return real(password, user)

    monkeypatch.setattr(passwords, "hashed", hash_slowly)
    refused = change(thief, PASSWORD, NEW)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "wrong_password")
    assert not thief.get("/api/session").json()["authenticated"]
    assert User.objects.get(pk=owner.pk).check_password("another pass phrase 7")


def test_change_is_refused(acme: Any) -> None:
    client = signed_in()
    wrong = change(client, "nope", NEW)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "current_password")
    weak = change(client, PASSWORD, "password")
    assert (weak.status_code, weak.json()["error"]["code"]) == (400, "weak_password")
    assert change(APIClient(), PASSWORD, NEW).status_code == 401
    _, key = acme.key()
    keyed = APIClient()
    keyed.credentials(HTTP_AUTHORIZATION=f"Bearer {key}")
    assert change(keyed, PASSWORD, NEW).status_code == 401


def test_guesses_at_the_present_password_are_counted(acme: Any) -> None:
    client = signed_in()
    assert [change(client, "nope", NEW).status_code for _ in range(11)][-1] == 429


def test_forgotten(acme: Any, queue: Any, committing: Any) -> None:
    with committing():
        known = APIClient().post("/api/password/forgot", {"email": "Owner@acme.example"}, format="json")
        unknown = APIClient().post("/api/password/forgot", {"email": "nobody@acme.example"}, format="json")
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content) == (202, b"")
    session = signed_in()
    for _, (email,) in queue.calls:
        mail_reset_link(email)
    (message,) = mail.outbox
    token = message.body.partition("reset-password#")[2].split()[0]
    assert reset(token).status_code == 204
    assert session.get("/api/session").json()["authenticated"] is False
    signed_in(password=NEW)
    again = reset(token, "yet another pass phrase")
    assert (again.status_code, again.json()["error"]["code"]) == (400, "reset_link_invalid")


def test_reset_proves_the_address(acme: Any) -> None:
    User.objects.update(email_verified_at=None)
    user = User.objects.get(email="owner@acme.example")
    assert reset(reset_token(user), "short").json()["error"]["code"] == "weak_password"
    assert reset(reset_token(user)).status_code == 204
    user.refresh_from_db()
    assert user.email_verified_at is not None


def test_old_and_foreign_tokens(acme: Any, settings: Any) -> None:
    owner, other = User.objects.get(email="owner@acme.example"), User.objects.get(email="viewer@acme.example")
    proof = reset_token(owner).partition(".")[2]
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert reset(reset_token(owner)).status_code == 400
    settings.PASSWORD_RESET_TIMEOUT = 3600
    for token in (f"{other.pk.hex}.{proof}", f".{proof}", "x", "\x00.", f"{owner.pk.hex}."):
        assert reset(token).status_code == 400


def test_passwords_can_be_off(acme: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"password_login": False})
    body = {"email": "owner@acme.example", "password": PASSWORD}
    refused = APIClient().post("/api/session", body, format="json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "password_login_off")
    assert APIClient().post("/api/password/forgot", {"email": "a@b.example"}, format="json").status_code == 403
    assert APIClient().get("/api/session").json()["password_login"] is False


def test_mails_without_a_server_are_private_files(settings: Any, tmp_path: Path) -> None:
    settings.EMAIL_BACKEND = "control_plane.identity.accounts.mail.FolderBackend"
    mails.send("ada@example.org", "Hello", "One.", "Two.")
    (file,) = (tmp_path / "mail").iterdir()
    assert "One.\n\nTwo." in file.read_text()
    assert stat.S_IMODE((tmp_path / "mail").stat().st_mode) == 0o700
