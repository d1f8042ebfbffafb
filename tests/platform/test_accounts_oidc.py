"""Signing in with a provider: the whole way over HTTP, and everything that must not work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from io import StringIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.core import mail
from django.core.management import call_command
from django.db import InterfaceError
from joserfc import jws
from lorikeet_testing.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider
from lorikeet_testing.platform_fixtures import signed_in
from rest_framework.test import APIClient

from control_plane.core.config import Settings
from control_plane.identity.accounts import oidc, oidc_views
from control_plane.identity.accounts.models import Identity, User
from control_plane.identity.accounts.tasks import mail_address_changed
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.members.invitations import invite
from control_plane.identity.second_factor import actions as second_factor
from control_plane.identity.second_factor import totp
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def provider(running: Provider, settings: Any) -> Provider:
    running.claims, running.metadata, running.answer, running.faults, running.queries = {}, {}, {}, {}, []
    running.person = {"sub": "p1", "email": "owner@acme.example", "email_verified": True, "name": "Ada"}
    oidc._documents.clear()
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
    return str(whole_refusal(client)["code"])


def whole_refusal(client: APIClient) -> dict[str, Any]:
    error: dict[str, Any] = client.get("/api/session").json()["sign_in_error"]
    assert error["fix"]
    assert client.get("/api/session").json()["sign_in_error"] is None
    return error


def failure(client: APIClient) -> str:
    """The reason on the sign-in page, after it was checked that nobody is signed in."""
    error = whole_refusal(client)
    assert error["code"] == "oidc_failed"
    assert not client.get("/api/session").json()["authenticated"]
    return str(error["message"]).removeprefix("The sign-in with your organisation's provider failed: ")


def test_a_known_address(acme: Any, provider: Provider) -> None:
    client = APIClient()
    before = client.get("/api/session").json()
    assert (before["provider"], before["authenticated"]) == ("single sign-on", False)
    answer = sign_in(client)
    assert (answer.status_code, answer["Location"]) == (302, "/t/acme")
    session = client.get("/api/session").json()
    assert session["user"]["email"] == "owner@acme.example"
    assert {"state", "nonce", "code_challenge"} <= set(provider.queries[0])
    assert User.objects.get(email="owner@acme.example").has_usable_password()
    rows = list(AuditEvent.objects.order_by("-id").values_list("action", flat=True)[:2])
    assert rows == ["session.create", "identity.link"]


def test_a_second_factor_is_shown_after_the_provider(acme: Any, provider: Provider) -> None:
    owner = User.objects.get(email="owner@acme.example")
    secret = second_factor.begin_app(user=owner).secret
    setting_up = signed_in(owner)
    first = totp.code_at(secret, time.time() - totp.STEP_S)
    assert setting_up.post("/api/second-factors/app/confirm", {"code": first}, format="json").status_code == 200
    client = signed_in(acme.users[Role.VIEWER])
    assert sign_in(client)["Location"] == "/login?next=%2Ft%2Facme"
    session = client.get("/api/session").json()
    assert (session["authenticated"], session["second_factor_for"]) == (False, "owner@acme.example")
    code = {"code": totp.code_at(secret, time.time())}
    answer = client.post("/api/session/second-factor", code, format="json")
    assert answer.json()["user"]["email"] == "owner@acme.example"
    row = AuditEvent.objects.filter(action="session.create").latest("id")
    assert row.detail == {"issuer": provider.issuer, "second_factor": "app"}


def test_one_from_before_the_address_was_proven_is_removed(acme: Any, provider: Provider) -> None:
    owner = User.objects.get(email="owner@acme.example")
    secret = second_factor.begin_app(user=owner).secret
    first = {"code": totp.code_at(secret, time.time())}
    assert signed_in(owner).post("/api/second-factors/app/confirm", first, format="json").status_code == 200
    User.objects.filter(pk=owner.pk).update(email_verified_at=None)
    assert sign_in(APIClient())["Location"] == "/t/acme", "the owner of the address is not locked out"
    assert User.objects.get(pk=owner.pk).second_factor_since is None


def test_who_has_no_password_confirms_by_signing_in_again(acme: Any, provider: Provider) -> None:
    owner = User.objects.get(email="owner@acme.example")
    owner.set_unusable_password()
    owner.save()
    client = APIClient()
    sign_in(client)
    session = client.session
    session["confirmed_at"] = 0
    session.save()
    answer = client.post("/api/second-factors/app")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "confirmation_required")
    assert client.get("/api/session/confirmation").json() == {"app": False, "passkey": False, "password": False}
    assert sign_in(client)["Location"] == "/t/acme"
    assert client.post("/api/second-factors/app").status_code == 201


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


def test_an_address_that_changes_at_the_provider(acme: Any, provider: Provider, queue: Any, committing: Any) -> None:
    sign_in(APIClient())
    provider.person |= {"email": "Ada@New.example"}
    client = APIClient()
    with committing():
        sign_in(client)
    assert client.get("/api/session").json()["user"]["email"] == "ada@new.example"
    row = AuditEvent.objects.get(action="user.email")
    assert (row.detail["before"], row.target_label) == ("owner@acme.example", "ada@new.example")
    assert "mail_address_changed" in queue.names()
    mail_address_changed("owner@acme.example", "ada@new.example")
    assert (mail.outbox[-1].to, "ada@new.example" in mail.outbox[-1].body) == (["owner@acme.example"], True)
    for taken_or_invalid in ("viewer@acme.example", "no address"):
        provider.person |= {"email": taken_or_invalid}
        assert sign_in(client)["Location"] == "/t/acme"
        assert client.get("/api/session").json()["user"]["email"] == "ada@new.example"


def test_a_second_subject_with_an_address_is_another_person(acme: Any, provider: Provider) -> None:
    sign_in(APIClient())
    provider.person |= {"sub": "p2"}
    stranger = APIClient()
    assert sign_in(stranger)["Location"] == "/login"
    assert refusal(stranger) == "other_identity_linked"
    call_command("unlink_identities", "owner@acme.example", stdout=StringIO())
    assert sign_in(stranger)["Location"] == "/t/acme"
    assert Identity.objects.get().subject == "p2"


def test_an_address_that_nobody_proved_loses_its_password(acme: Any, provider: Provider) -> None:
    User.objects.filter(email="owner@acme.example").update(email_verified_at=None)
    thief = APIClient()
    thief.post("/api/session", {"email": "owner@acme.example", "password": PASSWORD}, format="json")
    assert thief.get("/api/session").json()["authenticated"]
    sign_in(APIClient())
    user = User.objects.get(email="owner@acme.example")
    assert not user.has_usable_password()
    assert user.email_verified_at is not None
    assert user.sign_ins.count() == 1, "the other device is not listed any more"
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
        {"iat": 1},
        {"iat": "now"},
        {"iat": True},
        {"exp": float("nan")},
        {"iat": float("nan")},
        {"exp": float("inf")},
        {"sub": 7},
        {"sub": None},
        {"aud": {}},
        {"nonce": [[]]},
    ],
    ids=ascii,
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


def respond(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        with suppress(OSError):  # the client may have heard enough
            handler.wfile.write(body)

    return answer


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte at a time, each well before a client that waits for bytes would give up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    with suppress(OSError):
        for _ in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)


def drip_head(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    with suppress(OSError):
        for number in range(200):
            handler.wfile.write(f"X-{number}: y\r\n".encode())
            handler.wfile.flush()
            time.sleep(0.05)


DISCOVERY = "/.well-known/openid-configuration"
DOCUMENTS = {DISCOVERY: "its discovery document", "/jwks": "its key set", "/token": "its token endpoint"}
FAULTS: list[tuple[Callable[[BaseHTTPRequestHandler], None], str]] = [
    (hang_up, "could not be read."),
    (respond(307, b"", Location="/elsewhere"), "answered with status 307."),
    (respond(302, b"", Location="http://127.0.0.1:9/"), "answered with status 302."),
    (respond(500, b"<html>"), "answered with status 500."),
    (respond(400, b'{"error": "invalid_grant"}'), "answered with status 400 (invalid_grant)."),
    (respond(400, b'{"error": "<script>"}'), "answered with status 400."),
    (respond(400, b"[" * 200_000), "answered with status 400."),
    (respond(200, b""), "is not valid JSON."),
    (respond(200, b"\xff\x00"), "is not valid JSON."),
    (respond(200, b'{"a": NaN}'), "is not valid JSON."),
    (respond(200, b'{"a": %s}' % (b"9" * 5000)), "is not valid JSON."),
    (respond(200, b"[" * 200_000), "is not valid JSON."),
    (respond(200, b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "is not valid JSON."),
    (respond(200, b"[]"), "is not a JSON object."),
    (respond(200, b"x" * (oidc.MAX_BYTES + 1)), f"sent more than {oidc.MAX_BYTES} bytes."),
    (respond(200, b"\x1f\x8b", **{"Content-Encoding": "gzip"}), "is not valid JSON."),
]


@pytest.mark.parametrize("path", DOCUMENTS)
@pytest.mark.parametrize(("fault", "reason"), FAULTS, ids=[reason for _, reason in FAULTS])
def test_answers_of_the_provider_that_cannot_be_used(
    acme: Any, provider: Provider, path: str, fault: Callable[[BaseHTTPRequestHandler], None], reason: str
) -> None:
    provider.faults[path] = fault
    client = APIClient()
    assert sign_in(client)["Location"] == "/login"
    message = failure(client)
    assert message.startswith(DOCUMENTS[path])
    assert reason in message
    # Nothing of it is remembered: the next sign-in is one as ever.
    provider.faults.clear()
    assert sign_in(client)["Location"] == "/t/acme"


@pytest.mark.parametrize("path", DOCUMENTS)
@pytest.mark.parametrize("fault", [drip, drip_head])
def test_an_answer_has_a_bounded_time(
    acme: Any,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    fault: Callable[[BaseHTTPRequestHandler], None],
) -> None:
    monkeypatch.setattr(oidc, "ANSWER_S", 1.0)
    provider.faults[path] = fault
    client = APIClient()
    before = time.monotonic()
    assert sign_in(client)["Location"] == "/login"
    assert time.monotonic() - before < 5  # the provider would take ten seconds
    assert failure(client).startswith(f"{DOCUMENTS[path]} could not be read. There was no answer within")


def test_a_page_has_a_bounded_time(acme: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "PAGE_S", 0.0)
    client = APIClient()
    sign_in(client)
    assert failure(client) == "it did not answer within 0 s."


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "p\0"}, "claim sub contains characters that are not allowed"),
        ({"sub": "p\ud800"}, "claim sub contains characters that are not allowed"),
        ({"sub": "p\u202e"}, "claim sub contains characters that are not allowed"),
        ({"sub": "p" * 10_000}, "claim sub has 10000 characters; 255 are the most"),
        ({"sub": "p" * 256}, "claim sub has 256 characters; 255 are the most"),
        ({"email": "a\0@acme.example"}, "claim email contains characters that are not allowed"),
        ({"email": "a\udfff@acme.example"}, "claim email contains characters that are not allowed"),
        ({"email": "a" * 10_000}, "claim email has 10000 characters"),
        ({"email": ["owner@acme.example"]}, "claim email is not text"),
        ({"name": "A\0da"}, "claim name contains characters that are not allowed"),
        ({"name": "A\ud800"}, "claim name contains characters that are not allowed"),
    ],
    ids=[*"abcdefghijk"],
)
def test_claims_that_are_no_names(acme: Any, provider: Provider, claims: dict[str, Any], reason: str) -> None:
    provider.claims = claims
    client = APIClient()
    sign_in(client)
    assert reason in failure(client)
    assert not Identity.objects.exists()


@pytest.mark.parametrize(
    "claims",
    [{"\ud800": 1}, {"sub": "ü" * 255}, {"deep": json.loads("[" * 400 + "]" * 400)}, {"name": 7}],
    ids=[*"abcd"],
)
def test_claims_that_are_odd_and_harmless(acme: Any, provider: Provider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    assert sign_in(APIClient())["Location"] == "/t/acme"


def test_a_display_name_loses_its_directional_marks(acme: Any, provider: Provider, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_domains": "other.example"})
    provider.person |= {"email": "x@other.example", "name": "\u200fנועה\u200e \u202eA\u00ad " + "x" * 200}
    sign_in(APIClient())
    assert User.objects.get(email="x@other.example").name == "נועה A " + "x" * 113


@pytest.mark.parametrize(
    "id_token",
    ["", "a", "a.b.c", "." * 500, "[" * 1000, "é", "\ud800", f"{'W' * 200_000}.W.W", 7, None, ["a"]],
    ids=[*"abcdefghijk"],
)
def test_what_is_no_token(acme: Any, provider: Provider, id_token: object) -> None:
    provider.faults["/token"] = respond(200, json.dumps({"id_token": id_token}).encode())
    client = APIClient()
    sign_in(client)
    assert failure(client) in (
        "its ID token is not signed by one of its keys.",
        "its token endpoint returned no ID token.",
    )


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"7", b"\xff", b"[" * 10_000, b'{"a":' * 10_000, b'{"sub": NaN}'], ids=[*"abcdefg"]
)
def test_signed_content_that_is_no_object(acme: Any, provider: Provider, payload: bytes) -> None:
    header = {"alg": "RS256", "kid": provider.signing_key.kid}
    token = jws.serialize_compact(header, payload, provider.signing_key)
    provider.faults["/token"] = respond(200, json.dumps({"id_token": token}).encode())
    client = APIClient()
    sign_in(client)
    assert failure(client) in ("its ID token is not valid JSON.", "its ID token is not a JSON object.")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"keys": 7},
        {"keys": [7]},
        {"keys": [{}]},
        {"keys": [{"kty": "RSA"}]},
        {"keys": [{"kty": "RSA", "n": "AA", "e": "AA"}]},
        {"keys": [{"kty": "RSA", "n": "\ud800", "e": [1]}]},
        {"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]},
        {"keys": [{"kty": "EC", "crv": [], "x": 1, "y": {}}]},
        {"keys": []},
    ],
    ids=str,
)
def test_key_sets_that_hold_no_keys(acme: Any, provider: Provider, document: dict[str, Any]) -> None:
    provider.faults["/jwks"] = respond(200, json.dumps(document).encode())
    client = APIClient()
    sign_in(client)
    assert failure(client) in ("its key set is not valid.", "its ID token is not signed by one of its keys.")


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "EC", "crv": "P-1024", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "broken"},
        {"kty": "AKP", "pub": "AA"},
        7,
    ],
    ids=str,
)
def test_other_keys_beside_the_one_that_signs(acme: Any, provider: Provider, other: object) -> None:
    """RFC 7517, section 5: what cannot be understood is ignored."""
    keys = [other, provider.signing_key.as_dict(private=False)]
    provider.faults["/jwks"] = respond(200, json.dumps({"keys": keys}).encode())
    assert sign_in(APIClient())["Location"] == "/t/acme"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "url",
    [
        None, 7, "", "/authorize", "javascript:alert(1)", "http://[", "http://a b/", "http://a/\r\nSet-Cookie: a=b",
        "http://a/\ud800", "http://user:secret@a/", "ftp://a/", "http://a:99999/",
    ],
)  # fmt: skip
def test_discovery_documents_with_endpoints_that_cannot_be_called(
    acme: Any, provider: Provider, name: str, url: object
) -> None:
    provider.metadata = {name: url}
    client = APIClient()
    sign_in(client)
    assert failure(client) == f"its discovery document has no valid {name}."


def test_a_safe_issuer_has_safe_endpoints(acme: Any, provider: Provider, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_issuer": "https://idp.example"})
    with pytest.raises(oidc.ProviderError, match="does not begin with https"):
        oidc._endpoint({"token_endpoint": "http://idp.example/token"}, "token_endpoint")


def test_another_issuer_in_the_discovery_document(acme: Any, provider: Provider) -> None:
    provider.metadata = {"issuer": "https://evil.example"}
    client = APIClient()
    sign_in(client)
    assert failure(client) == "LORIKEET_OIDC_ISSUER is not what it calls itself."
    provider.metadata = {}
    assert sign_in(client)["Location"] == "/t/acme"  # the wrong document was not remembered


def test_a_query_of_the_authorization_endpoint_stays(acme: Any, provider: Provider) -> None:
    provider.metadata = {"authorization_endpoint": f"{provider.issuer}/authorize?prompt=login"}
    assert sign_in(APIClient())["Location"] == "/t/acme"
    assert provider.queries[0]["prompt"] == "login"


@pytest.mark.parametrize(
    ("supported", "answer", "reason"),
    [
        (True, {"iss": "right"}, None),
        (True, {}, "its answer does not name its issuer."),
        (True, {"iss": "https://evil.example"}, "the answer came from another issuer."),
        (True, {"iss": "https://evil.example", "error": "access_denied"}, "the answer came from another issuer."),
        (False, {}, None),
        (False, {"iss": "right"}, None),
        (False, {"iss": ""}, "the answer came from another issuer."),
        (False, {"iss": "https://evil.example"}, "the answer came from another issuer."),
    ],
)
def test_the_issuer_of_an_answer(
    acme: Any, provider: Provider, supported: bool, answer: dict[str, str], reason: str | None
) -> None:
    """RFC 9207."""
    provider.metadata = {"authorization_response_iss_parameter_supported": supported}
    provider.answer = {**answer, **({"iss": provider.issuer} if answer.get("iss") == "right" else {})}
    client = APIClient()
    assert sign_in(client)["Location"] == ("/t/acme" if reason is None else "/login")
    if reason is not None:
        assert failure(client) == reason


def test_a_state_is_used_up(acme: Any, provider: Provider) -> None:
    """Also by somebody who kept the browser's cookie, and by an answer that led to nothing."""
    for fault in (None, respond(500, b"")):
        client = APIClient()
        location = client.get("/api/oidc/start")["Location"]
        cookie = client.cookies["lorikeet_oidc"].value
        first, second = (
            httpx.get(location, trust_env=False).headers["Location"].removeprefix("http://testserver") for _ in "ab"
        )
        if fault is not None:
            provider.faults["/token"] = fault
        assert client.get(first)["Location"] == ("/" if fault is None else "/login")
        provider.faults.clear()
        again = APIClient()
        again.cookies["lorikeet_oidc"] = cookie
        assert again.get(second)["Location"] == "/login"
        assert refusal(again) == "oidc_stale"
        assert not again.get("/api/session").json()["authenticated"]


def test_the_database_is_away_when_the_provider_answers(
    acme: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_claims: object) -> None:
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(oidc_views, "user_of", fail)
    client = APIClient()
    assert sign_in(client)["Location"] == "/login"
    assert refusal(client) == "database_unavailable"


def test_without_a_secret(acme: Any, provider: Provider, settings: Any) -> None:
    """A public client is named in the body, and PKCE protects the exchange."""
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"oidc_client_secret": ""})
    bodies: list[bytes] = []
    provider.faults["/token"] = lambda handler: (
        bodies.append(handler.headers.as_bytes()),
        respond(400, b"{}")(handler),
    )[1]
    sign_in(APIClient())
    assert b"Authorization" not in bodies[0]


def test_without_a_provider(acme: Any) -> None:
    client = APIClient()
    assert client.get("/api/oidc/start")["Location"] == "/login"
    assert refusal(client) == "oidc_off"


@pytest.mark.parametrize("wrong", [{"oidc_issuer": "http://idp.example"}, {"password_login": False}])
def test_settings_that_cannot_work(wrong: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="LORIKEET_"):
        Settings(var_dir=tmp_path, **wrong)
