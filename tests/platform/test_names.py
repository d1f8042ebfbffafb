"""Characters that no name may contain, at every door by which a name comes in."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command

from control_plane.core.errors import LorikeetError
from control_plane.core.names import BadNameError, name_problem, require_name, without_refused
from control_plane.gateway.batches.files import upload_file
from control_plane.gateway.batches.models import StoredFile
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.accounts.addresses import InvalidAddressError, new_address
from control_plane.identity.accounts.mail import send
from control_plane.identity.accounts.models import SignIn, User
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.members.tasks import mail_invitation
from control_plane.identity.tenants.models import Invitation, Tenant
from control_plane.identity.tenants.roles import Role

ALLOWED = [
    "Acme", "Müller & Söhne", "Åse Ødegård", "株式会社\u3000例", "Société\u00a0X", "名\U000e0100", "team (eu) #1",
    "שלום", "مرحبا",
    "👩\u200d💻", "❤\ufe0f\u200d🔥", "1\ufe0f\u20e3", "🏳\ufe0f\u200d🌈", "ℹ\ufe0f", "Ⓜ\ufe0f", "\U0001faff",
    "می\u200cخواهم", "क\u094d\u200dष",
]  # fmt: skip
REFUSED = [
    *map(chr, [*range(0x20), *range(0x7F, 0xA0)]),
    *map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0x2028, 0x2029]),
    *map(chr, [0x00AD, 0x034F, 0x115F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0x2800, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0]),
    *map(chr, [0xD800, 0xDFFF, 0xE000, 0xFDD0, 0xFFFF, 0x0378, 0xE0041, 0xE0100, 0x10FFFF]),
]


@pytest.mark.parametrize("name", ALLOWED, ids=ascii)
def test_names_of_the_world(name: str) -> None:
    assert name_problem(name) is None
    assert require_name(name) == without_refused(name) == name


@pytest.mark.parametrize("character", REFUSED, ids=ascii)
def test_characters_that_are_refused(character: str) -> None:
    name = f"Ac{character}me"
    problem = name_problem(name)
    assert problem is not None
    assert f"U+{ord(character):04X}" in problem
    assert problem.isprintable()
    assert without_refused(name) == "Ac me"
    with pytest.raises(BadNameError):
        require_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "\u200da",
        "a\u200d",
        "👩\u200d",
        "👩\u200d\u200d💻",
        "é\u200dé",
        "a\u200d💻",
        "💻 \u200d💻",
        "❤\ufe0f\ufe0f",
        "\ufe0f",
        "я\ufe0f",
    ],
    ids=ascii,
)
def test_joiners_and_selectors_that_show_nothing(name: str) -> None:
    assert name_problem(name) is not None


SOME = ["a\u202eb", "a\x7fb", "a\r\nBcc: x@example.org", "a\u200bb"]


@pytest.mark.django_db
@pytest.mark.parametrize("name", SOME, ids=ascii)
def test_doors_of_the_api(acme: Any, globex: Any, name: str) -> None:
    set_operator(actor=SYSTEM, user=globex.users[Role.VIEWER], operator=True)
    operator = globex.client(Role.VIEWER)
    owner = acme.client()
    answers = [
        operator.post("/api/operator/tenants", {"slug": "new", "name": name, "owner": "o@new.example"}, format="json"),
        operator.patch("/api/operator/tenants/acme", {"name": name}, format="json"),
        owner.post(acme.path("keys"), {"name": name}, format="json"),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.content
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("invalid_request", "name")
        assert "A name cannot contain U+" in error["message"]
    assert not Tenant.objects.filter(slug="new").exists()
    assert not ApiKey.objects.exists()
    with pytest.raises(LorikeetError, match="cannot contain"):
        upload_file(acting=acme.principal(), name=name, content=[b"{}"], size=2)
    assert not StoredFile.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("name", SOME, ids=ascii)
def test_doors_of_the_command_line(db: None, name: str) -> None:
    with pytest.raises(CommandError, match="cannot contain"):
        call_command("create_tenant", "new", name=name, owner="o@new.example")
    with pytest.raises(CommandError, match="cannot contain"):
        call_command("create_tenant", "new\n", owner="o@new.example")
    with pytest.raises(CommandError, match="cannot contain"):
        call_command("create_tenant", "new", owner="o@new.example", key=name)
    assert not Tenant.objects.exists()
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "email",
    ['"a\x01"@example.org', '"a\x7f"@example.org', "a@ex\u00adample.org", "a@ex\u200dample.org", "a@\u202eexample.org"],
    ids=ascii,
)
def test_addresses(email: str) -> None:
    with pytest.raises(InvalidAddressError):
        new_address(email)


@pytest.mark.django_db
def test_an_invitation_of_a_tenant_that_was_named_before_is_mailed(acme: Any) -> None:
    Tenant.objects.filter(slug="acme").update(name="Acme\r\nBcc: x@example.org\u202e")
    acme.client().post(acme.path("invitations"), {"email": "new@acme.example", "role": "viewer"}, format="json")
    mail.outbox.clear()
    mail_invitation(str(Invitation.objects.get().pk))
    (message,) = mail.outbox
    assert message.subject == "Join Acme  Bcc: x@example.org  on Lorikeet"
    assert message.recipients() == ["new@acme.example"]


def test_a_subject_has_one_line(settings: Any) -> None:
    mail.outbox.clear()
    send("a@example.org", "a\nb\x85c", "text")
    assert mail.outbox[0].subject == "a b c"
    assert b"Subject: a b c\n" in mail.outbox[0].message().as_bytes()


@pytest.mark.django_db
def test_a_browser_that_calls_itself_something_odd(acme: Any) -> None:
    client = acme.client()
    client.get("/api/session", headers={"user-agent": "Fire\x85fox\x7f"})
    client.logout()
    body = {"email": "owner@acme.example", "password": "correct horse battery"}
    client.post("/api/session", body, format="json", headers={"user-agent": "Fire\x85fox\x7f" + "x" * 400})
    assert SignIn.objects.latest("created_at").user_agent == "Fire fox " + "x" * 291
