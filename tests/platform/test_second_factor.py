"""Second factors: setting them up, signing in with them, and everything that must not work."""

from __future__ import annotations

import itertools
import threading
import time
from io import StringIO
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connection
from lorikeet_testing.authenticator import PAGE, SoftwarePasskey
from lorikeet_testing.platform_fixtures import PASSWORD, error_of, signed_in
from rest_framework.test import APIClient

from control_plane.core.config import Settings
from control_plane.core.jobs import clocks
from control_plane.identity.access.principal import SecondFactorRequiredError
from control_plane.identity.accounts import attempts, pending
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.second_factor import actions, recovery_codes, totp
from control_plane.identity.second_factor.attempts import CODES
from control_plane.identity.second_factor.models import AuthenticatorApp, Passkey, RecoveryCode
from control_plane.identity.second_factor.tasks import mail_notice
from control_plane.identity.sockets.identity import SessionCaller
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability, Role

pytestmark = pytest.mark.django_db
OWNER = "owner@acme.example"
# Attempts are counted by client address, too.
ADDRESSES = (f"198.51.100.{number % 250}" for number in itertools.count())


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time that codes are compared with; a test moves it."""
    real, shift = clocks.database_time, {"s": 0.0}
    monkeypatch.setattr(clocks, "database_time", lambda: real() + clocks.timedelta(seconds=shift["s"]))
    return shift


@pytest.fixture
def https(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"public_url": PAGE})


class Phone:
    """The authenticator app of a person."""

    def __init__(self, browser: APIClient, shift: dict[str, float]) -> None:
        self._shift = shift
        self.setup = browser.post("/api/second-factors/app").json()

    def code(self, ahead_s: float = 0) -> str:
        return totp.code_at(self.setup["secret"], time.time() + self._shift["s"] + ahead_s)

    def later(self) -> str:
        """A code that was not used: that of a later time."""
        self._shift["s"] += 2 * totp.STEP_S
        return self.code()


def send(browser: APIClient, path: str, body: dict[str, Any] | None = None) -> Any:
    return browser.post(path, body or {}, format="json")


def password_step(email: str = OWNER) -> APIClient:
    """A browser in which the password was right, and the second factor is awaited."""
    browser = APIClient(REMOTE_ADDR=next(ADDRESSES))
    answer = send(browser, "/api/session", {"email": email, "password": PASSWORD})
    assert (answer.status_code, answer.json()["authenticated"]) == (200, False)
    assert answer.json()["second_factor_for"] == email
    return browser


def show(browser: APIClient, code: str) -> Any:
    return send(browser, "/api/session/second-factor", {"code": code})


def is_in(browser: APIClient) -> bool:
    return bool(browser.get("/api/session").json()["authenticated"])


def set_up(browser: APIClient, shift: dict[str, float]) -> tuple[Phone, list[str]]:
    phone = Phone(browser, shift)
    done = send(browser, "/api/second-factors/app/confirm", {"code": phone.code()})
    assert done.status_code == 200, done.content
    return phone, done.json()["recovery_codes"]


def actions_of(email: str = OWNER) -> list[str]:
    return list(AuditEvent.objects.filter(target_label=email).order_by("id").values_list("action", flat=True))


# -- authenticator app -----------------------------------------------------------------------------------------------


def test_codes_are_those_of_the_rfc() -> None:
    """RFC 6238, appendix B, with the last six of eight digits."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    for moment_s, code in ((59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")):
        assert totp.code_at(secret, moment_s) == code
        assert totp.matching_step(secret, code, moment_s, 0) == moment_s // 30


def test_a_clock_may_be_a_period_off() -> None:
    secret = totp.new_secret()
    codes = {drift: totp.code_at(secret, 1_000_000 + drift * totp.STEP_S) for drift in range(-2, 3)}
    accepted = {drift for drift, code in codes.items() if totp.matching_step(secret, code, 1_000_000, 0)}
    assert accepted == {-1, 0, 1}


