"""Signing in with a provider: the whole way over HTTP, and everything that must not work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from lorikeet_testing.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider
from rest_framework.test import APIClient

from control_plane.accounts import oidc
from control_plane.accounts.models import Identity, User
from control_plane.audit.models import AuditEvent
from control_plane.config import Settings
from control_plane.members.invitations import invite
from control_plane.tenants.roles import Role

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def provider(running: Provider, settings: Any) -> Provider:
    running.claims, running.asked = {}, []
    running.person = {"sub": "p1", "email": "owner@acme.example", "email_verified": True, "name": "Ada"}
    oidc._kept.clear()
    configured = {
        "oidc_issuer": running.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "public_url": "http://testserver",
    }
    settings.LORIKEET = settings.LORIKEET.model_copy(update=configured)
    return running


def sign_in(client: APIClient, following: str = "/t/acme") -> Any:
    """As a browser: to the provider, and back with what it says."""
    sent = client.get("/api/oidc/start", {"next": following})
    assert sent.status_code == 302, sent.content
    if sent["Location"] == "/login":
        return sent
    back = httpx.get(sent["Location"], trust_env=False).headers["Location"]
    return client.get(back.removeprefix("http://testserver"))


def refusal(client: APIClient) -> str:
    error = client.get("/api/session").json()["sign_in_error"]
    assert error["fix"]
    assert client.get("/api/session").json()["sign_in_error"] is None
    return str(error["code"])


def test_a_known_address(acme: Any, provider: Provider) -> None:
    client = APIClient()
    before = client.get("/api/session").json()
    assert (before["provider"], before["authenticated"]) == ("single sign-on", False)
    answer = sign_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/t/acme")
    session = client.get("/api/session").json()
    assert session["user"]["email"] == "owner@acme.example"
    assert {"state", "nonce", "code_challenge"} <= set(provider.asked[0])
    assert User.objects.get(email="owner@acme.example").has_usable_password()
    rows = list(AuditEvent.objects.order_by("-id").values_list("action", flat=True)[:2])
    assert rows == ["session.create", "identity.link"]


def test_the_subject_counts_from_then_on(acme: Any, provider: Provider) -> None:
    sign_in(APIClient())
    provider.person |= {"email": "viewer@acme.example", "email_verified": False}
    client = APIClient()
    sign_in(client)
    assert client.get("/api/session").json()["user"]["email"] == "owner@acme.example"
    provider.person |= {"sub": "p2", "email": "owner@acme.example"}
    stranger = APIClient()
    assert sign_in(stranger)["Location"] == "/login"
    assert refusal(stranger) == "email_not_verified"


def test_an_address_that_nobody_proved_loses_its_password(acme: Any, provider: Provider) -> None:
    User.objects.filter(email="owner@acme.example").update(email_verified_at=None)
    thief = APIClient()
    thief.post("/api/session", {"email": "owner@acme.example", "password": PASSWORD}, format="json")
    assert thief.get("/api/session").json()["authenticated"]
    sign_in(APIClient())
    user = User.objects.get(email="owner@acme.example")
    assert not user.has_usable_password()
    assert user.email_verified_at is not None
    assert not thief.get("/api/session").json()["authenticated"]


def test_who_gets_an_account(acme: Any, provider: Provider, settings: Any, queue: Any) -> None:
    provider.person |= {"email": "New@Elsewhere.example"}
    client = APIClient()
    sign_in(client)
    assert refusal(client) == "no_account"
    assert not User.objects.filter(email="new@elsewhere.example").exists()

    invite(acting=acme.principal(), email="new@elsewhere.example", role=Role.VIEWER)
    sign_in(client)
    assert client.get("/api/session").json()["user"]["has_password"] is False

    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_domains": "acme.example, Other.example"})
    provider.person |= {"sub": "p3", "email": "x@other.example"}
    another = APIClient()
    sign_in(another)
    assert another.get("/api/session").json()["tenants"] == []


def test_switched_off(acme: Any, provider: Provider) -> None:
    sign_in(APIClient())
    User.objects.filter(email="owner@acme.example").update(is_active=False)
    client = APIClient()
    sign_in(client)
    assert refusal(client) == "account_inactive"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": [CLIENT_ID, "another"]},
        {"azp": "another"},
        {"nonce": "guessed"},
        {"exp": 1},
        {"iat": 99_999_999_999},
    ],
    ids=str,
)
def test_tokens_that_are_not_believed(acme: Any, provider: Provider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    client = APIClient()
    assert sign_in(client)["Location"] == "/login"
    assert refusal(client) == "oidc_failed"
    assert not client.get("/api/session").json()["authenticated"]
    assert not Identity.objects.exists()


def test_a_foreign_signature_and_a_new_key(acme: Any, provider: Provider) -> None:
    own = provider.signing_key
    provider.signing_key = provider.new_key()
    client = APIClient()
    sign_in(client)
    assert refusal(client) == "oidc_failed"
    # The same key, once the provider publishes it: read again, although the old ones are still kept.
    provider.published.keys.append(provider.signing_key)
    assert sign_in(client)["Location"] == "/t/acme"
    provider.signing_key = own


def test_an_answer_that_nobody_here_asked_for(acme: Any, provider: Provider) -> None:
    asked = APIClient()
    location = asked.get("/api/oidc/start")["Location"]
    back = httpx.get(location, trust_env=False).headers["Location"].removeprefix("http://testserver")
    other = APIClient()
    assert other.get(back)["Location"] == "/login"
    assert refusal(other) == "oidc_stale"
    state = parse_qs(urlsplit(back).query)["state"][0]
    assert asked.get(back.replace(state, "forged"))["Location"] == "/login"
    # One answer was all that it was good for.
    assert asked.get(back)["Location"] == "/login"
    assert refusal(asked) == "oidc_stale"


def test_declined(acme: Any, provider: Provider) -> None:
    client = APIClient()
    state = parse_qs(urlsplit(client.get("/api/oidc/start")["Location"]).query)["state"][0]
    client.get("/api/oidc/callback", {"state": state, "error": "access_denied<script>"})
    assert "(access_deniedscript)" in client.get("/api/session").json()["sign_in_error"]["message"]


@pytest.mark.parametrize("following", ["https://evil.example", "//evil.example", "/\\evil.example", "", "/a b"])
def test_leads_nowhere_else(acme: Any, provider: Provider, following: str) -> None:
    assert sign_in(APIClient(), following)["Location"] == "/"


def test_a_provider_that_is_away(acme: Any, provider: Provider, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_issuer": "http://127.0.0.1:9"})
    client = APIClient()
    assert sign_in(client)["Location"] == "/login"
    assert refusal(client) == "oidc_failed"


def test_without_a_provider(acme: Any) -> None:
    client = APIClient()
    assert client.get("/api/oidc/start")["Location"] == "/login"
    assert refusal(client) == "oidc_off"


@pytest.mark.parametrize("wrong", [{"oidc_issuer": "http://idp.example"}, {"password_login": False}])
def test_settings_that_cannot_work(wrong: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="LORIKEET_"):
        Settings(var_dir=tmp_path, **wrong)
