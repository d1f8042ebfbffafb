"""An account goes to whoever reads its address: not to whoever made it first, wrote it differently or was waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core import signing
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import settings as drawing
from hypothesis import strategies as st
from lorikeet_testing.oidc_provider import CLIENT_ID
from rest_framework.test import APIClient

from control_plane.core.errors import LorikeetError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.accounts.addresses import InvalidAddressError, new_address, normalise_email
from control_plane.identity.accounts.identities import user_of
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.oidc import Claims, ProviderMetadata
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import Role

VICTIM, CHOSEN, NEW = "victim@corp.example", "chosen by the attacker", "a wholly new pass phrase"
needs_database = pytest.mark.django_db


def squat(org: Any, email: str = VICTIM) -> APIClient:
    """An administrator invites the address, opens the link in the answer and sets the password."""
    body = {"email": email, "role": "developer"}
    made = org.client(Role.ADMIN).post(org.path("invitations"), body, format="json")
    assert made.status_code == 201, made.content
    attacker = APIClient()
    accepted = {"token": made.json()["link"].partition("#")[2], "password": CHOSEN}
    assert attacker.post("/api/invitations/accept", accepted, format="json").json()["authenticated"]
    return attacker


def log_in(email: str, password: str) -> APIClient:
    client = APIClient()
    client.post("/api/session", {"email": email, "password": password}, format="json")
    return client


def is_in(client: APIClient) -> bool:
    return bool(client.get("/api/session").json()["authenticated"])


def prove_by_reset() -> None:
    token = reset_token(User.objects.get(email=VICTIM))
    assert APIClient().post("/api/password/reset", {"token": token, "password": NEW}, format="json").status_code == 204


def prove_by_provider() -> None:
    user_of(Claims("https://idp.example", "victim", VICTIM, email_verified=True, name="Victim"))


@needs_database
def test_a_tenant_is_not_handed_to_an_unproven_account(acme: Any) -> None:
    squat(acme)
    with pytest.raises(CommandError, match="not proven that"):
        call_command("create_tenant", "globex", "--owner", "Victim@Corp.example", "--key", "first")
    assert not Tenant.objects.filter(slug="globex").exists()


@needs_database
def test_the_installation_is_not_handed_to_an_unproven_account(acme: Any) -> None:
    squat(acme)
    with pytest.raises(CommandError, match="not proven that"):
        call_command("make_operator", VICTIM)
    user = User.objects.get(email=VICTIM)
    with pytest.raises(LorikeetError, match="not proven that"):
        set_operator(actor=SYSTEM, user=user, operator=True)
    assert not User.objects.filter(is_operator=True).exists()
    call_command("make_operator", VICTIM, "--undo")  # taking away needs no proof


@needs_database
@pytest.mark.parametrize("prove", [prove_by_reset, prove_by_provider])
def test_what_the_first_comer_had_ends_with_the_proof(acme: Any, prove: Callable[[], None]) -> None:
    attacker = squat(acme)
    elsewhere = log_in(VICTIM, CHOSEN)
    assert is_in(attacker) and is_in(elsewhere)
    prove()
    assert not is_in(attacker)
    assert not is_in(elsewhere)
    assert not is_in(log_in(VICTIM, CHOSEN))
    call_command("create_tenant", "globex", "--owner", VICTIM)
    call_command("make_operator", VICTIM)
    assert Membership.objects.get(tenant__slug="globex").user.is_operator


@needs_database
def test_a_reset_link_from_before_the_proof_is_worth_nothing_after_it(acme: Any) -> None:
    squat(acme)
    old = reset_token(User.objects.get(email=VICTIM))
    prove_by_provider()
    answer = APIClient().post("/api/password/reset", {"token": old, "password": CHOSEN + "!"}, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "reset_link_invalid")


@needs_database
def test_a_member_whose_address_nobody_proved_is_not_promoted(acme: Any) -> None:
    squat(acme)
    user = User.objects.get(email=VICTIM)
    path = acme.path(f"members/{user.pk}")
    for role in ("admin", "owner"):
        refused = acme.client().patch(path, {"role": role}, format="json")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "account_unproven")
    assert acme.client().patch(path, {"role": "viewer"}, format="json").status_code == 200
    shown = {member["email"]: member["address_proven"] for member in acme.client().get(acme.path("members")).json()}
    assert shown[VICTIM] is False and shown["owner@acme.example"] is True
    prove_by_reset()
    assert acme.client().patch(path, {"role": "owner"}, format="json").status_code == 200


@needs_database
def test_a_link_sent_to_one_is_not_accepted_by_another(acme: Any, globex: Any) -> None:
    """Neither by an account of a similar address, nor by making the account anew."""
    made = globex.client().post(globex.path("invitations"), {"email": VICTIM, "role": "owner"}, format="json").json()
    token = made["link"].partition("#")[2]
    other = squat(acme, "victim@corp.example.org")
    refused = other.post("/api/invitations/accept", {"token": token}, format="json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "invitation_for_other")
    squat(acme)
    again = APIClient().post("/api/invitations/accept", {"token": token, "password": NEW}, format="json")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "account_exists")


@needs_database
def test_a_provider_that_did_not_verify_the_address_links_nothing(acme: Any) -> None:
    claims = Claims("https://idp.example", "thief", "owner@acme.example", email_verified=False, name="")
    with pytest.raises(LorikeetError, match="not state that your e-mail address is verified"):
        user_of(claims)
    assert not acme.users[Role.OWNER].identities.exists()


# -- ways to write an address ---------------------------------------------------------------------

# A dotless i, a long s, a dotted capital I.
LOOKALIKES = ["v\u0131ctim@corp.example", "\u017fam@corp.example", "V\u0130CTIM@corp.example"]


# Mail to them goes to strasse.example, example.org, ex.ample.org.
OTHER_DOMAINS = ["ada@stra\u00dfe.example", "ada@\uff45xample.org", "ada@ex\u3002ample.org"]


@pytest.mark.parametrize(
    "email", [*LOOKALIKES, *OTHER_DOMAINS, "none", "a@b", "", "two@at@corp.example", "a@corp.example\n.x"]
)
def test_addresses_that_no_new_account_can_have(email: str) -> None:
    with pytest.raises(InvalidAddressError):
        new_address(email)


def test_a_domain_is_one_in_letters_and_in_its_ascii_form() -> None:
    for email in ("ada@b\u00fccher.example", "Ada@B\u00dcCHER.example", "ada@XN--BCHER-KVA.example"):
        assert new_address(email) == "ada@b\u00fccher.example"
    assert new_address("ada@xn--strae-oqa.example") == "ada@xn--strae-oqa.example"
    for label in ("xn--", "xn--a", "xn--\u00fc", "xn--" + "a" * 60):
        assert normalise_email(f"ada@{label}.example") == f"ada@{label}.example"


@needs_database
@pytest.mark.parametrize("email", LOOKALIKES)
def test_a_lookalike_is_not_invited(acme: Any, email: str) -> None:
    refused = acme.client().post(acme.path("invitations"), {"email": email, "role": "viewer"}, format="json")
    assert refused.status_code == 400
    assert refused.json()["error"]["fix"]
    assert not Invitation.objects.exists()


@needs_database
@pytest.mark.parametrize("email", LOOKALIKES[:1])
def test_a_lookalike_from_before_is_not_taken_for_the_other(email: str) -> None:
    """On PostgreSQL both are one in upper case."""
    User.objects.create_user(email, None, email_verified_at=None)
    with pytest.raises(CommandError, match="There is no account"):
        call_command("make_operator", VICTIM)
    create_user(actor=SYSTEM, email=VICTIM, password=None)
    call_command("make_operator", VICTIM.upper())
    assert [user.email for user in User.objects.filter(is_operator=True)] == [VICTIM]


@drawing(max_examples=50)
@given(st.text(max_size=20))
def test_the_form_of_an_address_does_not_change_again(text: str) -> None:
    once = normalise_email(text)
    assert normalise_email(once) == once


# -- strangers write nothing ----------------------------------------------------------------------


@pytest.fixture
def provider_away(lorikeet: Any, settings: Any) -> None:
    configured = {"oidc_issuer": "http://127.0.0.1:9", "oidc_client_id": CLIENT_ID}
    settings.LORIKEET = lorikeet.model_copy(update=configured)


@needs_database
def test_sign_in_pages_of_a_provider_leave_no_rows(provider_away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = ProviderMetadata("http://127.0.0.1:9/authorize", "", "", sends_issuer=False)
    monkeypatch.setattr("control_plane.identity.accounts.oidc._metadata", lambda _: metadata)
    for _ in range(3):
        stranger = APIClient()
        assert stranger.get("/api/oidc/start")["Location"].startswith("http://127.0.0.1:9/authorize")
        assert stranger.get("/api/oidc/callback", {"state": "guessed", "code": "x"})["Location"] == "/login"
        assert stranger.get("/api/session").json()["sign_in_error"]["code"] == "oidc_stale"
    assert not Session.objects.exists()


@needs_database
def test_what_a_browser_remembers_cannot_be_forged(provider_away: None) -> None:
    elsewhere = signing.dumps({"state": "", "nonce": "", "verifier": "", "next": "/"}, salt="another")
    for value in ("", "x", "eyJzdGF0ZSI6ICIifQ:1:x", ".eJx", "é", elsewhere):
        stranger = APIClient()
        stranger.cookies["lorikeet_oidc"] = stranger.cookies["lorikeet_sign_in_error"] = value
        assert stranger.get("/api/session").json()["sign_in_error"] is None
        assert stranger.get("/api/oidc/callback", {"state": "", "code": "x"})["Location"] == "/login"
        assert stranger.get("/api/session").json()["sign_in_error"]["code"] == "oidc_stale"
    assert not Session.objects.exists()