def test_set_up_and_sign_in(acme: Any, moment: Any, queue: Any, committing: Any) -> None:
    browser, other = acme.client(), acme.client()
    phone = Phone(browser, moment)
    assert is_in(other)
    assert len(set(map(len, phone.setup["qr"]))) == 1
    assert phone.setup["uri"].startswith("otpauth://totp/Lorikeet:owner%40acme.example?")
    assert is_in(acme.client()), "not in use before a code was seen"
    with committing():
        done = send(browser, "/api/second-factors/app/confirm", {"code": phone.code()})
    codes = done.json()["recovery_codes"]
    assert len(set(codes)) == recovery_codes.COUNT
    assert (is_in(browser), is_in(other)) == (True, False), "sessions without the second factor end"
    assert browser.get("/api/session").json()["user"]["second_factor"]
    assert browser.get("/api/second-factors").json()["recovery_codes_left"] == 10

    step = password_step()
    assert step.get("/api/tenants/acme/adapters").status_code == 401
    assert step.get("/api/session/second-factor").json() == {"app": True, "passkey": False, "password": False}
    assert step.get("/api/session").json()["second_factor_for"] == OWNER, "a reload of the page"
    assert error_of(show(step, "000000")) == (400, "wrong_code")
    answer = show(step, phone.later())
    assert answer.json()["authenticated"]
    assert step.get("/api/tenants/acme/adapters").status_code == 200
    row = AuditEvent.objects.filter(action="session.create").latest("id")
    assert row.detail == {"second_factor": "app"}
    assert {"second-factor.begin", "second-factor.add", "second-factor.refuse"} <= set(actions_of())


def test_a_code_is_accepted_once(acme: Any, moment: Any) -> None:
    phone, _ = set_up(acme.client(), moment)
    assert error_of(show(password_step(), phone.code())) == (400, "wrong_code"), "that of the set-up"
    code = phone.later()
    assert show(password_step(), code).status_code == 200
    assert error_of(show(password_step(), code)) == (400, "wrong_code")
    assert error_of(show(password_step(), phone.code(-totp.STEP_S))) == (400, "wrong_code"), "an earlier one"
    assert show(password_step(), phone.code(totp.STEP_S)).status_code == 200


def test_recovery_codes(acme: Any, moment: Any) -> None:
    browser = acme.client()
    _, codes = set_up(browser, moment)
    assert show(password_step(), codes[0].upper().replace("-", " ")).status_code == 200
    assert error_of(show(password_step(), codes[0])) == (400, "wrong_code")
    assert browser.get("/api/second-factors").json()["recovery_codes_left"] == 9
    fresh = send(browser, "/api/second-factors/recovery-codes").json()["recovery_codes"]
    assert error_of(show(password_step(), codes[1])) == (400, "wrong_code")
    assert show(password_step(), fresh[1]).status_code == 200
    assert AuditEvent.objects.filter(action="recovery-codes.use").count() == 2


def test_the_database_has_no_secret(acme: Any, moment: Any, settings: Any) -> None:
    phone, codes = set_up(acme.client(), moment)
    stored = str(list(AuthenticatorApp.objects.values())) + str(list(RecoveryCode.objects.values()))
    stored += str(list(AuditEvent.objects.values_list("detail", flat=True)))
    for secret in (phone.setup["secret"], *codes, *(code.replace("-", "") for code in codes)):
        assert secret not in stored
    app = AuthenticatorApp.objects.get()
    viewer = acme.users[Role.VIEWER]
    AuthenticatorApp.objects.create(user=viewer, sealed=app.sealed, confirmed_at=app.confirmed_at)
    with pytest.raises(actions.WrongCodeError):  # a secret moved to another account does not decrypt there
        actions.use_code(viewer, phone.later())
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"sealing_key": "another"})
    with pytest.raises(actions.WrongCodeError):
        actions.use_code(User.objects.get(email=OWNER), phone.later())


