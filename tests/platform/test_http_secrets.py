"""Secrets are never logged and never in the audit log, whatever happens to them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lorikeet_testing.platform_fixtures import signed_in
from rest_framework.test import APIClient

from control_plane.core.http.logs import JsonFormatter, PlainFormatter, RequestIdFilter, mask
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.accounts.tasks import mail_reset_link
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.members.tasks import mail_invitation
from control_plane.identity.second_factor import totp
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.addFilter(RequestIdFilter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [JsonFormatter().format(record), PlainFormatter("%(message)s").format(record)]


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Everything that any logger says, at every level."""
    root, handler = logging.getLogger(), Kept()
    before = {name: logger.level for name, logger in _loggers().items()}
    root.addHandler(handler)
    for logger in _loggers().values():
        logger.setLevel(logging.DEBUG)
    yield handler.lines
    root.removeHandler(handler)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    """Not the database's: its statements hold every value, and only DEBUG of Django's own turns them on."""
    names = [name for name in logging.root.manager.loggerDict if not name.startswith("django.db")]
    return {"": logging.getLogger(), **{name: logging.getLogger(name) for name in names}}


def test_nothing_leaks(acme: Any, logged: list[str], queue: Any, committing: Any, monkeypatch: Any) -> None:
    owner, secrets = acme.client(), {PASSWORD}
    made = owner.post(acme.path("keys"), {"name": "ci"}, format="json").json()
    rotated = owner.post(acme.path(f"keys/{made['id']}/rotate"), {}, format="json").json()
    secrets |= {key["secret"].split("_", 2)[2] for key in (made, rotated)}
    keyed = APIClient()
    keyed.credentials(HTTP_AUTHORIZATION=f"Bearer {rotated['secret']}")
    keyed.get(acme.path("adapters"))
    keyed.get(acme.path("keys/nowhere"))

    set_operator(actor=SYSTEM, user=acme.users[Role.OWNER], operator=True)
    join = owner.post("/api/operator/join-tokens", {}, format="json").json()["token"]
    joining = {"token": join, "name": "gpu1", "address": "gpu1:7000", "certificate_request": "x"}
    assert APIClient().post("/api/hosts/join", joining, format="json").status_code == 400
    logging.getLogger("control_plane").warning("a host was started with --token %s", join)
    secrets.add(join.removeprefix("lkj_"))

    invited = owner.post(acme.path("invitations"), {"email": "a@b.example", "role": "viewer"}, format="json").json()
    mail_invitation(invited["id"])
    token = invited["link"].partition("#")[2]
    APIClient().post("/api/invitations/accept", {"token": token, "password": "another pass phrase"}, format="json")
    secrets |= {token, "another pass phrase"}

    person = APIClient()
    person.post("/api/session", {"email": "owner@acme.example", "password": PASSWORD}, format="json")
    person.post("/api/session", {"email": "owner@acme.example", "password": "a wrong guess"}, format="json")
    ticket = person.post(acme.path("socket-ticket")).json()["ticket"]
    secrets |= {"a wrong guess", ticket, *(person.cookies[f"lorikeet_{name}"].value for name in ("session", "csrf"))}
    mail_reset_link("owner@acme.example")
    proof = reset_token(acme.users[Role.OWNER])
    APIClient().post("/api/password/reset", {"token": proof, "password": "a third pass phrase"}, format="json")
    secrets |= {proof, "a third pass phrase"}

    owner = signed_in(acme.users[Role.ADMIN])
    setup = owner.post("/api/second-factors/app").json()
    code = totp.code_at(setup["secret"], time.time())
    made = owner.post("/api/second-factors/app/confirm", {"code": code}, format="json").json()
    login = {"email": "admin@acme.example", "password": PASSWORD}
    person.post("/api/session", login, format="json")
    secrets |= {setup["secret"], *made["recovery_codes"], person.cookies["lorikeet_sign_in"].value}
    person.post("/api/session/second-factor", {"code": made["recovery_codes"][0]}, format="json")
    person.post("/api/session/second-factor", {"code": "not-a-code-of-theirs"}, format="json")
    secrets |= {code.replace("-", "") for code in made["recovery_codes"]} | {"not-a-code-of-theirs"}

    # An error that nobody foresaw, with its traceback.
    def fail(**_: Any) -> None:
        raise RuntimeError(f"failed for {rotated['secret']}")

    monkeypatch.setattr("control_plane.identity.keys.actions.create_key", fail)
    client = APIClient(raise_request_exception=False)
    client.force_login(acme.users[Role.ADMIN])
    assert client.post(acme.path("keys"), {"name": "x"}, format="json").status_code == 500

    text = "\n".join(logged)
    assert "failed for lk_" in text, "the log was not watched"
    audited = json.dumps(list(AuditEvent.objects.values()), default=str)
    for secret in secrets:
        assert secret not in text
        assert secret not in audited


def test_mask() -> None:
    assert mask("got lk_abcdefgh_s3cr-et_ here") == "got lk_abcdefgh_… here"
    assert mask('{"Authorization": "Bearer abc.def-ghi"}') == '{"Authorization": "Bearer …"}'
    assert mask("redis://:pass@host/0 postgres://me:pass@host/x") == "redis://:…@host/0 postgres://me:…@host/x"
    assert mask("at 10:30 http://host:8000/a") == "at 10:30 http://host:8000/a"