def test_codes_cannot_be_guessed(acme: Any, moment: Any) -> None:
    phone, codes = set_up(acme.client(), moment)
    answers = []
    for number in range(CODES.count):
        browser = password_step()
        answers.append(show(browser, f"{number:06}").status_code)
    assert answers == [400] * (CODES.count - 1) + [429], "the one of the set-up counts too"
    browser = password_step()
    assert [show(browser, code).status_code for code in (phone.later(), codes[0])] == [429, 429]
    assert int(show(browser, codes[0])["Retry-After"]) > 60
    assert not is_in(browser)


def test_nobody_else_is_locked_out(acme: Any, moment: Any) -> None:
    """Without the password there is no second step, so strangers cannot use up a person's attempts."""
    phone, _ = set_up(acme.client(), moment)
    for number in range(20):
        stranger = APIClient(REMOTE_ADDR=f"192.0.2.{number}")
        assert error_of(show(stranger, "123456")) == (400, "sign_in_expired")
    assert show(password_step(), phone.later()).status_code == 200


def test_the_first_step_ends(acme: Any, moment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    phone, codes = set_up(acme.client(), moment)
    owner = User.objects.get(email=OWNER)
    used = password_step()
    assert show(used, phone.later()).status_code == 200
    replayed = APIClient()
    replayed.cookies["lorikeet_sign_in"] = password_step().cookies["lorikeet_sign_in"].value
    assert show(replayed, codes[0]).status_code == 200
    assert replayed.cookies["lorikeet_sign_in"].value == ""
    stolen = password_step()
    value = stolen.cookies["lorikeet_sign_in"].value
    assert show(stolen, codes[1]).status_code == 200
    stolen.delete("/api/session")
    stolen.cookies["lorikeet_sign_in"] = value
    assert error_of(show(stolen, codes[2])) == (400, "sign_in_expired"), "each starts one session"
    changed, forged = password_step(), password_step()
    owner.set_password("a wholly new pass phrase")
    owner.save()
    assert error_of(show(changed, codes[3])) == (400, "sign_in_expired")
    forged.cookies["lorikeet_sign_in"] = forged.cookies["lorikeet_sign_in"].value[:-2] + "xx"
    assert error_of(show(forged, codes[3])) == (400, "sign_in_expired")
    owner.set_password(PASSWORD)
    owner.save()
    late = password_step()
    monkeypatch.setattr(pending.NOTE.__class__, "read", lambda *_: None)
    assert error_of(show(late, codes[3])) == (400, "sign_in_expired")


def test_starting_over(acme: Any, moment: Any) -> None:
    set_up(acme.client(), moment)
    step = password_step()
    assert step.delete("/api/session").json()["second_factor_for"] is None
    assert step.get("/api/session").json()["second_factor_for"] is None


def test_a_second_sign_in_ends_the_session_before_it(acme: Any, moment: Any) -> None:
    set_up(acme.client(), moment)
    browser = acme.client(Role.VIEWER)
    send(browser, "/api/session", {"email": OWNER, "password": PASSWORD})
    assert not is_in(browser), "the next person must not go on as the one before"


def test_the_session_gets_a_new_id(acme: Any, moment: Any) -> None:
    phone, _ = set_up(acme.client(), moment)
    browser = password_step()
    browser.cookies["lorikeet_session"] = "attackersfixedsessionid000000000"
    assert show(browser, phone.later()).status_code == 200
    assert browser.cookies["lorikeet_session"].value != "attackersfixedsessionid000000000"


def test_a_reset_password_needs_the_second_factor_too(acme: Any, moment: Any) -> None:
    phone, _ = set_up(acme.client(), moment)
    link = {"token": reset_token(User.objects.get(email=OWNER)), "password": "a wholly new pass phrase"}
    assert send(APIClient(), "/api/password/reset", link).status_code == 204
    browser = APIClient()
    answer = send(browser, "/api/session", {"email": OWNER, "password": link["password"]})
    assert answer.json()["second_factor_for"] == OWNER
    assert show(browser, phone.later()).status_code == 200


def test_one_from_before_the_address_was_proven_is_removed(acme: Any, moment: Any) -> None:
    """Who accepts another person's invitation must not lock the owner of the address out by a second factor."""
    User.objects.filter(email=OWNER).update(email_verified_at=None)
    thief = acme.client()
    set_up(thief, moment)
    link = {"token": reset_token(User.objects.get(email=OWNER)), "password": "a wholly new pass phrase"}
    assert send(APIClient(), "/api/password/reset", link).status_code == 204
    browser = APIClient()
    assert send(browser, "/api/session", {"email": OWNER, "password": link["password"]}).json()["authenticated"]
    assert not (AuthenticatorApp.objects.exists() or RecoveryCode.objects.exists())
    assert not is_in(thief)
    assert "second-factor.drop" in actions_of()


def test_their_owner_gets_a_mail(acme: Any, moment: Any, queue: Any, committing: Any) -> None:
    browser = acme.client()
    with committing():
        set_up(browser, moment)
        browser.delete("/api/second-factors/app")
    for task, arguments in queue.calls:
        assert task == "second_factor.mail_notice"
        mail_notice(*arguments)
    assert [message.to for message in mail.outbox] == [[OWNER], [OWNER]]
    assert "was added: Authenticator app" in mail.outbox[0].body
    assert "was removed" in mail.outbox[1].body


# -- confirmation ----------------------------------------------------------------------------------------------------

CHANGES = [
    ("post", "/api/second-factors/app"),
    ("delete", "/api/second-factors/app"),
    ("post", "/api/second-factors/app/confirm"),
    ("post", "/api/second-factors/passkeys/options"),
    ("post", "/api/second-factors/passkeys"),
    ("post", "/api/second-factors/recovery-codes"),
]


def stolen(acme: Any, role: Role = Role.OWNER) -> APIClient:
    """The browser of a session whose person was confirmed eleven minutes ago."""
    client: APIClient = acme.client(role)
    session = client.session
    session["confirmed_at"] = time.time() - 660
    session.save()
    return client


def test_a_stolen_session_changes_nothing(acme: Any, https: None) -> None:
    thief = stolen(acme)
    for method, path in CHANGES:
        assert error_of(getattr(thief, method)(path, {}, format="json")) == (403, "confirmation_required"), path
    key = send(thief, "/api/session/confirmation", {"password": "wrong"})
    assert error_of(key) == (400, "wrong_password")
    assert not AuthenticatorApp.objects.exists()
    before = thief.cookies["lorikeet_session"].value
    assert send(thief, "/api/session/confirmation", {"password": PASSWORD}).status_code == 200
    assert thief.cookies["lorikeet_session"].value != before
    assert thief.post("/api/second-factors/app").status_code == 201
    copied = APIClient()
    copied.cookies["lorikeet_session"] = before
    assert not is_in(copied), "a copy of the cookie ends with the confirmation"


def test_who_has_a_second_factor_confirms_with_it(acme: Any, moment: Any) -> None:
    phone, _ = set_up(acme.client(), moment)
    thief = stolen(acme)
    assert error_of(send(thief, "/api/session/confirmation", {"password": PASSWORD})) == (400, "one_proof_required")
    assert thief.get("/api/session/confirmation").json()["password"] is False
    assert error_of(thief.delete("/api/second-factors/app")) == (403, "confirmation_required")
    assert send(thief, "/api/session/confirmation", {"code": phone.later()}).status_code == 200
    assert thief.delete("/api/second-factors/app").status_code == 204
    assert not RecoveryCode.objects.exists()
    assert User.objects.get(email=OWNER).second_factor_since is None
    assert send(APIClient(), "/api/session", {"email": OWNER, "password": PASSWORD}).json()["authenticated"]


def test_a_password_is_guessed_no_faster_by_confirming(acme: Any) -> None:
    thief = stolen(acme)
    answers = [send(thief, "/api/session/confirmation", {"password": "x"}).status_code for _ in range(11)]
    assert answers == [400] * 10 + [429]


def test_another_app_replaces_the_first_one(acme: Any, moment: Any) -> None:
    browser = acme.client()
    old, codes = set_up(browser, moment)
    new = Phone(browser, moment)
    assert show(password_step(), old.later()).status_code == 200, "in use until the new one is confirmed"
    assert error_of(send(browser, "/api/second-factors/app/confirm", {"code": old.later()})) == (400, "wrong_code")
    done = send(browser, "/api/second-factors/app/confirm", {"code": new.code()})
    assert done.json()["recovery_codes"] == [], "the earlier ones stay"
    assert error_of(show(password_step(), old.later())) == (400, "wrong_code")
    assert show(password_step(), new.later()).status_code == 200
    assert show(password_step(), codes[0]).status_code == 200
    again = send(browser, "/api/second-factors/app/confirm", {"code": new.later()})
    assert error_of(again) == (409, "not_set_up")


# -- at once ---------------------------------------------------------------------------------------------------------


def at_once(*calls: Any) -> list[Any]:
    """Results of calls that start together, each with its connection."""
    results: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_is_accepted(acme: Any, moment: Any) -> None:
    phone, codes = set_up(acme.client(), moment)
    for code in (phone.later(), codes[0]):
        steps = [password_step() for _ in range(3)]
        answers = at_once(*[lambda step=step, code=code: show(step, code).status_code for step in steps])
        assert sorted(answers) == [200, 400, 400]
    again = [password_step()] * 2
    answers = at_once(*[lambda n=n: show(again[n], codes[1 + n]).status_code for n in range(2)])
    assert sorted(answers) == [200, 400], "one first step starts one session"


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_signing_in_while_the_first_one_is_set_up(acme: Any, moment: Any) -> None:
    browser = acme.client()
    phone = Phone(browser, moment)
    others = [APIClient() for _ in range(3)]
    login = {"email": OWNER, "password": PASSWORD}
    at_once(
        lambda: send(browser, "/api/second-factors/app/confirm", {"code": phone.code()}),
        *[lambda other=other: send(other, "/api/session", login) for other in others],
    )
    assert is_in(browser)
    assert not any(is_in(other) for other in others), "no session without the second factor is left"


# -- tenants that require one ----------------------------------------------------------------------------------------


def require(acme: Any, moment: Any) -> APIClient:
    owner: APIClient = acme.client()
    set_up(owner, moment)
    answer = owner.put(acme.path("security"), {"second_factor_required": True}, format="json")
    assert answer.json() == {"second_factor_required": True, "members_without": 3}
    return owner


def test_the_owner_cannot_lock_himself_out(acme: Any, moment: Any) -> None:
    owner = acme.client()
    body = {"second_factor_required": True}
    refused = owner.put(acme.path("security"), body, format="json")
    assert error_of(refused) == (409, "own_second_factor_missing")
    assert not Tenant.objects.get(slug="acme").second_factor_required
    assert acme.client(Role.ADMIN).put(acme.path("security"), body, format="json").status_code == 403
    owner = require(acme, moment)
    assert error_of(owner.delete("/api/second-factors/app")) == (409, "second_factor_still_required")
    assert AuthenticatorApp.objects.exists(), "the refusal undoes the removal"
    assert RecoveryCode.objects.count() == 10
    assert AuditEvent.objects.for_tenant(acme.tenant).filter(action="tenant.second-factor").count() == 1
    ending = {"second_factor_required": False}
    assert error_of(stolen(acme).put(acme.path("security"), ending, format="json")) == (403, "confirmation_required")
    assert owner.put(acme.path("security"), ending, format="json").status_code == 200
    assert owner.delete("/api/second-factors/app").status_code == 204


def test_members_without_one_only_set_one_up(acme: Any, globex: Any, moment: Any) -> None:
    robot = APIClient()
    robot.credentials(HTTP_AUTHORIZATION=f"Bearer {acme.key()[1]}")
    require(acme, moment)
    admin = acme.client(Role.ADMIN)
    for method, path in (("get", "adapters"), ("get", "security"), ("post", "keys"), ("delete", "membership")):
        answer = getattr(admin, method)(acme.path(path), {}, format="json")
        assert error_of(answer) == (403, "second_factor_required"), path
        assert "Account" in answer.json()["error"]["fix"]
    tenant = admin.get("/api/session").json()["tenants"][0]
    assert (tenant["second_factor_required"], tenant["capabilities"]) == (True, [])
    assert robot.get(acme.path("adapters")).status_code == 200, "keys are programs'"
    assert globex.client(Role.ADMIN).get(globex.path("adapters")).status_code == 200
    assert admin.get("/api/second-factors").json()["required_by"] == ["Acme"]
    set_up(admin, moment)
    assert admin.get(acme.path("adapters")).status_code == 200
    members = {row["email"]: row["second_factor"] for row in admin.get(acme.path("members")).json()}
    assert members == {
        OWNER: True, "admin@acme.example": True, "developer@acme.example": False, "viewer@acme.example": False,
    }  # fmt: skip


def test_a_websocket_of_a_member_without_one_ends(acme: Any, moment: Any, queue: Any) -> None:
    admin = acme.client(Role.ADMIN)
    assert admin.get(acme.path("members")).status_code == 200
    caller = SessionCaller(acme.users[Role.ADMIN].pk, admin.cookies["lorikeet_session"].value, "acme")
    caller.principal().require(Capability.VIEW)
    require(acme, moment)
    with pytest.raises(SecondFactorRequiredError):
        caller.principal().require(Capability.VIEW)


def test_reset_by_an_operator(acme: Any, globex: Any, operator: APIClient, moment: Any) -> None:
    owner = require(acme, moment)
    who = acme.users[Role.OWNER].pk
    path = f"/api/operator/tenants/acme/members/{who}/second-factor"
    assert error_of(acme.client(Role.ADMIN).delete(path)) == (403, "operator_only")
    elsewhere = path.replace("/acme/", "/globex/")
    assert error_of(operator.delete(elsewhere)) == (404, "member_not_found")
    session = operator.session
    confirmed, session["confirmed_at"] = session["confirmed_at"], 0
    session.save()
    assert error_of(operator.delete(path)) == (403, "confirmation_required")
    session["confirmed_at"] = confirmed
    session.save()
    assert operator.delete(path).status_code == 204
    assert not is_in(owner)
    browser = APIClient()
    assert send(browser, "/api/session", {"email": OWNER, "password": PASSWORD}).json()["authenticated"]
    assert error_of(browser.get(acme.path("adapters"))) == (403, "second_factor_required")
    row = AuditEvent.objects.get(action="second-factor.reset")
    assert (row.actor_label, row.target_label, row.detail["had_one"]) == ("ops@example.org", OWNER, True)
    assert AuditEvent.objects.for_tenant(acme.tenant).filter(action="member.reset-second-factor").exists()
    set_up(browser, moment)
    assert browser.get(acme.path("adapters")).status_code == 200


def test_reset_by_command(acme: Any, moment: Any, queue: Any) -> None:
    owner, printed = acme.client(), StringIO()
    set_up(owner, moment)
    call_command("reset_second_factor", "Owner@Acme.example", stdout=printed)
    assert "are removed" in printed.getvalue()
    assert not is_in(owner)
    call_command("reset_second_factor", OWNER, stdout=printed)
    assert "had no second factor" in printed.getvalue()
    with pytest.raises(CommandError):
        call_command("reset_second_factor", "nobody@acme.example")


# -- passkeys --------------------------------------------------------------------------------------------------------


def register(browser: APIClient, passkey: SoftwarePasskey, name: str = "Laptop") -> Any:
    options = browser.post("/api/second-factors/passkeys/options").json()
    return send(browser, "/api/second-factors/passkeys", {"name": name, "credential": passkey.create(options)})


def show_passkey(browser: APIClient, passkey: SoftwarePasskey) -> Any:
    options = browser.post("/api/session/passkey").json()
    return send(browser, "/api/session/second-factor", {"credential": passkey.get(options)})


def test_a_passkey(acme: Any, https: None) -> None:
    browser, passkey = acme.client(), SoftwarePasskey()
    made = register(browser, passkey)
    assert made.status_code == 201, made.content
    assert len(made.json()["recovery_codes"]) == 10
    step = password_step()
    assert step.get("/api/session/second-factor").json() == {"app": False, "passkey": True, "password": False}
    assert show_passkey(step, passkey).json()["authenticated"]
    assert AuditEvent.objects.filter(action="session.create").latest("id").detail == {"second_factor": "passkey"}
    options = step.post("/api/session/passkey").json()
    assert [each["id"] for each in options["allowCredentials"]] == [Passkey.objects.get().credential_id]
    old = step.session
    old["confirmed_at"] = 0
    old.save()
    assert send(step, "/api/session/confirmation", {"credential": passkey.get(options)}).status_code == 200
    listed = step.get("/api/second-factors").json()["passkeys"]
    assert step.delete(f"/api/second-factors/passkeys/{listed[0]['id']}").status_code == 204
    assert User.objects.get(email=OWNER).second_factor_since is None


def refused(answer: Any) -> None:
    assert error_of(answer)[1] in ("passkey_refused", "passkey_challenge_expired"), answer.content


def test_a_passkey_of_another_member(acme: Any, https: None) -> None:
    mine, theirs = SoftwarePasskey(), SoftwarePasskey()
    assert register(acme.client(), mine).status_code == 201
    viewer = acme.client(Role.VIEWER)
    assert register(viewer, theirs).status_code == 201
    step = password_step()
    refused(show_passkey(step, theirs))
    theirs.user_handle = mine.user_handle
    theirs.credential_id = mine.credential_id
    refused(show_passkey(step, theirs))  # another key under my passkey's id
    refused(register(viewer, SoftwarePasskey(credential_id=mine.credential_id)))
    someone = acme.users[Role.VIEWER].pk
    stranger = acme.client(Role.ADMIN)
    assert stranger.delete(f"/api/second-factors/passkeys/{Passkey.objects.get(user=someone).pk}").status_code == 404
    assert not is_in(step)
    assert AuditEvent.objects.filter(action="second-factor.refuse", target_label=OWNER).count() == 2


@pytest.mark.parametrize(
    ("origin", "rp_id"),
    [
        ("https://console.example.org.evil.example", "console.example.org"),
        ("http://console.example.org", "console.example.org"),
        ("https://console.example.org:8443", "console.example.org"),
        (PAGE, "example.org"),
        ("https://evil.example", "evil.example"),
    ],
)
def test_a_page_of_another_origin(acme: Any, https: None, origin: str, rp_id: str) -> None:
    refused(register(acme.client(), SoftwarePasskey(origin, rp_id)))
    passkey = SoftwarePasskey()
    assert register(acme.client(), passkey).status_code == 201
    passkey.origin, passkey.rp_id = origin, rp_id
    refused(show_passkey(password_step(), passkey))


def test_a_challenge_answers_once(acme: Any, https: None) -> None:
    owner, passkey = acme.client(), SoftwarePasskey()
    assert register(owner, passkey).status_code == 201
    step = password_step()
    options = step.post("/api/session/passkey").json()
    value = step.cookies["lorikeet_passkey"].value
    answer = passkey.get(options)
    assert send(step, "/api/session/second-factor", {"credential": answer}).status_code == 200
    again = password_step()
    again.cookies["lorikeet_passkey"] = value
    refused(send(again, "/api/session/second-factor", {"credential": answer}))
    other = password_step()
    other.post("/api/session/passkey")
    refused(send(other, "/api/session/second-factor", {"credential": answer}))
    # A challenge of one purpose serves no other one.
    confirm = owner.post("/api/session/passkey").json()
    moved = password_step()
    moved.cookies["lorikeet_passkey"] = owner.cookies["lorikeet_passkey"].value
    refused(send(moved, "/api/session/second-factor", {"credential": passkey.get(confirm)}))


def test_a_copied_passkey(acme: Any, https: None) -> None:
    passkey = SoftwarePasskey(counter=5)
    assert register(acme.client(), passkey).status_code == 201
    assert show_passkey(password_step(), passkey).status_code == 200
    passkey.counter = 4
    refused(show_passkey(password_step(), passkey))


def test_malformed_answers(acme: Any, https: None) -> None:
    owner, passkey = acme.client(), SoftwarePasskey()
    nested: dict[str, Any] = {}
    for _ in range(50):
        nested = {"a": nested}
    options = owner.post("/api/second-factors/passkeys/options").json()
    good = passkey.create(options)
    hostile: list[dict[str, Any]] = [
        {}, nested, {"id": "x"}, {**good, "rawId": 3}, {**good, "response": None}, {**good, "response": {}},
        {**good, "response": {**good["response"], "attestationObject": "gY" + "GB" * 9000}},
        {**good, "response": {**good["response"], "attestationObject": "x" * 40_000}},
        {**good, "response": {**good["response"], "attestationObject": good["response"]["attestationObject"][:-9]}},
        {**good, "response": {**good["response"], "clientDataJSON": "bnVsbA"}},
        {**good, "response": {**good["response"], "clientDataJSON": "e30"}},
        {**good, "response": {**good["response"], "clientDataJSON": "_w"}},
    ]  # fmt: skip
    for credential in hostile:
        attempts.limiter.cache_clear()
        owner.post("/api/second-factors/passkeys/options")
        refused(send(owner, "/api/second-factors/passkeys", {"name": "x", "credential": credential}))
    assert not Passkey.objects.exists()


def test_where_there_are_no_passkeys(acme: Any, settings: Any) -> None:
    """An address without a host name, plain HTTP, and a proxy that speaks for another host."""
    owner = acme.client()
    assert owner.get("/api/second-factors").json()["passkeys_available"] is False
    assert error_of(owner.post("/api/second-factors/passkeys/options")) == (409, "passkeys_unavailable")
    for url, expected in (
        ("http://127.0.0.1:8000", False),
        ("https://[::1]", False),
        ("https://10.0.0.1", False),
        ("http://console.example.org", False),
        ("http://localhost:8000", True),
        ("https://console.example.org", True),
    ):
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"public_url": url})
        assert owner.get("/api/second-factors").json()["passkeys_available"] is expected, url
    local = {"public_url": "", "allowed_hosts": "localhost"}
    settings.LORIKEET = settings.LORIKEET.model_copy(update=local)
    settings.ALLOWED_HOSTS = ["localhost"]
    here = owner.get("/api/second-factors", HTTP_HOST="localhost:8000").json()
    assert here["passkeys_available"] is True, "without settings, the host of the request"


def test_a_parent_domain_and_several_origins(acme: Any, settings: Any) -> None:
    update = {"passkey_rp_id": "example.org", "passkey_origins": f"{PAGE},https://admin.example.org,https://evil.test"}
    with pytest.raises(ValueError, match=r"evil\.test"):
        Settings(_env_file=None, **update)  # type: ignore[call-arg, arg-type]
    settings.LORIKEET = settings.LORIKEET.model_copy(update=update)
    passkey = SoftwarePasskey("https://admin.example.org", "example.org")
    assert register(acme.client(), passkey).status_code == 201
    passkey.origin = PAGE
    assert show_passkey(password_step(), passkey).status_code == 200
    refused(register(signed_in(acme.users[Role.VIEWER]), SoftwarePasskey("https://evil.test", "example.org")))
